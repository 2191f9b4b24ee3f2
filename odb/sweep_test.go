package odb_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// leftoverKeys counts the keys of the tables that a layer or file has rows in.
func leftoverKeys(t *testing.T, w *world) int {
	t.Helper()
	count := 0
	for _, table := range []string{"o", "g", "u", "s", "d"} {
		for _, err := range w.keys.Scan(t.Context(), kv.ScanOptions{Start: []byte(table), End: kv.PrefixEnd([]byte(table))}) {
			w.must(err)
			count++
		}
	}
	return count
}

// fill commits a hot commit with its tree and blob, and a segment.
func fill(w *world, random *rand.Rand) {
	d := w.draft()
	blob := d.write(object.TypeBlob, text(random, 500), object.ZeroID)
	tree := d.write(object.TypeTree, treeOf(fileEntry("a", blob)), object.ZeroID)
	d.write(object.TypeCommit, commitOf(tree, 1), object.ZeroID)
	d.commit()
	d = w.draft()
	d.writeFrom(noise(random, 2<<20))
	d.commit()
}

func TestSweepWaitsForReadersAndTheGrace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	w := newWorld(t, odb.Options{Now: func() time.Time { return now }})
	fill(w, rand.New(rand.NewPCG(1, 2)))
	w.must(w.store.Freeze(t.Context(), w.pool))
	w.must(w.store.Freeze(t.Context(), w.pool)) // has nothing to do
	reader := w.view()
	w.must(w.store.LeaveAll(t.Context(), w.pool))
	sweep := func(grace time.Duration, want odb.Swept) {
		t.Helper()
		if got, err := w.store.Sweep(t.Context(), grace); err != nil || got != want {
			t.Fatalf("Sweep(%s) = %+v, %v, want %+v", grace, got, err, want)
		}
	}
	sweep(time.Hour, odb.Swept{})
	now = now.Add(time.Hour)
	sweep(time.Hour, odb.Swept{WaitingCount: 2})
	for id, want := range w.objects {
		w.check(reader, id, want)
	}
	w.must(reader.Close())
	sweep(time.Hour, odb.Swept{LayerCount: 1, FileCount: 1})
	sweep(0, odb.Swept{})
	if n := fileCount(t, w); n != 0 {
		t.Errorf("%d files left", n)
	}
	if n := leftoverKeys(t, w); n != 1 { // of the hot layer that takes writes now
		t.Errorf("%d keys left, want 1", n)
	}
}

func TestSweepRemovesPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	fill(w, rand.New(rand.NewPCG(1, 2)))
	b := kv.NewBatch()
	w.store.DropPool(b, w.pool)
	w.apply(b)
	swept, err := w.store.Sweep(t.Context(), 0)
	if want := (odb.Swept{PoolCount: 1, LayerCount: 1, FileCount: 1}); err != nil || swept != want {
		t.Errorf("Sweep = %+v, %v, want %+v", swept, err, want)
	}
	if _, err := w.store.View(t.Context(), w.pool); !errors.Is(err, odb.ErrNoPool) {
		t.Errorf("View: %v, want ErrNoPool", err)
	}
	if n := fileCount(t, w) + leftoverKeys(t, w); n != 0 {
		t.Errorf("%d files and keys left", n)
	}
}

// Who copies files holds them: what is due stays until the hold has ended.
func TestSweepWaitsForHeldFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	fill(w, rand.New(rand.NewPCG(3, 4)))
	w.must(w.store.Freeze(t.Context(), w.pool))
	first, second := w.store.HoldFiles(), w.store.HoldFiles()
	w.must(w.store.LeaveAll(t.Context(), w.pool))
	sweep := func(want odb.Swept) {
		t.Helper()
		if got, err := w.store.Sweep(t.Context(), 0); err != nil || got != want {
			t.Fatalf("Sweep = %+v, %v, want %+v", got, err, want)
		}
	}
	held := fileCount(t, w)
	sweep(odb.Swept{WaitingCount: 2})
	first()
	first() // has an effect once
	sweep(odb.Swept{WaitingCount: 2})
	if n := fileCount(t, w); n != held {
		t.Errorf("%d files of %d are left while they are held", n, held)
	}
	second()
	sweep(odb.Swept{LayerCount: 1, FileCount: 1})
	release := w.store.HoldFiles() // waits for no one
	release()
}

