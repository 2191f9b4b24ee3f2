package githttp_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// keptMoments is how long the remotes of [TestMomentRemotesModel] can be read as they were.
const keptMoments = 5 * time.Hour

// TestMomentRemotesModel pushes at random, beside a model that keeps the refs of every state, and
// has git list, clone and fetch random moments: what it gets is the model's. Meanwhile the clock
// goes on, and maintenance removes what is older than the window, of which git is told that it is
// gone. PACKHORSE_MODEL_COUNT is the number of steps.
func TestMomentRemotesModel(t *testing.T) {
	t.Parallel()
	count := oracle.ModelCount(t, 50, 15)
	m := newMomentModel(t, 3)
	for range count {
		m.step()
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", m.did)
}

// momentModel is what is known of a repository, all of whose objects git has.
type momentModel struct {
	*remote
	t      *testing.T
	random *rand.Rand
	now    atomic.Int64 // milliseconds since 1970
	did    map[string]int

	git    *oracle.Repository // pushes
	copied *oracle.Repository // a clone that fetches one moment after the other
	ids    []string           // commits and annotated tags to push
	states []momentState      // by position in the journal; the first is none
	floor  int                // the first that maintenance has kept
}

type momentState struct {
	refs map[string]string
	at   time.Time
}

func newMomentModel(t *testing.T, seed uint64) *momentModel {
	t.Helper()
	m := &momentModel{
		t: t, random: rand.New(rand.NewPCG(seed, 42)), did: map[string]int{}, git: oracle.New(t), copied: oracle.New(t),
		states: make([]momentState, 1),
	}
	m.now.Store(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	config := engine.Config{Now: m.time, Refs: refs.Options{Now: m.time}}
	config.Maintenance.KeepHistory, config.Maintenance.Grace = keptMoments, time.Hour
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), config)
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, repoName)
	m.remote = serveHost(t, host, githttp.Config{})
	m.repo = repo
	m.note(map[string]string{})
	return m
}

func (m *momentModel) time() time.Time { return time.UnixMilli(m.now.Load()).UTC() }

// last is what the refs are.
func (m *momentModel) last() map[string]string { return m.states[len(m.states)-1].refs }

// note notes the refs after a step.
func (m *momentModel) note(now map[string]string) {
	m.t.Helper()
	head, err := m.repo.Sequence(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if changed := !maps.Equal(m.last(), now); changed && int(head) != len(m.states) {
		m.t.Errorf("the journal is at %d after %d states", head, len(m.states)-1)
	}
	for len(m.states) <= int(head) {
		m.states = append(m.states, momentState{now, m.time()})
	}
}

func (m *momentModel) step() {
	m.t.Helper()
	m.now.Add(int64(time.Minute/time.Millisecond) * int64(1+m.random.IntN(60)))
	switch kind := m.random.IntN(12); {
	case kind < 6:
		m.push()
	case kind < 8:
		m.maintain()
	default:
		m.look()
	}
}

// push moves, creates and deletes some refs at once.
func (m *momentModel) push() {
	now := maps.Clone(m.last())
	args := []string{"push", "--quiet", "--atomic", "--force", m.url("")}
	names := []string{"refs/heads/main", "refs/heads/dev", "refs/heads/a/b", "refs/tags/v1", "refs/tags/v2", "refs/notes/odd"}
	m.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:1+m.random.IntN(3)] {
		if _, there := now[name]; there && name != "refs/heads/main" && m.random.IntN(3) == 0 {
			delete(now, name)
			args = append(args, ":"+name)
			continue
		}
		id := m.object(strings.HasPrefix(name, "refs/tags/"))
		now[name] = id
		args = append(args, id+":"+name)
	}
	if maps.Equal(now, m.last()) {
		return
	}
	m.did["push"]++
	m.git.Git(args...)
	m.note(now)
}

