package removal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/removal"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// tables are those of the rows that a deletion leaves here.
const tables = "abc"

func leftovers(id refs.RepoID) (left []kv.ScanOptions) {
	for _, table := range []byte(tables) {
		start := append([]byte{table}, id[:]...)
		left = append(left, kv.ScanOptions{Start: start, End: kv.PrefixEnd(start)})
	}
	return left
}

func recordKey(id refs.RepoID) []byte { return append([]byte{'R'}, id[:]...) }

func sweeper(keys kv.Store) *removal.Sweeper {
	return &removal.Sweeper{Keys: keys, Leftovers: leftovers, RecordKey: recordKey}
}

func apply(t *testing.T, keys kv.Store, b *kv.Batch) {
	t.Helper()
	commit, err := keys.Apply(t.Context(), b)
	if err == nil {
		err = commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill stores so many rows of a repository in each table.
func fill(t *testing.T, keys kv.Store, id refs.RepoID, counts ...int) {
	t.Helper()
	for i, count := range counts {
		b := kv.NewBatch()
		for row := range count {
			b.Put(fmt.Appendf(append([]byte{tables[i]}, id[:]...), "%08d", row), []byte("row"))
		}
		apply(t, keys, b)
	}
}

// remove has a repository swept.
func remove(t *testing.T, keys kv.Store, id refs.RepoID) {
	t.Helper()
	b := kv.NewBatch()
	b.Delete(recordKey(id))
	removal.Add(b, id)
	apply(t, keys, b)
}

// count counts all rows below a prefix.
func count(t *testing.T, keys kv.Store, prefix string) (count int) {
	t.Helper()
	for _, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte(prefix), End: kv.PrefixEnd([]byte(prefix))}) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	return count
}

// limited is a store that refuses a batch that removes more rows than a store can at once, and
// counts batches.
type limited struct {
	kv.Store
	t       *testing.T
	batches int
	before  func(batch int) error // is called before each
}

func (l *limited) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	removed := 0
	for op := range b.Operations() {
		removed++
		if op.Kind == kv.OperationDeleteRange {
			for _, err := range l.Scan(ctx, kv.ScanOptions{Start: op.Key, End: op.End}) {
				if err != nil {
					return nil, err
				}
				removed++
			}
		}
	}
	if removed > 10_000 {
		l.t.Errorf("a batch removes %d rows", removed)
	}
	l.batches++
	if l.before != nil {
		if err := l.before(l.batches); err != nil {
			return nil, err
		}
	}
	return l.Store.Apply(ctx, b)
}

// sizes are how many rows repositories leave in each table.
var sizes = map[string][]int{
	"nothing": {0, 0, 0},
	"few":     {1, 3, 2},
	"a page":  {kv.PageCountMax, 0, kv.PageCountMax + 1},
	"many":    {30_000, 5, 4 * kv.PageCountMax},
}

// TestSweep sweeps repositories with few rows and with many, beside one that stays.
func TestSweep(t *testing.T) {
	t.Parallel()
	for name, counts := range sizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
			defer shut()
			before, gone, after := refs.RepoID{1}, refs.RepoID{2}, refs.RepoID{3}
			for _, id := range []refs.RepoID{before, gone, after} {
				fill(t, keys, id, counts...)
			}
			remove(t, keys, gone)
			store := &limited{Store: keys, t: t}
			for range 2 {
				if err := sweeper(store).Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want := 0
			for i, each := range counts {
				if got := count(t, keys, tables[i:i+1]); got != 2*each {
					t.Errorf("table %c: %d rows are left, want %d", tables[i], got, 2*each)
				}
				want += each
			}
			if got := count(t, keys, "z"); got != 0 {
				t.Errorf("%d repositories are to be swept", got)
			}
			if most := 4 + want/8000; store.batches > most {
				t.Errorf("%d batches for %d rows", store.batches, want)
			}
		})
	}
}

// TestSweepCrashes cuts the power before each batch of a sweep: the next start goes on, and leaves
// nothing.
func TestSweepCrashes(t *testing.T) {
	t.Parallel()
	cut := errors.New("the power is cut")
	for name, counts := range sizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			keys, _, shut := odbtest.OpenStores(t, fs)
			id := refs.RepoID{2}
			fill(t, keys, id, counts...)
			remove(t, keys, id)
			for at, met := 1, true; met; at++ {
				met = false
				dead := fs
				store := &limited{Store: keys, t: t, before: func(batch int) error {
					if batch == at {
						met = true
						dead = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(at)))})
						return cut
					}
					return nil
				}}
				if err := sweeper(store).Sweep(t.Context()); met != errors.Is(err, cut) || !met && err != nil {
					t.Fatal(err)
				}
				shut()
				fs = dead
				keys, _, shut = odbtest.OpenStores(t, fs)
				if err := sweeper(keys).Check(t.Context()); err != nil {
					t.Error(err)
				}
				if left := count(t, keys, "a") + count(t, keys, "b") + count(t, keys, "c"); count(t, keys, "z") == 0 && left > 0 {
					t.Fatalf("%d rows are left, and nobody sweeps them", left)
				}
			}
			if err := sweeper(keys).Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, table := range tables + "z" {
				if got := count(t, keys, string(table)); got != 0 {
					t.Errorf("table %c: %d rows are left", table, got)
				}
			}
			shut()
		})
	}
}

// TestSweepByTwo has another server sweep the same repository before a batch of the first one.
func TestSweepByTwo(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 3; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
			defer shut()
			for _, id := range []refs.RepoID{{1}, {2}} {
				fill(t, keys, id, 12_000, 5, 0)
				remove(t, keys, id)
			}
			store := &limited{Store: keys, t: t, before: func(batch int) error {
				if batch == at {
					return sweeper(keys).Sweep(t.Context())
				}
				return nil
			}}
			if err := sweeper(store).Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			for _, table := range tables + "z" {
				if got := count(t, keys, string(table)); got != 0 {
					t.Errorf("table %c: %d rows are left", table, got)
				}
			}
		})
	}
}

// TestSweepOfAnExisting refuses to sweep a repository that exists, which a check finds.
func TestSweepOfAnExisting(t *testing.T) {
	t.Parallel()
	keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
	defer shut()
	id := refs.RepoID{1}
	fill(t, keys, id, 9000, 3, 0)
	remove(t, keys, id)
	if err := sweeper(keys).Check(t.Context()); err != nil {
		t.Error(err)
	}
	b := kv.NewBatch()
	b.Put(recordKey(id), []byte("record"))
	apply(t, keys, b)
	if err := sweeper(keys).Sweep(t.Context()); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("sweep: %v", err)
	}
	if err := sweeper(keys).Check(t.Context()); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("check: %v", err)
	}
	if got := count(t, keys, "a"); got != 9000 {
		t.Errorf("%d rows are left", got)
	}
}