// newMeddledWorld is a world whose stores fail as told.
func newMeddledWorld(t *testing.T, options odb.Options) (*world, *meddledKeys, *stuckFiles) {
	t.Helper()
	w := newWorld(t, options)
	w.must(w.store.Close(t.Context()))
	keys, files := &meddledKeys{Store: w.keys}, &stuckFiles{Store: w.files}
	var err error
	w.store, err = odbtest.OpenOn(t.Context(), keys, files, options)
	w.must(err)
	return w, keys, files
}

// dropPools gives up the world's pool and as many others as make count, each with a hot layer and a
// segment.
func dropPools(w *world, count int) {
	w.Helper()
	for i := range count {
		fill(w, rand.New(rand.NewPCG(5, uint64(i))))
		b := kv.NewBatch()
		w.store.DropPool(b, w.pool)
		w.pool = w.store.CreatePool(b)
		w.apply(b)
	}
}

// A row that says nothing, a file that cannot be deleted and a pool that changes stay, and keep
// nothing else.
func TestSweepGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	w, keys, files := newMeddledWorld(t, odb.Options{})
	first := w.pool
	dropPools(w, 3)
	b := kv.NewBatch()
	b.Put([]byte("d\x00"), nil) // before all others
	w.apply(b)
	keys.meddle(isManifestOf(first), func() { w.must(w.store.Freeze(t.Context(), first)) })
	errStuck, stuck := errors.New("stuck"), ""
	files.refuse = func(name string) error {
		if stuck == "" {
			stuck = name
		}
		if name == stuck {
			return errStuck
		}
		return nil
	}
	sweep := func(want odb.Swept, facts ...error) {
		t.Helper()
		got, err := w.store.Sweep(t.Context(), 0)
		if got != want {
			t.Errorf("Sweep = %+v, want %+v", got, want)
		}
		for _, fact := range facts {
			if !errors.Is(err, fact) {
				t.Errorf("Sweep says %v, and not %v", err, fact)
			}
		}
		if len(facts) == 0 && err != nil {
			t.Error(err)
		}
	}
	sweep(odb.Swept{PoolCount: 2, LayerCount: 2, FileCount: 1}, odb.ErrCorrupt, kv.ErrConflict, errStuck)
	if n := w.store.Stats().CorruptCount; n != 1 {
		t.Errorf("one corrupt row is counted %d times", n)
	}
	sweep(odb.Swept{PoolCount: 1, LayerCount: 2, FileCount: 1}, odb.ErrCorrupt, errStuck) // the first pool was frozen
	files.refuse = nil
	b = kv.NewBatch()
	b.Delete([]byte("d\x00"))
	w.apply(b)
	sweep(odb.Swept{FileCount: 1})
	if n := fileCount(t, w) + leftoverKeys(t, w); n != 1 { // the user of the last pool's hot layer
		t.Errorf("%d files and keys left", n)
	}
}

func TestSweepEndsWhenAllFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	dropPools(w, 1)
	b := kv.NewBatch()
	const rows, most = 150, 100
	for i := range byte(rows) {
		b.Put([]byte{0: 'd', 4: i}, nil) // before all others
	}
	w.apply(b)
	if swept, err := w.store.Sweep(t.Context(), 0); !errors.Is(err, odb.ErrCorrupt) || swept != (odb.Swept{}) {
		t.Errorf("Sweep = %+v, %v", swept, err)
	}
	if n := w.store.Stats().CorruptCount; n != most {
		t.Errorf("a sweep goes on to failure %d, want %d", n, most)
	}
}

func TestSweepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w, _, files := newMeddledWorld(t, odb.Options{})
	dropPools(w, 3)
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	files.refuse = func(string) error {
		tries++
		cancel()
		return ctx.Err()
	}
	if _, err := w.store.Sweep(ctx, 0); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("%d files are tried after the context has ended, %v", tries, err)
	}
}
