package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// manyForks is a base and its forks, and what is known of their objects.
type manyForks struct {
	t      *testing.T
	random *rand.Rand
	fs     vfs.FS
	host   *engine.Host
	shut   func()

	base     *engine.Repository
	branches map[string]object.ID // of the base
	forks    []oneFork
	serial   int

	links  map[object.ID][]object.ID
	types  map[object.ID]object.Type
	all    []object.ID                        // the keys of links
	files  map[object.ID]map[string]object.ID // blobs by path, by commit
	latest []object.ID                        // commits that were made last, anywhere
}

// oneFork is a fork with its refs at first and the commit that was made in it.
type oneFork struct {
	name     string
	branches map[string]object.ID
	own      object.ID
}

// TestManyForks makes forks of a base between commits, force-moves and deletions of its branches,
// and maintenance. Each is at once listed, cloned, committed to and asked for objects by ID: it has
// what its first refs reach and its own, and nothing else. A sample is asked again when all have
// been made. PACKHORSE_FORKS is their number.
func TestManyForks(t *testing.T) {
	t.Parallel()
	count := oracle.ForkCount(t, 40, 12)
	m := &manyForks{
		t: t, random: rand.New(rand.NewPCG(1, 9)), fs: vfs.NewMem(), branches: map[string]object.ID{},
		links: map[object.ID][]object.ID{}, types: map[object.ID]object.Type{},
		files: map[object.ID]map[string]object.ID{},
	}
	m.open()
	t.Cleanup(func() { m.shut() })
	m.base = enginetest.Create(t, m.host, "base")
	for range 8 {
		m.commitTo("main")
	}
	exact := max(1, count/100) // git looks at every so many clones
	for i := range count {
		m.changeBase()
		m.fork(i%exact == 0)
		if t.Failed() {
			return
		}
		if i%max(8, count/8) == 3 {
			m.maintain(i%2 == 0)
		}
	}
	m.maintain(true)
	m.shut()
	m.open()
	for range min(count, 100) {
		m.askAgain(m.forks[m.random.IntN(count)])
	}
	checkSound(t.Context(), t, m.host)
}

func (m *manyForks) open() {
	m.host, m.shut = enginetest.OpenOn(m.t, m.fs,
		engine.Config{Objects: odb.Options{Limits: odb.Limits{HotCount: 12}, AuxiliaryCount: 30}})
	if m.base != nil {
		m.base = m.repository("base")
	}
}

func (m *manyForks) repository(name string) *engine.Repository {
	m.t.Helper()
	repo, err := m.host.Repository(m.t.Context(), enginetest.Org, name)
	must(m.t, err)
	return repo
}

// maintain removes what nobody needs, and merges what has changed or all.
func (m *manyForks) maintain(all bool) {
	m.t.Helper()
	options := engine.MaintainOptions{All: all, Grace: -1, ReaderGrace: -1}
	for done, err := range m.host.Maintain(m.t.Context(), options) {
		must(m.t, errors.Join(err, done.Err))
	}
}

// changeBase commits to the base, and now and then moves a branch back or deletes one.
func (m *manyForks) changeBase() {
	m.t.Helper()
	switch name := fmt.Sprint("side", m.random.IntN(3)); m.random.IntN(6) {
	case 0:
		if m.branches[name] != (object.ID{}) {
			_, err := m.base.DeleteBranch(m.t.Context(), acme, refs.Main, name)
			must(m.t, err)
			delete(m.branches, name)
			return
		}
		m.commitTo(name)
	case 1:
		m.moveBack("main")
	case 2, 3:
		m.commitTo(name)
	default:
		m.commitTo("main")
	}
}

func (m *manyForks) moveBack(branch string) {
	m.t.Helper()
	tip := m.branches[branch]
	for _, parent := range m.links[tip] {
		if m.types[parent] == object.TypeCommit {
			push, err := m.base.Receive(m.t.Context(), acme, engine.PushRequest{
				Commands: []engine.Command{{Name: "refs/heads/" + branch, Old: tip, New: parent}},
				Pack:     bytes.NewReader(emptyPack),
			})
			must(m.t, err)
			defer push.Close()
			done, err := push.Finish(m.t.Context(), nil)
			must(m.t, errors.Join(err, done.Commands[0].Err))
			m.branches[branch] = parent
		}
	}
}

