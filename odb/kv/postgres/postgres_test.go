package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// patient is a deadline that no machine is too slow for, and short one for databases that stay
// away.
const (
	patient = 2 * time.Minute
	short   = time.Second
)

// open opens a store; the caller closes it. With a short deadline it tries until it gets there.
func open(tb testing.TB, options postgres.Options) *postgres.Store {
	tb.Helper()
	if options.Deadline == 0 {
		options.Deadline = patient
	}
	options.Logger = slog.New(slog.DiscardHandler)
	for {
		store, err := postgres.Open(tb.Context(), options)
		if err == nil {
			return store
		}
		if !errors.Is(err, kv.ErrUnavailable) || options.Deadline == patient {
			tb.Fatal(err)
		}
	}
}

// openHere opens a store that is closed with the test.
func openHere(tb testing.TB, options postgres.Options) *postgres.Store {
	tb.Helper()
	store := open(tb, options)
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return store
}

// batchOf returns a batch that puts a value under new keys.
func batchOf(value string, keys ...string) *kv.Batch {
	batch := kv.NewBatch()
	for _, key := range keys {
		batch.RequireAbsent([]byte(key))
		batch.Put([]byte(key), []byte(value))
	}
	return batch
}

// apply applies a batch.
func apply(tb testing.TB, store kv.Store, batch *kv.Batch) {
	tb.Helper()
	if _, err := store.Apply(tb.Context(), batch); err != nil {
		tb.Fatal(err)
	}
}

// want checks the value of a key; an empty one stands for none.
func want(tb testing.TB, store kv.Store, key, value string) {
	tb.Helper()
	got, err := store.Get(context.WithoutCancel(tb.Context()), []byte(key))
	for errors.Is(err, kv.ErrUnavailable) { // on a slow machine with a short deadline
		got, err = store.Get(context.WithoutCancel(tb.Context()), []byte(key))
	}
	if errors.Is(err, kv.ErrNotFound) && value == "" {
		return
	}
	if err != nil || string(got) != value {
		tb.Errorf("get %q: %q, %v; want %q", key, got, err, value)
	}
}

// TestLargeBatches applies batches at the limits, whose statements are split, beside a model.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	value := bytes.Repeat([]byte("v"), kv.ValueBytesMax)
	key := func(prefix string, i int) []byte { return []byte{prefix[0], byte(i >> 16), byte(i >> 8), byte(i)} }
	store := openHere(t, postgres.Options{URL: postgrestest.Database(t)})
	batch := kv.NewBatch()
	for i := range 60 {
		batch.Put(key("a", i), value)
	}
	apply(t, store, batch)

	batch = kv.NewBatch() // requires 15 MiB
	for i := range 60 {
		batch.Require(key("a", i), value)
	}
	batch.DeleteRange(key("a", 10), key("a", 50))
	batch.Put(key("a", 20), []byte("again"))
	batch.Put(key("b", 0), value)
	apply(t, store, batch)
	if _, err := store.Apply(t.Context(), batch); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("the second time: %v", err)
	}
	if got := count(t, store, "a"); got != 21 {
		t.Errorf("%d keys are left, want 21", got)
	}
	want(t, store, string(key("a", 20)), "again")

	batch = kv.NewBatch() // as many operations as there can be, in each direction
	const third = kv.BatchCountMax / 4
	for i := range third {
		batch.RequireAbsent(key("c", i))
		batch.RequireAbsent(key("d", i))
		batch.Put(key("c", i), key("c", i))
		batch.Put(key("a", i), key("a", i))
	}
	apply(t, store, batch)
	if a, c, d := count(t, store, "a"), count(t, store, "c"), count(t, store, "d"); a != third || c != third || d != 0 {
		t.Errorf("%d, %d and %d keys, want %d, %d and none", a, c, d, third, third)
	}
	batch = kv.NewBatch()
	for i := range third {
		batch.Delete(key("c", i))
		batch.Require(key("a", i), key("a", i))
	}
	batch.DeleteRange([]byte("a"), []byte("b"))
	apply(t, store, batch)
	if a, c := count(t, store, "a"), count(t, store, "c"); a != 0 || c != 0 {
		t.Errorf("%d and %d keys, want none", a, c)
	}
	rows, err := store.Read(t.Context(), kv.ReadSet{Keys: [][]byte{key("b", 0), key("b", 0)}})
	if err != nil || !bytes.Equal(rows.Values[0], value) || !bytes.Equal(rows.Values[1], value) {
		t.Errorf("a key that is asked for twice: %v", err)
	}
}

