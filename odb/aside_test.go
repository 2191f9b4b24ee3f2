package odb_test

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

// What auxiliary files are made of does not push what requests read out of the cache.
func TestAuxiliariesLeaveTheCacheAlone(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 44, commitCount: 40})
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	h.pushPack(g, lines("", g.tips()))
	must(t, packgen.BuildBitmaps(t.Context(), h.store, h.pool, nil, nil))
	must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
	v := h.view()
	trees := g.ids("", "log", "--all", "--format=%T")
	misses := func() int {
		before := h.store.Stats().CacheMisses
		_, _, err := v.Read(t.Context(), trees[0])
		must(t, err)
		return int(h.store.Stats().CacheMisses - before)
	}
	_, _, err := v.Read(t.Context(), trees[len(trees)-1]) // the index is cached from here on
	must(t, err)
	if first, second := misses(), misses(); first <= second {
		t.Errorf("%d misses for a tree that only auxiliary files were made of, %d for one that was read", first, second)
	}
}
