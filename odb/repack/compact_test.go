package repack_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

func TestCompactFlushesAndMerges(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(3, 4))
	var tip object.ID
	for round := range 6 {
		tip = w.Grow(random, tip, 20+round)
		done := w.Compact(repack.CompactOptions{})
		if done.ObjectCount == 0 {
			t.Errorf("round %d: nothing was due", round)
		}
		w.Sound(tip)
	}
	if done := w.Compact(repack.CompactOptions{}); done != (repack.Compacted{}) {
		t.Errorf("nothing has changed, and yet %+v", done)
	}
	w.With(func(v *odb.View) {
		if segments, summaries := odbtest.SummaryCount(t, v); segments > 3 || summaries != segments {
			t.Errorf("%d segments, %d summaries", segments, summaries)
		}
	})
	w.Compact(repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Workers: 2}})
	w.Reopen()
	w.Sound(tip)
	if n := w.FileCount(); n != 3 { // a segment, its graph rows and its path filters
		t.Errorf("%d files", n)
	}
	w.With(func(v *odb.View) {
		deltas := 0
		for id := range w.Objects {
			e, err := v.Entry(t.Context(), id)
			w.Must(err)
			if e.Delta() {
				deltas++
			}
		}
		if deltas < len(w.Objects)/3 { // commits and the smallest trees hardly ever gain
			t.Errorf("%d of %d objects are deltas", deltas, len(w.Objects))
		}
	})
}

// TestCompactSearchesAgain flushes and merges many versions of few files. Delta chains stay short,
// and the stored bytes come close to those of a search among all objects.
func TestCompactSearchesAgain(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	g := odbtest.NewGrowing(w, rand.New(rand.NewPCG(8, 9)), 2)
	stored := func() (size int64) {
		t.Helper()
		w.With(func(v *odb.View) {
			for id := range w.Objects {
				depth := odbtest.Depth(t, v, id)
				if depth > 50 {
					t.Fatalf("%s is %d deltas deep", id, depth)
				}
				e, err := v.Entry(t.Context(), id)
				w.Must(err)
				size += e.PayloadSize
			}
		})
		return size
	}
	for range 7 {
		g.Grow(25)
		w.Compact(repack.CompactOptions{})
		stored()
	}
	again := repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Workers: 2}}
	w.Compact(again)
	settled := stored()
	if done := w.Compact(again); done != (repack.Compacted{}) {
		t.Errorf("everything has been searched, and yet %+v", done)
	}
	again.Anew = true
	if done := w.Compact(again); done.ObjectCount != len(w.Objects) {
		t.Errorf("%d of %d objects were rewritten anew", done.ObjectCount, len(w.Objects))
	}
	if best := stored(); settled > best*6/5 {
		t.Errorf("%d bytes after merges, %d with every delta searched anew", settled, best)
	}
	w.Sound(g.Tip)
}

// TestCompactSettles flushes hot layers bit by bit. Compaction with Settle then searches all deltas
// again, although no merge is due.
func TestCompactSettles(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	g := odbtest.NewGrowing(w, rand.New(rand.NewPCG(10, 11)), 3)
	g.Grow(40)
	w.Compact(repack.CompactOptions{})
	settle := repack.CompactOptions{Settle: true}
	if done := w.Compact(settle); done != (repack.Compacted{}) {
		t.Errorf("all was searched in the only flush, and yet %+v", done)
	}
	g.Grow(15)
	if done := w.Compact(repack.CompactOptions{}); done.ObjectCount >= len(w.Objects) {
		t.Fatalf("%d of %d objects were rewritten", done.ObjectCount, len(w.Objects))
	}
	if done := w.Compact(settle); done.ObjectCount != len(w.Objects) {
		t.Errorf("%d of %d objects were searched again", done.ObjectCount, len(w.Objects))
	}
	w.Sound(g.Tip)
}

// TestCompactKeepsBlockStreams compacts large blobs and reads the middle of them afterwards.
func TestCompactKeepsBlockStreams(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(5, 6))
	var large []object.ID
	for range 2 {
		d := w.Draft()
		large = append(large, d.WriteFrom(odbtest.Text(random, 3<<20)), d.WriteFrom(odbtest.Noise(random, 2<<20)))
		d.Commit()
	}
	tip := w.Grow(random, object.ZeroID, 5)
	w.Compact(repack.CompactOptions{All: true})
	w.Sound(tip)
	w.With(func(v *odb.View) {
		for _, id := range large {
			if !isBlockStream(t, v, id) {
				t.Errorf("%s is no block stream any more", id)
			}
			o, err := v.Open(t.Context(), id)
			w.Must(err)
			const off, size = 1<<20 - 10, 100
			part, err := o.Section(off, size)
			w.Must(err)
			var got bytes.Buffer
			_, err = got.ReadFrom(part)
			w.Must(err)
			if !bytes.Equal(got.Bytes(), w.Objects[id].Data[off:off+size]) {
				t.Errorf("%s: wrong bytes in the middle", id)
			}
			w.Must(part.Close())
			w.Must(o.Close())
		}
	})
}

// isBlockStream reports whether a blob of a segment is stored as a stream of blocks with a table.
func isBlockStream(t *testing.T, v *odb.View, id object.ID) bool {
	t.Helper()
	e, err := v.Entry(t.Context(), id)
	odbtest.Must(t, err)
	for _, l := range v.Segments() {
		if l.ID != e.Layer {
			continue
		}
		g, err := l.Acquire(t.Context())
		odbtest.Must(t, err)
		defer l.Release(g)
		record, err := g.Record(t.Context(), e.Ordinal)
		odbtest.Must(t, err)
		return record.Blocks
	}
	return false
}