// count returns how many keys begin with a prefix.
func count(tb testing.TB, store kv.Store, prefix string) int {
	tb.Helper()
	found := 0
	options := kv.ScanOptions{Start: []byte(prefix), End: kv.PrefixEnd([]byte(prefix))}
	for _, err := range store.Scan(tb.Context(), options) {
		if err != nil {
			tb.Fatal(err)
		}
		found++
	}
	return found
}

// TestConflictNamesKey has preconditions in several statements.
func TestConflictNamesKey(t *testing.T) {
	t.Parallel()
	store := openHere(t, postgres.Options{URL: postgrestest.Database(t)})
	value := bytes.Repeat([]byte("v"), kv.ValueBytesMax)
	batch := kv.NewBatch()
	for i := range 40 {
		batch.Put([]byte{'a', byte(i)}, value)
	}
	apply(t, store, batch)
	tests := map[string]func(b *kv.Batch){
		"other value": func(b *kv.Batch) { b.Require([]byte{'a', 7}, []byte("w")) },
		"no value":    func(b *kv.Batch) { b.Require([]byte{'a', 7, 0}, []byte("w")) },
		"present, put": func(b *kv.Batch) {
			b.RequireAbsent([]byte{'a', 7})
			b.Put([]byte{'a', 7}, nil)
		},
		"present, not put": func(b *kv.Batch) { b.RequireAbsent([]byte{'a', 7}) },
		"present, is erased": func(b *kv.Batch) {
			b.RequireAbsent([]byte{'a', 7})
			b.DeleteRange([]byte("a"), []byte("b"))
		},
		"behind megabytes": func(b *kv.Batch) {
			for i := range 39 {
				b.Require([]byte{'a', byte(i)}, value)
			}
			b.Require([]byte{'a', 39}, []byte("w"))
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batch := kv.NewBatch()
			batch.RequireAbsent([]byte("a2"))
			build(batch)
			batch.Put([]byte("b"), nil)
			_, err := store.Apply(t.Context(), batch)
			conflict, ok := errors.AsType[*kv.ConflictError](err)
			if !ok || len(conflict.Key) < 2 || conflict.Key[0] != 'a' || (conflict.Key[1] != 7 && conflict.Key[1] != 39) {
				t.Errorf("got %v", err)
			}
			want(t, store, "b", "")
		})
	}
}

// TestRoundTrips holds each call to one round trip, from the second time on, when its statements
// are prepared.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	var told atomic.Int64
	store := openHere(t, postgres.Options{URL: url, Trip: func(time.Duration) { told.Add(1) }})
	apply(t, store, batchOf("1", "a", "b"))
	for store.Stats().DiskBytes == 0 { // the look at the size of the tables is over
		want(t, store, "a", "1")
	}
	one := kv.NewBatch()
	one.Require([]byte("a"), []byte("1"))
	one.Put([]byte("c"), nil)
	several := kv.NewBatch()
	several.Require([]byte("a"), []byte("1"))
	several.RequireAbsent([]byte("never"))
	several.DeleteRange([]byte("b"), []byte("c"))
	several.Put([]byte("b"), []byte("1"))
	set := kv.ReadSet{
		Keys:   [][]byte{[]byte("a"), []byte("b")},
		Ranges: []kv.ScanOptions{{}, {Reverse: true}, {End: []byte("b"), Limit: 1}},
	}
	ctx := t.Context()
	tests := map[string]struct {
		call      func() error
		trips     int
		rollbacks int // among them
	}{
		"get":  {func() error { _, err := store.Get(ctx, []byte("a")); return err }, 1, 0},
		"scan": {func() error { count(t, store, "a"); return nil }, 1, 0},
		"read": {func() error { _, err := store.Read(ctx, set); return err }, 1, 0},
		"snapshot": {func() error {
			view, err := store.Snapshot(ctx)
			if err == nil {
				_, err = view.Read(ctx, set)
				err = errors.Join(err, view.Close())
			}
			return err
		}, 3, 1},
		"apply":                       {func() error { _, err := store.Apply(ctx, one); return err }, 1, 0},
		"apply in several statements": {func() error { _, err := store.Apply(ctx, several); return err }, 1, 0},
	}
	for name, test := range tests {
		before, toldBefore := 0, int64(0)
		for range 2 {
			before, toldBefore = proxy.Trips(), told.Load()
			if err := test.call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if trips := proxy.Trips() - before; trips != test.trips {
			t.Errorf("%s: %d trips, want %d", name, trips, test.trips)
		}
		if trips := told.Load() - toldBefore; trips != int64(test.trips-test.rollbacks) {
			t.Errorf("%s: told of %d trips of %d", name, trips, test.trips)
		}
	}
}