func (m *manyForks) commitTo(branch string) {
	m.t.Helper()
	from, target := m.branches[branch], engine.CommitTarget{Branch: branch}
	if from == (object.ID{}) && len(m.branches) > 0 {
		from, target.Base = m.branches["main"], "main"
	}
	m.branches[branch] = m.commit(m.base, target, from)
}

// commit commits two files, and learns the new objects.
func (m *manyForks) commit(repo *engine.Repository, target engine.CommitTarget, from object.ID) object.ID {
	m.t.Helper()
	m.serial++
	changes := []change{
		{path: fmt.Sprint("dir/f", m.random.IntN(9)), content: strings.Repeat(fmt.Sprintln("text", m.serial), 20)},
		{path: fmt.Sprint("f", m.random.IntN(9)), content: fmt.Sprintln(m.serial)},
	}
	result, err := upload(repo, acme, target, changes...)
	must(m.t, err)
	m.files[result.New] = maps.Clone(m.files[from])
	if m.files[result.New] == nil {
		m.files[result.New] = map[string]object.ID{}
	}
	for _, c := range changes {
		id, err := object.Hash(object.TypeBlob, []byte(c.content))
		must(m.t, err)
		m.files[result.New][c.path] = id
	}
	m.learn(repo, result.New)
	if m.latest = append(m.latest, result.New); len(m.latest) > 20 {
		m.latest = m.latest[1:]
	}
	return result.New
}

// learn reads the links of objects that are not known yet. Their contents are what their IDs say.
func (m *manyForks) learn(repo *engine.Repository, tip object.ID) {
	m.t.Helper()
	view, err := repo.Objects(m.t.Context())
	must(m.t, err)
	defer view.Close()
	for ids := []object.ID{tip}; len(ids) > 0; {
		id := ids[0]
		ids = ids[1:]
		if _, known := m.links[id]; known {
			continue
		}
		kind, data, err := view.Linked().Read(m.t.Context(), id)
		must(m.t, err)
		if got, err := object.Hash(kind, data); err != nil || got != id {
			m.t.Fatalf("object %s has the ID %s, %v", id, got, err)
		}
		m.links[id], m.types[id] = nil, kind
		m.all = append(m.all, id)
		must(m.t, object.Links(kind, data, func(to object.ID, _ object.Type) error {
			m.links[id] = append(m.links[id], to)
			ids = append(ids, to)
			return nil
		}))
	}
}

// reach returns the objects that commits reach.
func (m *manyForks) reach(tips ...object.ID) map[object.ID]bool {
	reached := map[object.ID]bool{}
	for ids := slices.Clone(tips); len(ids) > 0; {
		last := len(ids) - 1
		id := ids[last]
		ids = ids[:last]
		if !reached[id] {
			reached[id] = true
			ids = append(ids, m.links[id]...)
		}
	}
	return reached
}

// fork makes a fork and asks everything of it.
func (m *manyForks) fork(exact bool) {
	m.t.Helper()
	f := oneFork{name: fmt.Sprint("fork-", len(m.forks)), branches: maps.Clone(m.branches)}
	_, err := m.host.CreateRepository(m.t.Context(), acme,
		engine.CreateRequest{Name: f.name, Base: &engine.Base{Name: "base"}})
	must(m.t, err)
	m.holdRefs(f)
	m.holdFiles(f.name, f.branches["main"])
	tips := slices.Collect(maps.Values(f.branches))
	m.holdClone(f.name, exact, tips...)
	if m.random.IntN(2) == 0 { // before and after its own commit
		m.holdObjects(f.name, m.reach(tips...))
	}
	f.own = m.commit(m.repository(f.name), main, f.branches["main"])
	m.holdFiles(f.name, f.own)
	m.holdObjects(f.name, m.reach(append(tips, f.own)...))
	m.forks = append(m.forks, f)
	if len(m.forks)%5 == 0 { // another fork, while the base goes on
		m.askAgain(m.forks[m.random.IntN(len(m.forks))])
	}
}

