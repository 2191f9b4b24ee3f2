package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// keptHistory is how long the repositories of [TestHistoryModel] can be read as they were, and
// keptObjects how long what nobody needs stays.
const (
	keptHistory = 10 * time.Hour
	keptObjects = 2 * time.Hour
)

// TestHistoryModel makes random writes of all kinds, with transactions over two repositories and
// undos, and reads and clones random moments, beside a model that keeps the refs of every state
// and the files of every commit. Meanwhile the clock goes on, maintenance removes what is older
// than the window and nothing else, repositories are deleted and come back, stores are opened
// again, and the power fails, between writes and inside of them. A state of the window is the
// model's, whatever has happened since; one before it is refused. PACKHORSE_MODEL_COUNT is the
// number of steps.
func TestHistoryModel(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "the power of its disk fails")
	count := oracle.ModelCount(t, 150, 50)
	pool := pooledCommits(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newHistoryModel(t, seed, pool)
			for range count / 2 {
				m.step()
				if t.Failed() {
					return
				}
			}
			m.finish()
			t.Logf("%v", m.did)
		})
	}
}

// files are the files of a tree by path.
type files map[string]engine.File

// pooled is a commit that git has made, with all that it needs.
type pooled struct {
	tip     object.ID
	pack    []byte
	parents map[object.ID][]object.ID // of it and its ancestors
	files   map[object.ID]files
}

// pooledCommits makes commits to push, of two histories.
func pooledCommits(t *testing.T) (pool []pooled) {
	t.Helper()
	for seed := range uint64(2) {
		git := oracle.New(t)
		git.Seed(oracle.History{Seed: seed + 1, Commits: 5})
		known := pooled{parents: map[object.ID][]object.ID{}, files: map[object.ID]files{}}
		for line := range strings.Lines(git.Git("rev-list", "--reverse", "--parents", "main") + "\n") {
			var ids []object.ID
			for id := range strings.FieldsSeq(line) {
				ids = append(ids, mustID(t, id))
			}
			known.tip = ids[0]
			known.parents, known.files = maps.Clone(known.parents), maps.Clone(known.files)
			known.parents[known.tip], known.files[known.tip] = ids[1:], files{}
			for entry := range strings.SplitSeq(strings.TrimSuffix(git.Git("ls-tree", "-rz", known.tip.String()), "\x00"), "\x00") {
				about, path, _ := strings.Cut(entry, "\t")
				fields := strings.Fields(about)
				mode, err := strconv.ParseUint(fields[0], 8, 32)
				must(t, err)
				known.files[known.tip][path] = engine.File{Path: path, Mode: object.Mode(mode), ID: mustID(t, fields[2])}
			}
			known.pack = git.Input([]byte(known.tip.String()+"\n"), "pack-objects", "--revs", "--stdout", "-q")
			pool = append(pool, known)
		}
	}
	return pool
}

// historyModel is what is known of a host's repositories.
type historyModel struct {
	t      *testing.T
	random *rand.Rand
	pool   []pooled
	did    map[string]int

	now  atomic.Int64
	fs   *vfs.MemFS
	host *engine.Host
	shut func()

	repos   []*modelRepo
	files   map[object.ID]files // by commit
	parents map[object.ID][]object.ID
	texts   map[object.ID]string // of blobs, as far as they are known
	serial  int
}

// modelRepo is a repository with all of its states.
type modelRepo struct {
	*engine.Repository
	name   string
	states []modelState // by position in the journal; the first is none
	floor  int          // the first that maintenance has promised to keep
	since  time.Time    // and since when
	shared bool         // a fork reads its objects, or it those of another
	has    map[object.ID]bool
}

type modelState struct {
	refs map[string]object.ID // by stored name
	at   time.Time
}

