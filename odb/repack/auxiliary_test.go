package repack_test

import (
	"bytes"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

// Building auxiliary files evicts nothing from the cache that requests use.
func TestAuxiliariesLeaveTheCacheAlone(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 44, CommitCount: 40})
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	h.PushGit(g, odbtest.Lines("", g.Tips()))
	odbtest.Must(t, packgen.BuildBitmaps(t.Context(), h.Store, h.ID, nil, nil))
	odbtest.Must(t, repack.BuildFilters(t.Context(), h.Store, h.ID))
	v := h.View()
	trees := g.IDs("", "log", "--all", "--format=%T")
	misses := func() int {
		before := h.Store.Stats().CacheMisses
		_, _, err := v.Read(t.Context(), trees[0])
		odbtest.Must(t, err)
		return int(h.Store.Stats().CacheMisses - before)
	}
	_, _, err := v.Read(t.Context(), trees[len(trees)-1]) // from here on the index is cached
	odbtest.Must(t, err)
	if first, second := misses(), misses(); first <= second {
		t.Errorf("%d misses for a tree that only auxiliary files were made of, %d for one that was read", first, second)
	}
}

func TestPathFiltersAreGits(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 61, CommitCount: 150})
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	h.PushGit(g, odbtest.Lines("", g.Tips()))
	odbtest.Must(t, repack.BuildFilters(t.Context(), h.Store, h.ID))
	v := h.View()
	checked := 0
	for id, want := range g.PathFilters() {
		got := odbtest.PathFilter(t, v, id)
		if !bytes.Equal(got, want) {
			t.Errorf("filter of %s is %x, want %x", id, got, want)
		}
		checked++
	}
	if checked == 0 {
		t.Error("git made no filters")
	}
}

// TestCompactMakesFilters compacts a pool of one segment, which stays and gets path filters.
func TestCompactMakesFilters(t *testing.T) {
	t.Parallel()
	g := odbtest.NewRepository(t)
	g.Seed(oracle.History{Seed: 7, Commits: 30})
	h := odbtest.NewPool(t, odb.Options{})
	h.PushSegment(odbtest.PackAll(g.Repository))
	done, err := repack.Compact(t.Context(), h.Store, h.ID, repack.CompactOptions{})
	if err != nil || done.LayerCount != 0 {
		t.Fatalf("Compact = %+v, %v, want nothing to merge", done, err)
	}
	v := h.View()
	for _, id := range g.Tips("refs/heads/main") {
		if odbtest.PathFilter(t, v, id) == nil {
			t.Errorf("commit %s has no path filter", id)
		}
	}
}