// object returns what a ref is pointed at: a new commit, one that may have been pushed before, or a
// tag of it.
func (m *momentModel) object(tagged bool) string {
	serial := len(m.ids)
	if serial > 0 && m.random.IntN(3) == 0 {
		id := m.ids[m.random.IntN(serial)]
		if tagged && m.random.IntN(2) == 0 {
			return m.git.Write("tag", fmt.Appendf(nil, "object %s\ntype commit\ntag v\ntagger T <t@example.com> %d +0000\n\nx\n",
				id, serial))
		}
		return id
	}
	blob := m.git.Write("blob", fmt.Appendf(nil, "%d\n", serial))
	tree := strings.TrimSpace(string(m.git.Input(fmt.Appendf(nil, "100644 blob %s\tf%d\n", blob, serial%4), "mktree")))
	args := []string{"commit-tree", "-m", fmt.Sprint("commit ", serial), tree}
	for range m.random.IntN(3) {
		if serial > 0 {
			args = append(args, "-p", m.ids[m.random.IntN(serial)])
		}
	}
	id := m.git.Git(args...)
	m.ids = append(m.ids, id)
	return id
}

func (m *momentModel) maintain() {
	m.did["maintenance"]++
	cut := m.time().Add(-keptMoments)
	for s := 1; s < len(m.states) && !m.states[s].at.After(cut); s++ {
		m.floor = s
	}
	for done, err := range m.host.Maintain(m.t.Context(), engine.MaintainOptions{ReaderGrace: -1, All: true}) {
		if err != nil || done.Err != nil {
			m.t.Fatal(err, done.Err)
		}
	}
	m.note(m.last())
}

// look has git read a moment.
func (m *momentModel) look() {
	first := 1
	if m.random.IntN(4) > 0 {
		first = max(m.floor, 1)
	}
	sequence := first + m.random.IntN(len(m.states)-first)
	url := m.url(fmt.Sprint("+at.", sequence))
	protocol := fmt.Sprint("protocol.version=", m.random.IntN(3))
	if sequence < m.floor {
		m.did["refused"]++
		refused(m.t, m.git, "not kept any more", "-c", protocol, "ls-remote", url)
		return
	}
	want := m.states[sequence].refs
	if got := m.git.Git("-c", protocol, "ls-remote", url); sorted(got) != sorted(m.shown(want)) {
		m.t.Errorf("refs of moment %d by %s:\n%s\nwant\n%s", sequence, protocol, got, m.shown(want))
	}
	reached := m.reached(want)
	if m.random.IntN(2) == 0 {
		m.did["clone"]++
		git := cloneBare(m.t, url, "-c", protocol)
		var stored []string
		for _, line := range git.Objects() {
			id, _, _ := strings.Cut(line, " ")
			stored = append(stored, id)
		}
		if !slices.Equal(stored, reached) {
			m.t.Errorf("a clone of moment %d has objects %v, want %v", sequence, stored, reached)
		}
		m.holdRefs(sequence, git)
		return
	}
	m.did["fetch"]++
	m.copied.Git("-c", protocol, "fetch", "--quiet", "--prune", "--no-write-fetch-head", url, "+refs/*:refs/*")
	m.holdRefs(sequence, m.copied)
	if got := lines(sorted(m.copied.Git("rev-list", "--objects", "--all", "--no-object-names"))); !slices.Equal(got, reached) {
		m.t.Errorf("a fetch of moment %d reaches %v, want %v", sequence, got, reached)
	}
}

// holdRefs holds the refs of a copy of a moment to the model.
func (m *momentModel) holdRefs(sequence int, git *oracle.Repository) {
	m.t.Helper()
	var want []string
	for _, name := range slices.Sorted(maps.Keys(m.states[sequence].refs)) {
		want = append(want, m.states[sequence].refs[name]+" "+name)
	}
	if got := allRefs(git); !slices.Equal(got, want) {
		m.t.Errorf("a copy of moment %d has refs %q, want %q", sequence, got, want)
	}
}

// shown is what git ls-remote shows of refs.
func (m *momentModel) shown(refs map[string]string) string {
	var shown []string
	if main := refs["refs/heads/main"]; main != "" {
		shown = append(shown, main+"\tHEAD")
	}
	for name, id := range refs {
		shown = append(shown, id+"\t"+name)
		if peeled := m.git.Git("rev-parse", id+"^{}"); peeled != id {
			shown = append(shown, peeled+"\t"+name+"^{}")
		}
	}
	return strings.Join(shown, "\n")
}

// reached is the IDs of the objects that refs reach.
func (m *momentModel) reached(refs map[string]string) []string {
	var tips strings.Builder
	for _, id := range refs {
		fmt.Fprintln(&tips, id)
	}
	return lines(sorted(strings.TrimSuffix(string(
		m.git.Input([]byte(tips.String()), "rev-list", "--objects", "--no-object-names", "--stdin")), "\n")))
}
