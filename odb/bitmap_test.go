package odb_test

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

func TestLargePushGetsBitmaps(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 43, commitCount: 30})
	for count, want := range map[int]bool{1: true, 1 << 20: false} {
		h := newIngestHost(t, odb.Options{AuxiliaryCount: count, Limits: odb.Limits{HotCount: 1}})
		h.pushPack(g, lines("", g.tips()))
		n, err := packgen.BitmapCount(t.Context(), h.view())
		must(t, err)
		if n > 0 != want {
			t.Errorf("%d bitmaps after a push, with bitmaps from %d objects on", n, count)
		}
		h.fsck()
	}
}

func TestBitmapsStayValidBelowNewLayers(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 41, commitCount: 80})
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	commits := g.ids("", "rev-list", "--all", "--topo-order", "--reverse")
	middle := commits[len(commits)/2]
	build := func() {
		t.Helper()
		must(t, packgen.BuildBitmaps(t.Context(), h.store, h.pool, nil, nil))
	}
	count := func() int {
		t.Helper()
		n, err := packgen.BitmapCount(t.Context(), h.view())
		must(t, err)
		return n
	}
	build()
	if n := count(); n != 0 {
		t.Errorf("%d bitmaps of an empty pool", n)
	}
	h.pushPack(g, middle.String()+"\n")
	build()
	first := count()
	if first == 0 {
		t.Fatal("no bitmaps of a segment")
	}
	h.pushPack(g, lines("", g.tips())+"--not\n"+middle.String()+"\n")
	if n := count(); n != first {
		t.Errorf("%d bitmaps after another push, want %d", n, first)
	}
	v := h.view() // has the old ones pinned
	build()
	if n := count(); n <= first {
		t.Errorf("%d bitmaps of two segments, %d of the first", n, first)
	}
	h.fsck()
	for _, view := range []*odb.View{v, h.view()} {
		checkPack(t, g, view, packgen.Request{Wants: g.tips()[:1], OFSDelta: true})
		checkPack(t, g, view,
			packgen.Request{Wants: g.tips(), Haves: commits[len(commits)/3 : len(commits)/3+1], Thin: true, OFSDelta: true})
	}
}

// A pool that is compacted and swept while bitmaps of it begin to be made is sound.
func TestBitmapsOfSegmentsThatLeave(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 44, commitCount: 40})
	h := newIngestHost(t, odb.Options{})
	keys := &meddledKeys{Store: h.keys}
	// Which no view of a push has pinned anything in.
	store, err := odbtest.OpenOn(t.Context(), keys, h.files, odb.Options{})
	must(t, err)
	defer func() { must(t, store.Close(t.Context())) }()
	commits := g.ids("", "rev-list", "--all", "--topo-order", "--reverse")
	middle := commits[len(commits)/2]
	for _, revisions := range []string{middle.String() + "\n", lines("", g.tips()) + "--not\n" + middle.String() + "\n"} {
		h.pushSegment(g.Input([]byte(revisions), "pack-objects", "--revs", "--stdout", "-q"))
	}
	keys.meddle(isManifestOf(h.pool), func() {
		done, err := repack.Compact(t.Context(), store, h.pool, repack.CompactOptions{All: true})
		must(t, err)
		swept, err := store.Sweep(t.Context(), 0)
		must(t, err)
		if done.LayerCount < 2 || swept.FileCount < 2 {
			t.Errorf("nothing has left: %+v, %+v", done, swept)
		}
	})
	if err := packgen.BuildBitmaps(t.Context(), store, h.pool, nil, nil); err != nil {
		t.Errorf("BuildBitmaps: %v", err)
	}
	v, err := store.View(t.Context(), h.pool)
	must(t, err)
	defer v.Close()
	if n, err := packgen.BitmapCount(t.Context(), v); n == 0 || err != nil {
		t.Errorf("%d bitmaps, %v", n, err)
	}
	if n := store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads of a sound store are counted as corrupt", n)
	}
}
