package odb_test

import (
	"testing"

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
