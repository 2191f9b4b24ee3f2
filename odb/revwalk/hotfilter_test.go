package revwalk_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// TestHotFilters writes a history to the hot tier, by small pushes or object by object: every
// commit has the path filter that git makes, and answers are the same with the filters, with
// damaged ones, and without.
func TestHotFilters(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(h *odbtest.Pool, g *odbtest.Repository){
		"pushed": func(h *odbtest.Pool, g *odbtest.Repository) {
			commits := g.IDs("", "rev-list", "--all", "--topo-order", "--reverse")
			last := ""
			for at := 0; at < len(commits); at += 15 {
				piece := commits[at:min(at+15, len(commits))]
				h.PushGit(g, odbtest.Lines("", piece)+last)
				last = "--not\n" + odbtest.Lines("", commits[:at+len(piece)])
			}
		},
		"written": func(h *odbtest.Pool, g *odbtest.Repository) { h.Write(g, g.All()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 81, CommitCount: 60, Skew: 3000})
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 100_000, HotBytes: 8 << 20}})
			write(h, g)
			h.Fsck()
			for id, want := range g.PathFilters() {
				got := odbtest.PathFilter(t, h.View(), id)
				if !bytes.Equal(got, want) {
					t.Errorf("filter of %s is %x, want %x", id, got, want)
				}
			}
			compareHotWalks(t, g, h)
			filters := filterKeys(h)
			if len(filters) != len(g.Commits()) {
				t.Errorf("%d filters of %d commits", len(filters), len(g.Commits()))
			}
			for _, change := range []func(b *kv.Batch, pair kv.Pair){
				func(b *kv.Batch, pair kv.Pair) { b.Put(pair.Key, append([]byte{^pair.Value[0]}, pair.Value[1:]...)) },
				func(b *kv.Batch, pair kv.Pair) { b.Put(pair.Key, nil) },
				func(b *kv.Batch, pair kv.Pair) { b.Delete(pair.Key) },
			} {
				b := kv.NewBatch()
				for _, pair := range filters {
					change(b, pair)
				}
				_, err := h.Keys.Apply(t.Context(), b)
				odbtest.Must(t, err)
				compareHotWalks(t, g, h)
			}
			h.Fsck() // missing filters are no problem
		})
	}
}

// filterKeys returns the path filters of the hot tier.
func filterKeys(h *odbtest.Pool) []kv.Pair {
	h.Helper()
	var pairs []kv.Pair
	for pair, err := range h.Keys.Scan(h.Context(), kv.ScanOptions{Start: []byte{'f'}, End: []byte{'f' + 1}}) {
		h.Must(err)
		pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	return pairs
}

// compareHotWalks compares walks and traces with those of git.
func compareHotWalks(t *testing.T, g *odbtest.Repository, h *odbtest.Pool) {
	t.Helper()
	v := h.View()
	commits := g.Commits()
	r := rand.New(rand.NewPCG(81, 3))
	given := 0
	for range 12 {
		tips := odbtest.Pick(r, commits, 1+r.IntN(2))
		path := "not there/at all"
		if paths := paths(t, g, tips[0]); len(paths) > 0 && r.IntN(10) > 0 {
			path = paths[r.IntN(len(paths))]
		}
		given += comparePath(t, g, v, tips, path)
	}
	if given == 0 {
		t.Error("no path was ever changed")
	}
	compareTrace(t, v, traceOf(t, g, r, commits[0], 8), revwalk.TraceOptions{})
}

// TestHotFiltersSaveReads walks a long history of the hot tier along a file that one commit of it
// changed, and opens next to no trees.
func TestHotFiltersSaveReads(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	var tip object.ID
	const count = 100
	var trees object.ID
	for i := range count {
		d := w.Draft()
		rare := d.Write(object.TypeBlob, []byte("rare"), object.ZeroID)
		often := d.Write(object.TypeBlob, odbtest.CommitOf(object.EmptyTreeID, i), object.ZeroID)
		inner := d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("often", often)), object.ZeroID)
		folder := object.TreeEntry{Mode: object.ModeTree, Name: "a", ID: inner}
		trees = d.Write(object.TypeTree, odbtest.TreeOf(folder, odbtest.FileEntry("rare", rare)), trees)
		parents := []object.ID{tip}
		if i == 0 {
			parents = nil
		}
		tip = d.Write(object.TypeCommit, odbtest.CommitOf(trees, i, parents...), object.ZeroID)
		d.Commit()
	}
	w.Options.CacheBytes = 1 // every read is a miss
	w.Reopen()
	w.With(func(v *odb.View) {
		before := w.Store.Stats().CacheMisses
		if got := collectPath(t, v, []object.ID{tip}, "rare"); len(got) != 1 {
			t.Errorf("%d commits", len(got))
		}
		if misses := w.Store.Stats().CacheMisses - before; misses > count/4 {
			t.Errorf("%d reads for a path that one commit of %d changed", misses, count)
		}
	})
}
