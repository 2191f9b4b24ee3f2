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

	links map[object.ID][]object.ID
	types map[object.ID]object.Type
	all   []object.ID                        // the keys of links, the oldest first
	files map[object.ID]map[string]object.ID // blobs by path, by commit
}

// oneFork is a fork with its refs at first and the commit that was made in it.
type oneFork struct {
	name     string
	branches map[string]object.ID
	known    int // the number of objects that were known then
	own      object.ID
}

// tips returns the tips of the refs at first, in the order of their names.
func (f *oneFork) tips() []object.ID {
	var tips []object.ID
	for _, name := range slices.Sorted(maps.Keys(f.branches)) {
		tips = append(tips, f.branches[name])
	}
	return tips
}

const (
	// changesMax bounds the changes of the base: more forks than that are made several at a time.
	changesMax = 500
	// askedAll is the number of objects up to which a fork is asked for all that there are.
	askedAll = 1000
)

// TestManyForks makes forks of a base between commits, force-moves and deletions of its branches,
// and maintenance. Each is at once listed, cloned, committed to and asked for objects by ID: it has
// what its first refs reach and its own, and nothing else. A sample is asked again when all have
// been made. PACKHORSE_FORKS is their number.
//
// The number of changes of the base is bounded: a clone of a fork reads all that the base reaches,
// and the maintenance and the check of a fork read all that it has borrowed.
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
	exact, round := max(1, count/100), max(8, count/8) // git looks at every so many clones
	together := max(1, count/changesMax)
	for i := range count {
		if i%together == 0 {
			m.changeBase()
		}
		m.fork(i%exact == 0)
		if t.Failed() {
			return
		}
		switch {
		case i%round == 3:
			m.maintain(i/round%2 == 1)
		case i%(32*together) == 31:
			m.maintainBase()
		}
	}
	m.maintain(true)
	m.shut()
	m.open()
	for range min(count, 100) {
		m.askAgain(&m.forks[m.random.IntN(count)])
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

// maintainBase is maintain of the base alone, which is the oldest repository and comes first. A
// server does so in the background after many writes: until then a fork takes all small layers.
func (m *manyForks) maintainBase() {
	m.t.Helper()
	options := engine.MaintainOptions{Grace: -1, ReaderGrace: -1}
	for done, err := range m.host.Maintain(m.t.Context(), options) {
		must(m.t, errors.Join(err, done.Err))
		if done.Name != "base" {
			m.t.Fatalf("%s is maintained before the base", done.Name)
		}
		break
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

// reached are the objects that commits reach.
type reached struct {
	ids []object.ID
	has map[object.ID]bool
}

func (m *manyForks) reach(tips ...object.ID) reached {
	r := reached{has: map[object.ID]bool{}}
	for ids := slices.Clone(tips); len(ids) > 0; {
		last := len(ids) - 1
		id := ids[last]
		ids = ids[:last]
		if !r.has[id] {
			r.has[id] = true
			r.ids = append(r.ids, id)
			ids = append(ids, m.links[id]...)
		}
	}
	return r
}

// fork makes a fork and asks everything of it.
func (m *manyForks) fork(exact bool) {
	m.t.Helper()
	f := oneFork{name: fmt.Sprint("fork-", len(m.forks)), branches: maps.Clone(m.branches), known: len(m.all)}
	_, err := m.host.CreateRepository(m.t.Context(), acme,
		engine.CreateRequest{Name: f.name, Base: &engine.Base{Name: "base"}})
	must(m.t, err)
	m.holdRefs(f.name, f.branches)
	m.holdFiles(f.name, f.branches["main"])
	m.holdClone(f.name, exact, m.reach(f.tips()...), f.tips())
	if m.random.IntN(2) == 0 { // before and after its own commit
		m.holdObjects(&f, m.reach(f.tips()...))
	}
	f.own = m.commit(m.repository(f.name), main, f.branches["main"])
	m.holdFiles(f.name, f.own)
	m.holdObjects(&f, m.reach(append(f.tips(), f.own)...))
	m.forks = append(m.forks, f)
	if len(m.forks)%5 == 0 { // another fork, while the base goes on
		m.askAgain(&m.forks[m.random.IntN(len(m.forks))])
	}
}

// askAgain asks an older fork.
func (m *manyForks) askAgain(f *oneFork) {
	m.t.Helper()
	m.holdFiles(f.name, f.own)
	m.holdObjects(f, m.reach(append(f.tips(), f.own)...))
	now := oneFork{branches: maps.Clone(f.branches)}
	now.branches["main"] = f.own
	m.holdRefs(f.name, now.branches)
	m.holdClone(f.name, false, m.reach(now.tips()...), now.tips())
}

func (m *manyForks) holdRefs(name string, branches map[string]object.ID) {
	m.t.Helper()
	page, err := m.repository(name).Branches(m.t.Context(), refs.Main, "", 100)
	must(m.t, err)
	found := map[string]object.ID{}
	for _, branch := range page.Items {
		found[branch.Name] = branch.Tip
	}
	if !maps.Equal(found, branches) {
		m.t.Errorf("%s has branches %v, want %v", name, found, branches)
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
func (m *manyForks) holdClone(name string, exact bool, want reached, tips []object.ID) {
	m.t.Helper()
	slices.SortFunc(tips, object.ID.Compare)
	packed, err := clone(m.repository(name), engine.FetchRequest{Wants: slices.Compact(tips)}, engine.SendOptions{})
	must(m.t, err)
	if n := binary.BigEndian.Uint32(packed[8:]); int(n) != len(want.ids) {
		m.t.Errorf("%s: a clone has %d objects, want %d", name, n, len(want.ids))
	}
	if !exact {
		return
	}
	git := oracle.New(m.t)
	git.Input(packed, "index-pack", "--strict", "--stdin")
	for _, line := range git.Objects() {
		if id := mustID(m.t, line[:object.HexSize]); !want.has[id] {
			m.t.Errorf("%s: a clone has %s, a %s", name, id, m.types[id])
		}
	}
}

// asked returns the objects to ask a fork for. Of many objects, these are the ones that were made
// last, the newest first, those that were made first after the fork, and a sample each of what it
// may read and may not.
func (m *manyForks) asked(f *oneFork, may reached) []object.ID {
	if len(m.all) <= askedAll {
		return m.all
	}
	ids := slices.Clone(m.all[len(m.all)-60:])
	slices.Reverse(ids)
	ids = append(ids, m.all[f.known:min(f.known+40, len(m.all))]...)
	for range 50 {
		ids = append(ids, may.ids[m.random.IntN(len(may.ids))])
	}
	for others := 0; others < 50 && len(may.ids) < len(m.all); {
		if id := m.all[m.random.IntN(len(m.all))]; !may.has[id] {
			ids = append(ids, id)
			others++
		}
	}
	return ids
}

// holdObjects asks for objects by ID: a fork has those that it may read, and no others.
func (m *manyForks) holdObjects(f *oneFork, may reached) {
	m.t.Helper()
	repo := m.repository(f.name)
	view, err := repo.Objects(m.t.Context())
	must(m.t, err)
	defer view.Close()
	for _, id := range m.asked(f, may) {
		kind, _, err := view.Read(m.t.Context(), id)
		if may.has[id] && (err != nil || kind != m.types[id]) || !may.has[id] && !errors.Is(err, odb.ErrNotFound) {
			m.t.Errorf("%s: read %s, a %s that it may read: %t: %v", f.name, id, m.types[id], may.has[id], err)
		}
		if m.types[id] != object.TypeCommit {
			continue
		}
		_, err = repo.Commit(m.t.Context(), named(id))
		m.holdFound(f.name, id, may.has[id], err)
		fetch, err := repo.Fetch(m.t.Context(), engine.FetchRequest{Wants: []object.ID{id}})
		m.holdFound(f.name, id, may.has[id], err)
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
