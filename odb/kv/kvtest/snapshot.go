package kvtest

import (
	"errors"
	"testing"
	"time"

	"packhorse/odb/kv"
)

func testSnapshotIsolation(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) {
		b.Put([]byte("a"), []byte("1"))
		b.Put([]byte("b"), []byte("1"))
	})
	batch := kv.NewBatch()
	batch.Put([]byte("b"), []byte("2"))
	if _, err := store.Apply(t.Context(), batch); err != nil { // visible is enough
		t.Fatal(err)
	}
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}()
	apply(t, store, func(b *kv.Batch) {
		b.Put([]byte("a"), []byte("3"))
		b.Put([]byte("c"), []byte("3"))
		b.DeleteRange([]byte("b"), []byte("c"))
	})
	want(t, snapshot, "a", "1")
	want(t, snapshot, "b", "2")
	want(t, snapshot, "c", "")
	pairs, err := collect(t.Context(), snapshot, kv.ScanOptions{Reverse: true})
	if err != nil || len(pairs) != 2 || pairs[0] != "b=2" || pairs[1] != "a=1" {
		t.Errorf("got %q, %v", pairs, err)
	}
	want(t, store, "a", "3")
	want(t, store, "b", "")
}

func testSnapshotExpiry(t *testing.T, h Harness) {
	t.Helper()
	const age = 200 * time.Millisecond
	store := h.Open(t, age)
	closeAtEnd(t, store)
	apply(t, store, func(b *kv.Batch) {
		for i := range 100 {
			b.Put([]byte{byte(i)}, []byte("1"))
		}
	})
	begin := time.Now()
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(age / 20)
	defer poll.Stop()
	for err == nil && time.Since(begin) < 2*kv.SnapshotAgeMax {
		<-poll.C
		_, err = snapshot.Get(t.Context(), []byte{0})
	}
	if !errors.Is(err, kv.ErrSnapshotExpired) {
		t.Fatalf("got %v after %v", err, time.Since(begin))
	}
	if lived := time.Since(begin); lived < age {
		t.Errorf("expired after %v", lived)
	}
	if _, err := collect(t.Context(), snapshot, kv.ScanOptions{}); !errors.Is(err, kv.ErrSnapshotExpired) {
		t.Errorf("scan: %v", err)
	}
	if err := snapshot.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := snapshot.Get(t.Context(), []byte{0}); !errors.Is(err, kv.ErrSnapshotExpired) {
		t.Errorf("get after close: %v", err)
	}
	want(t, store, "\x00", "1")
}

func testSnapshotClose(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) { b.Put([]byte("a"), []byte("1")) })
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if open := store.Stats().Snapshots; open != 1 {
		t.Errorf("%d open snapshots", open)
	}
	for range 2 {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := snapshot.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if _, err := collect(t.Context(), snapshot, kv.ScanOptions{}); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("scan: %v", err)
	}
	if open := store.Stats().Snapshots; open != 0 {
		t.Errorf("%d open snapshots after close", open)
	}
}