func newHistoryModel(t *testing.T, seed uint64, pool []pooled) *historyModel {
	t.Helper()
	m := &historyModel{
		t: t, random: rand.New(rand.NewPCG(seed, 41)), pool: pool, did: map[string]int{}, fs: vfs.NewCrashableMem(),
		files: map[object.ID]files{}, parents: map[object.ID][]object.ID{}, texts: map[object.ID]string{},
	}
	m.now.Store(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	m.open(m.fs)
	t.Cleanup(func() { m.shut() })
	for _, name := range []string{"alone", "base"} {
		enginetest.Create(t, m.host, name)
		m.add(name, map[string]object.ID{})
	}
	return m
}

func (m *historyModel) time() time.Time { return time.UnixMilli(m.now.Load()).UTC() }

func (m *historyModel) open(on vfs.FS) {
	config := engine.Config{Now: m.time, Refs: refs.Options{Now: m.time}}
	config.Maintenance.KeepHistory, config.Maintenance.Grace = keptHistory, keptObjects
	if m.random.IntN(2) == 0 {
		config.Objects.Limits.HotCount = 10 // pushes are segments
	}
	m.host, m.shut = enginetest.OpenOn(m.t, on, config)
	for _, r := range m.repos {
		m.reopen(r)
	}
}

func (m *historyModel) reopen(r *modelRepo) {
	repo, err := m.host.Repository(m.t.Context(), enginetest.Org, r.name)
	must(m.t, err)
	r.Repository = repo
}

// add notes a repository that has just been created.
func (m *historyModel) add(name string, now map[string]object.ID) *modelRepo {
	r := &modelRepo{name: name, states: make([]modelState, 1), has: map[object.ID]bool{}}
	m.reopen(r)
	m.repos = append(m.repos, r)
	m.note(r, now)
	return r
}

// note notes the refs after a step.
func (m *historyModel) note(r *modelRepo, now map[string]object.ID) {
	m.t.Helper()
	head, err := r.Sequence(m.t.Context())
	must(m.t, err)
	for len(r.states) <= int(head) {
		r.states = append(r.states, modelState{now, m.time()})
	}
	if last := r.states[len(r.states)-1]; len(r.states) != int(head)+1 || !maps.Equal(last.refs, now) {
		m.t.Errorf("%s: the journal is at %d, of %d states, the last of which is %v, and now is %v", r.name, head,
			len(r.states)-1, last.refs, now)
	}
	for _, id := range now {
		m.learn(r, id)
	}
	m.holdRefs(r, r.Repository, now)
}

// learn notes the files and parents of a commit that is not known, and of its ancestors.
func (m *historyModel) learn(r *modelRepo, id object.ID) {
	m.t.Helper()
	for ids := []object.ID{id}; len(ids) > 0; {
		id, ids = ids[0], ids[1:]
		if m.files[id] == nil {
			m.files[id] = m.list(r.Repository, id)
		}
		if _, known := m.parents[id]; !known {
			detail, err := r.Commit(m.t.Context(), named(id))
			must(m.t, err)
			m.parents[id] = detail.Parents
		}
		if !r.has[id] {
			r.has[id] = true
			ids = append(ids, m.parents[id]...)
		}
	}
}

// list lists the files of a commit.
func (m *historyModel) list(repo *engine.Repository, id object.ID) files {
	m.t.Helper()
	listing, err := repo.Files(m.t.Context(), engine.FilesRequest{Ref: id.String()})
	must(m.t, err)
	defer listing.Close()
	found := files{}
	for file, err := range listing.All(m.t.Context()) {
		must(m.t, err)
		if !file.Mode.IsTree() {
			found[file.Path] = file
		}
	}
	return found
}

// holdRefs holds the refs of a repository to those of the model.
func (m *historyModel) holdRefs(r *modelRepo, repo *engine.Repository, want map[string]object.ID) {
	m.t.Helper()
	found := map[string]object.ID{}
	for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		told, err := repo.Advertise(m.t.Context(), ns)
		must(m.t, err)
		for ref, err := range told.All(m.t.Context(), "") {
			must(m.t, err)
			found[ns.Full(ref.Name)] = ref.ID
		}
		must(m.t, told.Close())
	}
	if !maps.Equal(found, want) {
		m.t.Errorf("%s at %d has refs %v, want %v", r.name, repo.MomentSequence(), found, want)
	}
}

// step makes one write, or something else.
func (m *historyModel) step() {
	m.t.Helper()
	m.now.Add(int64(time.Minute/time.Millisecond) * int64(1+m.random.IntN(40)))
	r := m.repos[m.random.IntN(len(m.repos))]
	now := maps.Clone(r.states[len(r.states)-1].refs)
	steps := []struct {
		name   string
		weight int
		do     func(r *modelRepo, now map[string]object.ID) bool
	}{
		{"push", 6, m.push},
		{"commit", 10, m.commit},
		{"merge", 3, m.merge},
		{"restore", 2, m.restore},
		{"branch", 3, m.branch},
		{"delete branch", 2, m.deleteBranch},
		{"tag", 2, m.tag},
		{"note", 2, m.addNote},
		{"fork", 2, m.fork},
		{"pick", 4, m.pick},
		{"land", 3, m.land},
		{"deletion", 2, m.deleteAndBack},
		{"transaction", 4, m.transact},
		{"undo", 4, m.undo},
		{"maintenance", 3, m.maintain},
		{"reopen", 1, m.restart},
		{"power loss", 1, m.losePower},
		{"crash inside", 3, m.crashInside},
		{"read", 14, m.readAny},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := m.random.IntN(total)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			if s.do(r, now) {
				m.did[s.name]++
				m.note(r, now)
			}
			return
		}
	}
}

