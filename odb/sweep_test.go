package odb_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// leftoverKeys counts the keys of the tables that a layer or file has rows in.
func leftoverKeys(t *testing.T, w *world) int {
	t.Helper()
	count := 0
	for _, table := range []string{"o", "g", "u", "s", "d"} {
		options := kv.ScanOptions{Start: []byte(table), End: kv.PrefixEnd([]byte(table))}
		for _, err := range w.Keys.Scan(t.Context(), options) {
			w.Must(err)
			count++
		}
	}
	return count
}

// fill commits a hot commit with its tree and blob, and a segment.
func fill(w *world, random *rand.Rand) {
	d := w.Draft()
	blob := d.Write(object.TypeBlob, odbtest.Text(random, 500), object.ZeroID)
	tree := d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("a", blob)), object.ZeroID)
	d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1), object.ZeroID)
	d.Commit()
	d = w.Draft()
	d.WriteFrom(odbtest.Noise(random, 2<<20))
	d.Commit()
}

func TestSweepWaitsForReadersAndTheGrace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	w := newWorld(t, odb.Options{Now: func() time.Time { return now }})
	fill(w, rand.New(rand.NewPCG(1, 2)))
	w.Must(w.Store.Freeze(t.Context(), w.Pool))
	w.Must(w.Store.Freeze(t.Context(), w.Pool)) // has nothing to do
	reader := w.View()
	w.Must(w.Store.LeaveAll(t.Context(), w.Pool))
	sweep := func(grace time.Duration, want odb.Swept) {
		t.Helper()
		if got, err := w.Store.Sweep(t.Context(), grace); err != nil || got != want {
			t.Fatalf("Sweep(%s) = %+v, %v, want %+v", grace, got, err, want)
		}
	}
	sweep(time.Hour, odb.Swept{})
	now = now.Add(time.Hour)
	sweep(time.Hour, odb.Swept{WaitingCount: 2})
	shared := reader.Share()
	w.Must(reader.Close())
	sweep(time.Hour, odb.Swept{WaitingCount: 2})
	for id, want := range w.Objects {
		w.Check(shared, id, want)
	}
	w.Must(shared.Close())
	sweep(time.Hour, odb.Swept{LayerCount: 1, FileCount: 1})
	sweep(0, odb.Swept{})
	if n := w.FileCount(); n != 0 {
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
	w.Store.DropPool(b, w.Pool)
	w.Apply(b)
	swept, err := w.Store.Sweep(t.Context(), 0)
	if want := (odb.Swept{PoolCount: 1, LayerCount: 1, FileCount: 1}); err != nil || swept != want {
		t.Errorf("Sweep = %+v, %v, want %+v", swept, err, want)
	}
	if _, err := w.Store.View(t.Context(), w.Pool); !errors.Is(err, odb.ErrNoPool) {
		t.Errorf("View: %v, want ErrNoPool", err)
	}
	if n := w.FileCount() + leftoverKeys(t, w); n != 0 {
		t.Errorf("%d files and keys left", n)
	}
}

// A copy of the files holds them. Obsolete files stay until the last hold ends.
func TestSweepWaitsForHeldFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	fill(w, rand.New(rand.NewPCG(3, 4)))
	w.Must(w.Store.Freeze(t.Context(), w.Pool))
	first, second := w.Store.HoldFiles(), w.Store.HoldFiles()
	w.Must(w.Store.LeaveAll(t.Context(), w.Pool))
	sweep := func(want odb.Swept) {
		t.Helper()
		if got, err := w.Store.Sweep(t.Context(), 0); err != nil || got != want {
			t.Fatalf("Sweep = %+v, %v, want %+v", got, err, want)
		}
	}
	held := w.FileCount()
	sweep(odb.Swept{WaitingCount: 2})
	first.Release()
	first.Release() // has an effect once
	sweep(odb.Swept{WaitingCount: 2})
	if n := w.FileCount(); n != held {
		t.Errorf("%d files of %d are left while they are held", n, held)
	}
	second.Release()
	sweep(odb.Swept{LayerCount: 1, FileCount: 1})
	w.Must(first.Check(t.Context()))
	w.Store.HoldFiles().Release() // waits for no one
}

// stuckFiles is a file store in which the deletions fail that refuse has an error for.
type stuckFiles struct {
	file.Store
	refuse func(name string) error
}

func (s *stuckFiles) Delete(ctx context.Context, name string) error {
	if s.refuse != nil {
		if err := s.refuse(name); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, name)
}

// newMeddledWorld returns a world with stores that fail on demand.
func newMeddledWorld(t *testing.T, options odb.Options) (*world, *odbtest.MeddledKeys, *stuckFiles) {
	t.Helper()
	w := newWorld(t, options)
	w.Must(w.Store.Close(t.Context()))
	keys, files := &odbtest.MeddledKeys{Store: w.Keys}, &stuckFiles{Store: w.Files}
	var err error
	w.Store, err = odbtest.OpenOn(t.Context(), keys, files, options)
	w.Must(err)
	return w, keys, files
}

// dropPools gives up the world's pool and as many others as make count, each with a hot layer and a
// segment.
func dropPools(w *world, count int) {
	w.Helper()
	for i := range count {
		fill(w, rand.New(rand.NewPCG(5, uint64(i))))
		b := kv.NewBatch()
		w.Store.DropPool(b, w.Pool)
		w.Pool = w.Store.CreatePool(b)
		w.Apply(b)
	}
}

// A damaged row, a file that cannot be deleted and a pool that changes stay, and do not keep others
// from deletion.
func TestSweepGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	w, keys, files := newMeddledWorld(t, odb.Options{})
	first := w.Pool
	dropPools(w, 3)
	b := kv.NewBatch()
	b.Put([]byte("d\x00"), nil) // before all others
	w.Apply(b)
	keys.AfterManifest(first, func() { w.Must(w.Store.Freeze(t.Context(), first)) })
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
		got, err := w.Store.Sweep(t.Context(), 0)
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
	if n := w.Store.Stats().CorruptCount; n != 1 {
		t.Errorf("one corrupt row is counted %d times", n)
	}
	sweep(odb.Swept{PoolCount: 1, LayerCount: 2, FileCount: 1}, odb.ErrCorrupt, errStuck) // the first pool was frozen
	files.refuse = nil
	b = kv.NewBatch()
	b.Delete([]byte("d\x00"))
	w.Apply(b)
	sweep(odb.Swept{FileCount: 1})
	if n := w.FileCount() + leftoverKeys(t, w); n != 1 { // the user of the last pool's hot layer
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
	w.Apply(b)
	if swept, err := w.Store.Sweep(t.Context(), 0); !errors.Is(err, odb.ErrCorrupt) || swept != (odb.Swept{}) {
		t.Errorf("Sweep = %+v, %v", swept, err)
	}
	if n := w.Store.Stats().CorruptCount; n != most {
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
	if _, err := w.Store.Sweep(ctx, 0); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("%d files are tried after the context has ended, %v", tries, err)
	}
}
