package kvtest

import (
	"context"
	"errors"
	"testing"

	"packhorse/odb/kv"
)

// calls are all calls that can fail because of a context or of the end of a store.
func calls(ctx context.Context, store kv.Store) map[string]error {
	_, getErr := store.Get(ctx, []byte("a"))
	_, scanErr := collect(ctx, store, kv.ScanOptions{})
	_, readErr := store.Read(ctx, kv.ReadSet{Keys: [][]byte{[]byte("a")}})
	_, snapshotErr := store.Snapshot(ctx)
	batch := kv.NewBatch()
	batch.Put([]byte("b"), []byte("1"))
	_, applyErr := store.Apply(ctx, batch)
	return map[string]error{
		"get": getErr, "scan": scanErr, "read": readErr, "snapshot": snapshotErr, "apply": applyErr,
		"wait": store.WaitDurable(ctx, []byte("a")),
	}
}

func testContext(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) { b.Put([]byte("a"), []byte("1")) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range calls(ctx, store) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, store, "b", "")
}

func testClosed(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) { b.Put([]byte("a"), []byte("1")) })
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	batch := kv.NewBatch()
	batch.Put([]byte("c"), []byte("1"))
	commit, err := store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Errorf("a commit before the end: %v", err)
	}
	for name, err := range calls(t.Context(), store) {
		if !errors.Is(err, kv.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := snapshot.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := snapshot.Read(t.Context(), kv.ReadSet{}); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("read snapshot: %v", err)
	}
	if err := snapshot.Close(); err != nil {
		t.Errorf("close snapshot: %v", err)
	}
	if err := store.Close(); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
	store.Stats()
}