// oneOf returns one of the refs of a state below a prefix; "" without any.
func (m *historyModel) oneOf(now map[string]object.ID, prefix string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[m.random.IntN(len(names))]
}

const headsPrefix = "refs/heads/"

// maintain maintains all repositories, while states that stay are read.
func (m *historyModel) maintain(_ *modelRepo, _ map[string]object.ID) bool {
	cut := m.time().Add(-keptHistory)
	var reads []func()
	for _, r := range m.repos {
		for s := 1; s < len(r.states) && !r.states[s].at.After(cut); s++ {
			r.floor, r.since = s, cut
		}
		for range 2 {
			first := max(r.floor, 1)
			sequence := first + m.random.IntN(len(r.states)-first)
			name := m.oneOf(r.states[sequence].refs, "")
			reads = append(reads, func() { m.read(r, sequence, name, "") })
		}
	}
	var group sync.WaitGroup
	for _, read := range reads {
		group.Go(read)
	}
	keep(m.t, m.host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	group.Wait()
	m.did["maintenance"]++
	for _, r := range m.repos {
		m.note(r, r.states[len(r.states)-1].refs)
		m.holdRemoval(r)
	}
	return false
}

func (m *historyModel) restart(_ *modelRepo, _ map[string]object.ID) bool {
	m.shut()
	m.open(m.fs)
	return true
}

func (m *historyModel) losePower(_ *modelRepo, _ map[string]object.ID) bool {
	dead := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.random.IntN(101), RNG: m.random})
	m.shut()
	m.fs = dead
	m.open(m.fs)
	return true
}

// anyState returns a state of a repository, mostly one that can be read.
func (m *historyModel) anyState(r *modelRepo) int {
	first := 1
	if m.random.IntN(4) > 0 {
		first = max(r.floor, 1)
	}
	return first + m.random.IntN(len(r.states)-first)
}

// readAny reads a repository at a moment, named by its position or by a time.
func (m *historyModel) readAny(r *modelRepo, _ map[string]object.ID) bool {
	sequence := m.anyState(r)
	refName := m.oneOf(r.states[sequence].refs, "")
	path := ""
	if listed := m.files[r.states[sequence].refs[refName]]; len(listed) > 0 {
		paths := slices.Sorted(maps.Keys(listed))
		path = paths[m.random.IntN(len(paths))]
	}
	m.did["read"]++
	if sequence < r.floor {
		m.did["refused"]++
		_, err := r.At(m.t.Context(), atSequence(uint64(sequence)))
		past, ok := errors.AsType[*engine.PastError](err)
		if !ok || past.Oldest != uint64(r.floor) {
			m.t.Errorf("%s at %d: %v, want that %d is the oldest", r.name, sequence, err, r.floor)
		}
		return false
	}
	m.read(r, sequence, refName, path)
	m.readByTime(r, sequence)
	m.readPages(r, sequence)
	if m.random.IntN(8) == 0 {
		m.did["clone"]++
		m.clone(r, sequence, m.anyState(r))
	}
	return false
}

// read holds the state at a position to the model.
func (m *historyModel) read(r *modelRepo, sequence int, refName, path string) {
	state := r.states[sequence]
	then, err := r.At(m.t.Context(), atSequence(uint64(sequence)))
	if err != nil {
		m.t.Errorf("%s at %d, from %d on: %v", r.name, sequence, r.floor, err)
		return
	}
	m.holdRefs(r, then, state.refs)
	if refName == "" {
		return
	}
	id := state.refs[refName]
	if found := m.list(then, id); !maps.Equal(found, m.files[id]) {
		m.t.Errorf("%s at %d: %s has %v, want %v", r.name, sequence, id, found, m.files[id])
	}
	want, known := m.texts[m.files[id][path].ID]
	if !known || !m.files[id][path].Mode.IsRegular() {
		return
	}
	file, err := then.File(m.t.Context(), engine.FileRequest{Ref: id.String(), Path: path})
	must(m.t, err)
	defer file.Close()
	content, err := file.Content(m.t.Context())
	must(m.t, err)
	defer content.Close()
	var text strings.Builder
	if _, err := content.WriteTo(&text); err != nil || text.String() != want {
		m.t.Errorf("%s at %d: %s holds %.40q, %v, want %.40q", r.name, sequence, path, text.String(), err, want)
	}
}

