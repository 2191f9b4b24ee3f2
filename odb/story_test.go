package odb_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestStory runs seeded lists of operations under many settings, with restarts and power failures
// between, against a plain map.
func TestStory(t *testing.T) {
	t.Parallel()
	settings := map[string]odb.Options{
		"default":         {},
		"no cache":        {CacheBytes: 1},
		"one open file":   {OpenFileCountMax: 1},
		"only segments":   {Limits: odb.Limits{HotValueBytes: 1}},
		"few hot objects": {Limits: odb.Limits{HotCount: 5}, OpenFileCountMax: 3},
		"small hot tier":  {CacheBytes: 1 << 20, Limits: odb.Limits{HotBytes: 4 << 10}},
	}
	for name, options := range settings {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				s := &story{world: newWorld(t, options), random: rand.New(rand.NewPCG(seed, 1))}
				for range 40 {
					s.step()
				}
				s.Reopen()
				s.CheckAll()
				s.checkHistory()
				s.fsck()
			})
		}
	}
}

// story is a repository with one branch whose files change.
type story struct {
	*world
	random *rand.Rand
	files  map[string]object.ID
	tree   object.ID
	tip    object.ID
	count  int // commits in the branch
}

func (s *story) step() {
	s.Helper()
	switch s.random.IntN(12) {
	case 0:
		s.Reopen()
	case 1:
		s.Crash(s.random)
	case 2:
		d := s.Draft()
		s.change(d)
		s.checkDraft(d)
		d.Discard()
	case 3:
		d := s.Draft()
		s.change(d)
		_ = d.Stage() // and then the client has gone
		d.Discard()
		s.checkGone(d)
	case 4:
		s.CheckAll()
	default:
		d := s.Draft()
		files, tree, tip := s.change(d)
		s.checkDraft(d)
		d.Commit()
		s.files, s.tree, s.tip = files, tree, tip
		s.count++
	}
}

// change writes a commit with some changed files.
func (s *story) change(d *odbtest.Draft) (files map[string]object.ID, tree, tip object.ID) {
	files = maps.Clone(s.files)
	if files == nil {
		files = make(map[string]object.ID)
	}
	for range 1 + s.random.IntN(6) {
		name := fmt.Sprintf("file%d", s.random.IntN(12))
		before := files[name]
		old, known := s.Objects[before]
		switch {
		case s.random.IntN(30) == 0:
			files[name] = d.WriteFrom(odbtest.Text(s.random, s.random.IntN(5<<18)))
		case s.random.IntN(15) == 0:
			files[name] = d.Write(object.TypeBlob, odbtest.Noise(s.random, s.random.IntN(140<<10)), before)
		case known && len(old.Data) > 0:
			files[name] = d.Write(object.TypeBlob, odbtest.Edited(s.random, old.Data), before)
		default:
			files[name] = d.Write(object.TypeBlob, odbtest.Text(s.random, s.random.IntN(20<<10)), object.ZeroID)
		}
	}
	var entries []object.TreeEntry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, odbtest.FileEntry(name, files[name]))
	}
	tree = d.Write(object.TypeTree, odbtest.TreeOf(entries...), s.tree)
	var parents []object.ID
	if !s.tip.IsZero() {
		parents = []object.ID{s.tip}
	}
	tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1_700_000_000+s.count, parents...), object.ZeroID)
	return files, tree, tip
}

// checkDraft reads the objects of a draft through its quarantine, and checks that nobody else sees
// them.
func (s *story) checkDraft(d *odbtest.Draft) {
	s.Helper()
	for id, want := range d.Objects {
		s.Check(d.Quarantine.View(), id, want)
	}
	s.checkGone(d)
}

func (s *story) checkGone(d *odbtest.Draft) {
	s.Helper()
	s.With(func(v *odb.View) {
		for id := range d.Objects {
			_, stored := s.Objects[id]
			if ok, err := v.Has(s.Context(), id); err != nil || ok != stored {
				s.Fatalf("Has(%s) = %v, %v, want %v", id, ok, err, stored)
			}
		}
	})
}

// checkHistory walks the branch by its graph rows.
func (s *story) checkHistory() {
	s.Helper()
	s.With(func(v *odb.View) {
		id := s.tip
		for n := s.count; n > 0; n-- {
			row, err := v.Graph(s.Context(), id)
			s.Must(err)
			want, err := object.ParseCommit(s.Objects[id].Data)
			s.Must(err)
			if row.Tree != want.Tree || !slices.Equal(row.Parents, want.Parents) || row.Generation != uint32(n) ||
				row.Seconds != want.Committer.Seconds {
				s.Fatalf("row of %s is %+v, the commit %+v, its number %d", id, row, want, n)
			}
			if n > 1 {
				id = row.Parents[0]
			}
		}
	})
}

func (s *story) fsck() {
	s.Helper()
	report, err := s.Store.Fsck(s.Context(), s.Pool, odb.FsckOptions{Tips: []object.ID{s.tip}})
	s.Must(err)
	if report.ProblemCount > 0 || report.ObjectCount < int64(len(s.Objects)) {
		s.Fatalf("%d objects of %d checked, problems: %v", report.ObjectCount, len(s.Objects), report.Problems)
	}
}
