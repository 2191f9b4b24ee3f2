package odb_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

func fileCount(t *testing.T, w *world) int {
	t.Helper()
	count := 0
	for _, err := range w.files.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	return count
}

func TestStageAfterADrop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	d := w.draft()
	kept := d.write(object.TypeBlob, text(random, 4000), object.ZeroID)
	dropped := d.write(object.TypeBlob, text(random, 4000), object.ZeroID)
	d.commit()

	d = w.draft()
	again := d.write(object.TypeBlob, w.objects[dropped].data, object.ZeroID) // is there, so it is not written
	onKept := d.write(object.TypeBlob, edited(random, w.objects[kept].data), kept)
	onDropped := d.write(object.TypeBlob, edited(random, w.objects[dropped].data), dropped)
	// Skips down to what was dropped.
	second := d.write(object.TypeBlob, edited(random, d.objects[onDropped].data), onDropped)
	third := d.write(object.TypeBlob, edited(random, d.objects[second].data), second)

	b := kv.NewBatch()
	w.must(w.store.DropHot(t.Context(), b, w.pool, kept))
	w.apply(b)
	delete(w.objects, dropped)

	before := d.q.PruneCount()
	if err := d.q.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrPruned) {
		t.Fatalf("Stage after a drop: %v, want ErrPruned", err)
	}
	w.must(d.q.Refresh(t.Context()))
	if d.q.PruneCount() != before+1 {
		t.Errorf("drop count %d after %d", d.q.PruneCount(), before)
	}
	if ok, err := d.q.View().Has(t.Context(), again); !ok || err != nil {
		t.Errorf("an object that was written again has gone: %v", err)
	}
	d.commit()
	w.checkAll()
	w.with(func(v *odb.View) {
		for id, wantDelta := range map[object.ID]bool{onKept: true, onDropped: false, second: false, third: true} {
			if e, err := v.Entry(t.Context(), id); err != nil || e.Delta() != wantDelta {
				t.Errorf("%s is a delta: %v, %v, want %v", id, e.Delta(), err, wantDelta)
			}
		}
	})
}

// TestStageConflicts commits two quarantines that were staged on the same manifest.
func TestStageConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	large, other, small := w.draft(), w.draft(), w.draft()
	large.writeFrom(noise(random, 2<<20))
	other.writeFrom(noise(random, 2<<20))
	small.write(object.TypeBlob, []byte("small"), object.ZeroID)
	first, second, third := large.stage(), other.stage(), small.stage()
	w.apply(first)
	for _, b := range []*kv.Batch{second, third} {
		if _, err := w.keys.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
			t.Fatalf("batch on a manifest that is gone: %v, want a conflict", err)
		}
	}
	other.commit()
	small.commit()
	large.q.Settled(t.Context())
	w.must(large.q.Close())
	maps.Copy(w.objects, large.objects)
	w.reopen()
	w.checkAll()
	if n := fileCount(t, w); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
}

func TestManyLayers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{Limits: odb.Limits{HotValueBytes: 1}})
	b := kv.NewBatch()
	w.must(w.store.AddAuxiliaries(t.Context(), b, w.pool, 15_200))
	w.apply(b)
	d := w.draft()
	d.write(object.TypeBlob, []byte("x"), object.ZeroID)
	if err := d.q.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrManyLayers) {
		t.Fatalf("Stage: %v, want ErrManyLayers", err)
	}
	d.discard()
	if n := fileCount(t, w); n != 0 {
		t.Errorf("%d files left", n)
	}
}

// TestLeftovers looks at the files of quarantines that ended in every way.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	tests := map[string]struct {
		end   func(d *draft)
		files int
		reads bool
	}{
		"closed":            {end: func(d *draft) { d.discard() }},
		"sealed and closed": {end: func(d *draft) { d.must(d.q.Seal(context.Background())); d.discard() }},
		"staged and closed": {end: func(d *draft) { d.stage(); d.discard() }},
		"committed":         {end: func(d *draft) { d.commit() }, files: 1, reads: true},
		"committed, but nobody heard of it": {
			end:   func(d *draft) { d.apply(d.stage()); d.discard() },
			files: 1, reads: true,
		},
		"committed, then a crash": {
			end:   func(d *draft) { d.apply(d.stage()); d.crash(random); d.must(d.q.Close()) },
			files: 1, reads: true,
		},
		"staged, then a crash": {end: func(d *draft) { d.stage(); d.crash(random) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, odb.Options{})
			d := w.draft()
			id := d.writeFrom(noise(random, 2<<20))
			test.end(d)
			for range 2 {
				w.with(func(v *odb.View) {
					if test.reads {
						w.check(v, id, d.objects[id])
					} else if ok, err := v.Has(t.Context(), id); ok || err != nil {
						t.Errorf("Has = %v, %v", ok, err)
					}
				})
				if n := fileCount(t, w); n != test.files {
					t.Errorf("%d files, want %d", n, test.files)
				}
				w.reopen()
			}
			for info, err := range w.files.Leftovers(t.Context()) {
				t.Errorf("left over: %v, %v", info, err)
			}
		})
	}
}

// TestReadersWhileWriting has readers of views and of the newest state beside a writer of small and
// large commits.
func TestReadersWhileWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{CacheBytes: 1 << 20, OpenFileCountMax: 2})
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // guards known
	known := make(map[object.ID]content)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				expected := make(map[object.ID]content)
				for id, c := range known { // any few
					expected[id] = c
					if len(expected) == 20 {
						break
					}
				}
				mu.Unlock()
				v, err := w.store.View(t.Context(), w.pool)
				if err != nil {
					t.Error(err)
					return
				}
				for id, c := range expected {
					kind, data, err := v.Read(t.Context(), id)
					if err != nil || kind != c.kind || string(data) != string(c.data) {
						t.Errorf("Read(%s) = %s of %d bytes, %v", id, kind, len(data), err)
					}
				}
				if err := v.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var last object.ID
	data := text(random, 2000)
	for i := range rounds(60) {
		d := w.draft()
		for range 5 {
			last = d.write(object.TypeBlob, data, last)
			data = edited(random, data)
		}
		if i%4 == 0 {
			d.writeFrom(text(random, 1<<20+random.IntN(1<<20)))
		}
		d.commit()
		mu.Lock()
		maps.Copy(known, d.objects)
		mu.Unlock()
	}
	stop()
	readers.Wait()
	if n := w.store.Stats().OpenFileCount; n > 6 {
		t.Errorf("%d files open", n)
	}
	w.checkAll()
}