// readByTime names a state by a time at which the repository was in it.
func (m *historyModel) readByTime(r *modelRepo, sequence int) {
	begin, end := r.states[sequence].at, m.time()
	if sequence+1 < len(r.states) {
		end = r.states[sequence+1].at.Add(-time.Millisecond)
	}
	if begin.Before(r.since) {
		begin = r.since
	}
	if end.Before(begin) { // another followed at the same time, or it had gone
		return
	}
	at := begin.Add(time.Duration(m.random.Int64N(int64(end.Sub(begin)) + 1)).Truncate(time.Millisecond))
	then, err := r.At(m.t.Context(), engine.Moment{Time: at})
	if err != nil {
		m.t.Errorf("%s at %s: %v, want the state %d of %s to %s", r.name, at, err, sequence, begin, end)
	} else if found := then.MomentSequence(); found != uint64(sequence) {
		m.t.Errorf("%s at %s is at %d, want the state %d of %s to %s", r.name, at, found, sequence, begin, end)
	}
}

// readPages lists the branches and tags of a state, and the commits of one of them, by pages.
func (m *historyModel) readPages(r *modelRepo, sequence int) {
	then, err := r.At(m.t.Context(), atSequence(uint64(sequence)))
	must(m.t, err)
	limit := 1 + m.random.IntN(3)
	want := maps.Clone(r.states[sequence].refs)
	maps.DeleteFunc(want, func(name string, _ object.ID) bool {
		return !strings.HasPrefix(name, headsPrefix) && !strings.HasPrefix(name, "refs/tags/")
	})
	found := map[string]object.ID{}
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := then.Branches(m.t.Context(), refs.Main, cursor, limit)
		must(m.t, err)
		for _, branch := range page.Items {
			found[headsPrefix+branch.Name] = branch.Tip
		}
		cursor = page.Next
	}
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := then.Tags(m.t.Context(), refs.Main, cursor, limit)
		must(m.t, err)
		for _, tag := range page.Items {
			found["refs/tags/"+tag.Name] = tag.Target
		}
		cursor = page.Next
	}
	if !maps.Equal(found, want) {
		m.t.Errorf("%s at %d: pages of %d list %v, want %v", r.name, sequence, limit, found, want)
	}
	from := m.oneOf(want, "")
	if from == "" {
		return
	}
	m.did["pages"]++
	history := map[object.ID]bool{}
	for ids := []object.ID{want[from]}; len(ids) > 0; {
		id := ids[0]
		if ids = ids[1:]; !history[id] {
			history[id] = true
			ids = append(ids, m.parents[id]...)
		}
	}
	count, listed := 0, map[object.ID]bool{}
	for cursor, more := "", true; more; more = cursor != "" {
		request := engine.CommitsRequest{From: named(want[from]), Cursor: cursor, Limit: 5 * limit}
		page, err := then.Commits(m.t.Context(), request)
		must(m.t, err)
		for _, commit := range page.Items {
			count++
			listed[commit.ID] = true
		}
		cursor = page.Next
		must(m.t, page.Close())
	}
	if count != len(listed) || !maps.Equal(listed, history) {
		m.t.Errorf("%s at %d: pages of %s list %d commits, %d of them different, want %d", r.name, sequence, from, count,
			len(listed), len(history))
	}
}

// holdFiles holds the files of a commit to those of the model.
func (m *historyModel) holdFiles(r *modelRepo, id object.ID) {
	m.t.Helper()
	if found := m.list(r.Repository, id); !maps.Equal(found, m.files[id]) {
		m.t.Errorf("%s: %s has %v, want %v", r.name, id, found, m.files[id])
	}
}

// finish lets the time of all states pass, and holds maintenance to leave nothing else.
func (m *historyModel) finish() {
	m.t.Helper()
	m.leaveBehind()
	m.now.Add(int64(100 * time.Hour / time.Millisecond))
	m.maintain(nil, nil)
	m.maintain(nil, nil)
	fsckClean(m.t, m.host)
	for _, r := range m.repos {
		last := len(r.states) - 1
		m.read(r, last, m.oneOf(r.states[last].refs, ""), "")
	}
	if m.did["removed"] == 0 {
		m.t.Error("maintenance has removed nothing")
	}
}

// leaveBehind makes a repository with a commit that only a state of the past reaches.
func (m *historyModel) leaveBehind() {
	m.t.Helper()
	enginetest.Create(m.t, m.host, "behind")
	r := m.add("behind", map[string]object.ID{})
	now := map[string]object.ID{}
	for _, target := range []engine.CommitTarget{main, {Branch: "gone", Base: "main"}} {
		result, err := upload(r.Repository, acme, target, change{path: target.Branch})
		must(m.t, err)
		now[headsPrefix+target.Branch] = result.New
		m.note(r, maps.Clone(now))
	}
	_, err := r.DeleteBranch(m.t.Context(), acme, refs.Main, "gone")
	must(m.t, err)
	delete(now, headsPrefix+"gone")
	m.note(r, now)
}