// askAgain asks an older fork.
func (m *manyForks) askAgain(f oneFork) {
	m.t.Helper()
	tips := append(slices.Collect(maps.Values(f.branches)), f.own)
	m.holdFiles(f.name, f.own)
	m.holdObjects(f.name, m.reach(tips...))
	f.branches = maps.Clone(f.branches)
	f.branches["main"] = f.own
	m.holdRefs(f)
	m.holdClone(f.name, false, slices.Collect(maps.Values(f.branches))...)
}

func (m *manyForks) holdRefs(f oneFork) {
	m.t.Helper()
	page, err := m.repository(f.name).Branches(m.t.Context(), refs.Main, "", 100)
	must(m.t, err)
	found := map[string]object.ID{}
	for _, branch := range page.Items {
		found[branch.Name] = branch.Tip
	}
	if !maps.Equal(found, f.branches) {
		m.t.Errorf("%s has branches %v, want %v", f.name, found, f.branches)
	}
}

func (m *manyForks) holdFiles(name string, commit object.ID) {
	m.t.Helper()
	listing, err := m.repository(name).Files(m.t.Context(), engine.FilesRequest{})
	must(m.t, err)
	defer listing.Close()
	found := map[string]object.ID{}
	for file, err := range listing.All(m.t.Context()) {
		must(m.t, err)
		if !file.Mode.IsTree() {
			found[file.Path] = file.ID
		}
	}
	if !maps.Equal(found, m.files[commit]) {
		m.t.Errorf("%s lists %v, want %v", name, found, m.files[commit])
	}
}

// holdClone wants all objects that tips reach, and no others: by number, and exactly by git.
func (m *manyForks) holdClone(name string, exact bool, tips ...object.ID) {
	m.t.Helper()
	slices.SortFunc(tips, object.ID.Compare)
	packed, err := clone(m.repository(name), engine.FetchRequest{Wants: slices.Compact(tips)}, engine.SendOptions{})
	must(m.t, err)
	want := m.reach(tips...)
	if n := binary.BigEndian.Uint32(packed[8:]); int(n) != len(want) {
		m.t.Errorf("%s: a clone has %d objects, want %d", name, n, len(want))
	}
	if !exact {
		return
	}
	git := oracle.New(m.t)
	git.Input(packed, "index-pack", "--strict", "--stdin")
	for _, line := range git.Objects() {
		if id := mustID(m.t, line[:object.HexSize]); !want[id] {
			m.t.Errorf("%s: a clone has %s, a %s", name, id, m.types[id])
		}
	}
}

// holdObjects asks for objects by ID: those that may be read, those that were written last, and any
// others.
func (m *manyForks) holdObjects(name string, may map[object.ID]bool) {
	m.t.Helper()
	repo := m.repository(name)
	view, err := repo.Objects(m.t.Context())
	must(m.t, err)
	defer view.Close()
	asked := slices.Clone(m.latest)
	for range 20 {
		asked = append(asked, m.all[m.random.IntN(len(m.all))])
	}
	for _, commit := range m.latest[max(0, len(m.latest)-4):] {
		for id := range m.reach(commit) {
			if asked = append(asked, id); len(asked) > 80 {
				break
			}
		}
	}
	for id := range may {
		if asked = append(asked, id); len(asked) > 100 {
			break
		}
	}
	for _, id := range asked {
		kind, _, err := view.Read(m.t.Context(), id)
		if may[id] && (err != nil || kind != m.types[id]) || !may[id] && !errors.Is(err, odb.ErrNotFound) {
			m.t.Errorf("%s: read %s, a %s that it may read: %t: %v", name, id, m.types[id], may[id], err)
		}
		if m.types[id] != object.TypeCommit {
			continue
		}
		_, err = repo.Commit(m.t.Context(), named(id))
		m.holdFound(name, id, may[id], err)
		fetch, err := repo.Fetch(m.t.Context(), engine.FetchRequest{Wants: []object.ID{id}})
		m.holdFound(name, id, may[id], err)
		if err == nil {
			fetch.Close()
		}
	}
}

func (m *manyForks) holdFound(name string, commit object.ID, may bool, err error) {
	m.t.Helper()
	if may && err != nil || !may && !errors.Is(err, engine.ErrNotFound) {
		m.t.Errorf("%s: commit %s that it may read: %t: %v", name, commit, may, err)
	}
}
