package odb_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// TestHotFilters writes a history to the hot tier, by small pushes or object by object: every
// commit has the path filter that git makes, and answers are the same with the filters, with
// damaged ones, and without.
func TestHotFilters(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(h *ingestHost, g *repository){
		"pushed": func(h *ingestHost, g *repository) {
			commits := g.ids("", "rev-list", "--all", "--topo-order", "--reverse")
			last := ""
			for at := 0; at < len(commits); at += 15 {
				piece := commits[at:min(at+15, len(commits))]
				h.pushPack(g, lines("", piece)+last)
				last = "--not\n" + lines("", commits[:at+len(piece)])
			}
		},
		"written": func(h *ingestHost, g *repository) { h.write(g, g.all()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newHistory(t, historyOptions{seed: 81, commitCount: 60, skew: 3000})
			h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 100_000, HotBytes: 8 << 20}})
			write(h, g)
			h.fsck()
			for id, want := range g.gitFilters() {
				got, err := odb.PathFilter(t.Context(), h.view(), id)
				must(t, err)
				if !bytes.Equal(got, want) {
					t.Errorf("filter of %s is %x, want %x", id, got, want)
				}
			}
			compareHotWalks(t, g, h)
			filters := h.filterKeys()
			if len(filters) != len(g.commits()) {
				t.Errorf("%d filters of %d commits", len(filters), len(g.commits()))
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
				_, err := h.keys.Apply(t.Context(), b)
				must(t, err)
				compareHotWalks(t, g, h)
			}
			h.fsck() // no filters are no problem
		})
	}
}

// bloom.Keys returns the path filters of the hot tier.
func (h *ingestHost) filterKeys() []kv.Pair {
	h.tb.Helper()
	var pairs []kv.Pair
	for pair, err := range h.keys.Scan(h.tb.Context(), kv.ScanOptions{Start: []byte{'f'}, End: []byte{'f' + 1}}) {
		h.must(err)
		pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	return pairs
}

// compareHotWalks holds walks and traces against what git says.
func compareHotWalks(t *testing.T, g *repository, h *ingestHost) {
	t.Helper()
	v := h.view()
	commits := g.commits()
	r := rand.New(rand.NewPCG(81, 3))
	given := 0
	for range 12 {
		tips := pick(r, commits, 1+r.IntN(2))
		path := "not there/at all"
		if paths := g.paths(tips[0]); len(paths) > 0 && r.IntN(10) > 0 {
			path = paths[r.IntN(len(paths))]
		}
		given += comparePath(t, g, v, tips, path)
	}
	if given == 0 {
		t.Error("no path was ever changed")
	}
	compareTrace(t, v, g.traceOf(r, commits[0], 8), revwalk.TraceOptions{})
}

// TestHotFiltersSaveReads walks a long history of the hot tier along a file that one commit of it
// changed, and opens next to no trees.
func TestHotFiltersSaveReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	var tip object.ID
	const count = 100
	var trees object.ID
	for i := range count {
		d := w.draft()
		rare := d.write(object.TypeBlob, []byte("rare"), object.ZeroID)
		often := d.write(object.TypeBlob, commitOf(object.EmptyTreeID, i), object.ZeroID)
		inner := d.write(object.TypeTree, treeOf(fileEntry("often", often)), object.ZeroID)
		trees = d.write(object.TypeTree,
			treeOf(object.TreeEntry{Mode: object.ModeTree, Name: "a", ID: inner}, fileEntry("rare", rare)), trees)
		parents := []object.ID{tip}
		if i == 0 {
			parents = nil
		}
		tip = d.write(object.TypeCommit, commitOf(trees, i, parents...), object.ZeroID)
		d.commit()
	}
	w.options.CacheBytes = 1 // what is read is a miss
	w.reopen()
	w.with(func(v *odb.View) {
		before := w.store.Stats().CacheMisses
		if got := collectPath(t, v, []object.ID{tip}, "rare"); len(got) != 1 {
			t.Errorf("%d commits", len(got))
		}
		if misses := w.store.Stats().CacheMisses - before; misses > count/4 {
			t.Errorf("%d reads for a path that one commit of %d changed", misses, count)
		}
	})
}
