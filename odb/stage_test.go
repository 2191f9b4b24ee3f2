package odb_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

func TestStageAfterAPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	d := w.Draft()
	kept := d.Write(object.TypeBlob, odbtest.Text(random, 4000), object.ZeroID)
	pruned := d.Write(object.TypeBlob, odbtest.Text(random, 4000), object.ZeroID)
	d.Commit()

	d = w.Draft()
	again := d.Write(object.TypeBlob, w.Objects[pruned].Data, object.ZeroID) // is stored, so it is not written
	onKept := d.Write(object.TypeBlob, odbtest.Edited(random, w.Objects[kept].Data), kept)
	onPruned := d.Write(object.TypeBlob, odbtest.Edited(random, w.Objects[pruned].Data), pruned)
	// Skips down to the pruned object.
	second := d.Write(object.TypeBlob, odbtest.Edited(random, d.Objects[onPruned].Data), onPruned)
	third := d.Write(object.TypeBlob, odbtest.Edited(random, d.Objects[second].Data), second)

	b := kv.NewBatch()
	w.Must(w.Store.PruneHot(t.Context(), b, w.Pool, kept))
	w.Apply(b)
	delete(w.Objects, pruned)

	before := d.Quarantine.PruneCount()
	if err := d.Quarantine.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrPruned) {
		t.Fatalf("Stage after a prune: %v, want ErrPruned", err)
	}
	w.Must(d.Quarantine.Refresh(t.Context()))
	if d.Quarantine.PruneCount() != before+1 {
		t.Errorf("prune generation %d after %d", d.Quarantine.PruneCount(), before)
	}
	if ok, err := d.Quarantine.View().Has(t.Context(), again); !ok || err != nil {
		t.Errorf("an object that was written again has gone: %v", err)
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) {
		for id, wantDelta := range map[object.ID]bool{onKept: true, onPruned: false, second: false, third: true} {
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
	large, other, small := w.Draft(), w.Draft(), w.Draft()
	large.WriteFrom(odbtest.Noise(random, 2<<20))
	other.WriteFrom(odbtest.Noise(random, 2<<20))
	small.Write(object.TypeBlob, []byte("small"), object.ZeroID)
	first, second, third := large.Stage(), other.Stage(), small.Stage()
	w.Apply(first)
	for _, b := range []*kv.Batch{second, third} {
		if _, err := w.Keys.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
			t.Fatalf("batch on a manifest that is gone: %v, want a conflict", err)
		}
	}
	other.Commit()
	small.Commit()
	large.Quarantine.Settled(t.Context())
	w.Must(large.Quarantine.Close())
	maps.Copy(w.Objects, large.Objects)
	w.Reopen()
	w.CheckAll()
	if n := w.FileCount(); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
}

func TestManyLayers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{Limits: odb.Limits{HotValueBytes: 1}})
	b := kv.NewBatch()
	w.Must(w.Store.AddAuxiliaries(t.Context(), b, w.Pool, 15_200))
	w.Apply(b)
	d := w.Draft()
	d.Write(object.TypeBlob, []byte("x"), object.ZeroID)
	if err := d.Quarantine.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrManyLayers) {
		t.Fatalf("Stage: %v, want ErrManyLayers", err)
	}
	d.Discard()
	if n := w.FileCount(); n != 0 {
		t.Errorf("%d files left", n)
	}
}

// TestLeftovers looks at the files of quarantines that ended in every way.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	tests := map[string]struct {
		end   func(d *odbtest.Draft)
		files int
		reads bool
	}{
		"closed":            {end: func(d *odbtest.Draft) { d.Discard() }},
		"sealed and closed": {end: func(d *odbtest.Draft) { d.Must(d.Quarantine.Seal(context.Background())); d.Discard() }},
		"staged and closed": {end: func(d *odbtest.Draft) { d.Stage(); d.Discard() }},
		"committed":         {end: func(d *odbtest.Draft) { d.Commit() }, files: 1, reads: true},
		"committed, but nobody heard of it": {
			end:   func(d *odbtest.Draft) { d.Apply(d.Stage()); d.Discard() },
			files: 1, reads: true,
		},
		"committed, then a crash": {
			end:   func(d *odbtest.Draft) { d.Apply(d.Stage()); d.Crash(random); d.Must(d.Quarantine.Close()) },
			files: 1, reads: true,
		},
		"staged, then a crash": {end: func(d *odbtest.Draft) { d.Stage(); d.Crash(random) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, odb.Options{})
			d := w.Draft()
			id := d.WriteFrom(odbtest.Noise(random, 2<<20))
			test.end(d)
			for range 2 {
				w.With(func(v *odb.View) {
					if test.reads {
						w.Check(v, id, d.Objects[id])
					} else if ok, err := v.Has(t.Context(), id); ok || err != nil {
						t.Errorf("Has = %v, %v", ok, err)
					}
				})
				if n := w.FileCount(); n != test.files {
					t.Errorf("%d files, want %d", n, test.files)
				}
				w.Reopen()
			}
			for info, err := range w.Files.(file.Incoming).Leftovers(t.Context()) {
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
	known := make(map[object.ID]odbtest.Content)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				expected := make(map[object.ID]odbtest.Content)
				for id, c := range known { // any few
					expected[id] = c
					if len(expected) == 20 {
						break
					}
				}
				mu.Unlock()
				v, err := w.Store.View(t.Context(), w.Pool)
				if err != nil {
					t.Error(err)
					return
				}
				for id, c := range expected {
					kind, data, err := v.Read(t.Context(), id)
					if err != nil || kind != c.Type || string(data) != string(c.Data) {
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
	data := odbtest.Text(random, 2000)
	for i := range rounds(60) {
		d := w.Draft()
		for range 5 {
			last = d.Write(object.TypeBlob, data, last)
			data = odbtest.Edited(random, data)
		}
		if i%4 == 0 {
			d.WriteFrom(odbtest.Text(random, 1<<20+random.IntN(1<<20)))
		}
		d.Commit()
		mu.Lock()
		maps.Copy(known, d.Objects)
		mu.Unlock()
	}
	stop()
	readers.Wait()
	if n := w.Store.Stats().OpenFileCount; n > 6 {
		t.Errorf("%d files open", n)
	}
	w.CheckAll()
}
