package packgen_test

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
)

func TestLargePushGetsBitmaps(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 43, CommitCount: 30})
	for count, want := range map[int]bool{1: true, 1 << 20: false} {
		h := odbtest.NewPool(t, odb.Options{AuxiliaryCount: count, Limits: odb.Limits{HotCount: 1}})
		h.PushGit(g, odbtest.Lines("", g.Tips()))
		n, err := packgen.BitmapCount(t.Context(), h.View())
		odbtest.Must(t, err)
		if n > 0 != want {
			t.Errorf("%d bitmaps after a push, with bitmaps from %d objects on", n, count)
		}
		h.Fsck()
	}
}

func TestBitmapsStayValidBelowNewLayers(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 41, CommitCount: 80})
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	commits := g.IDs("", "rev-list", "--all", "--topo-order", "--reverse")
	middle := commits[len(commits)/2]
	build := func() {
		t.Helper()
		odbtest.Must(t, packgen.BuildBitmaps(t.Context(), h.Store, h.ID, nil, nil))
	}
	count := func() int {
		t.Helper()
		n, err := packgen.BitmapCount(t.Context(), h.View())
		odbtest.Must(t, err)
		return n
	}
	build()
	if n := count(); n != 0 {
		t.Errorf("%d bitmaps of an empty pool", n)
	}
	h.PushGit(g, middle.String()+"\n")
	build()
	first := count()
	if first == 0 {
		t.Fatal("no bitmaps of a segment")
	}
	h.PushGit(g, odbtest.Lines("", g.Tips())+"--not\n"+middle.String()+"\n")
	if n := count(); n != first {
		t.Errorf("%d bitmaps after another push, want %d", n, first)
	}
	v := h.View() // has the old ones pinned
	build()
	if n := count(); n <= first {
		t.Errorf("%d bitmaps of two segments, %d of the first", n, first)
	}
	h.Fsck()
	for _, view := range []*odb.View{v, h.View()} {
		odbtest.CheckPack(t, g, view, packgen.Request{Wants: g.Tips()[:1], OFSDelta: true})
		odbtest.CheckPack(t, g, view,
			packgen.Request{Wants: g.Tips(), Haves: commits[len(commits)/3 : len(commits)/3+1], Thin: true, OFSDelta: true})
	}
}

// A pool that is compacted and swept while bitmaps of it begin to be made is sound.
func TestBitmapsOfSegmentsThatLeave(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 44, CommitCount: 40})
	h := odbtest.NewPool(t, odb.Options{})
	keys := &odbtest.MeddledKeys{Store: h.Keys}
	// Which no view of a push has pinned anything in.
	store, err := odbtest.OpenOn(t.Context(), keys, h.Files, odb.Options{})
	odbtest.Must(t, err)
	defer func() { odbtest.Must(t, store.Close(t.Context())) }()
	commits := g.IDs("", "rev-list", "--all", "--topo-order", "--reverse")
	middle := commits[len(commits)/2]
	first, rest := middle.String()+"\n", odbtest.Lines("", g.Tips())+"--not\n"+middle.String()+"\n"
	for _, revisions := range []string{first, rest} {
		h.PushSegment(g.Input([]byte(revisions), "pack-objects", "--revs", "--stdout", "-q"))
	}
	keys.AfterManifest(h.ID, func() {
		other := *h
		other.Store = store
		done := other.CompactAll(false)
		swept, err := store.Sweep(t.Context(), 0)
		odbtest.Must(t, err)
		if done.LayerCount < 2 || swept.FileCount < 2 {
			t.Errorf("nothing has left: %+v, %+v", done, swept)
		}
	})
	if err := packgen.BuildBitmaps(t.Context(), store, h.ID, nil, nil); err != nil {
		t.Errorf("BuildBitmaps: %v", err)
	}
	v, err := store.View(t.Context(), h.ID)
	odbtest.Must(t, err)
	defer v.Close()
	if n, err := packgen.BitmapCount(t.Context(), v); n == 0 || err != nil {
		t.Errorf("%d bitmaps, %v", n, err)
	}
	if n := store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads of a sound store are counted as corrupt", n)
	}
}
