package kvtest

import (
	"bytes"
	"errors"
	"testing"

	"packhorse/odb/kv"
)

func testValues(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	want(t, store, "a", "")
	apply(t, store, func(b *kv.Batch) {
		b.Put([]byte("a"), []byte("1"))
		b.Put([]byte("b"), nil)
		b.Put([]byte{0}, []byte{0, 255})
	})
	want(t, store, "a", "1")
	want(t, store, "\x00", "\x00\xff")
	if value, err := store.Get(t.Context(), []byte("b")); err != nil || len(value) != 0 {
		t.Errorf("empty value: %q, %v", value, err)
	}
	apply(t, store, func(b *kv.Batch) {
		b.Put([]byte("a"), []byte("2"))
		b.Delete([]byte("b"))
		b.Delete([]byte("never there"))
	})
	want(t, store, "a", "2")
	want(t, store, "b", "")
	if _, err := store.Get(t.Context(), nil); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("empty key: %v", err)
	}
	apply(t, store, func(*kv.Batch) {})
}

func testBatchOrder(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) {
		for _, key := range []string{"a", "b", "c", "d"} {
			b.Put([]byte(key), []byte("old"))
		}
	})
	apply(t, store, func(b *kv.Batch) {
		b.Put([]byte("b"), []byte("before the range"))
		b.Put([]byte("bb"), []byte("new before the range"))
		b.DeleteRange([]byte("b"), []byte("d"))
		b.Put([]byte("c"), []byte("after the range"))
		b.Put([]byte("x"), []byte("1"))
		b.Delete([]byte("x"))
		b.Delete([]byte("y"))
		b.Put([]byte("y"), []byte("2"))
		b.DeleteRange([]byte("z"), []byte("a"))
		b.DeleteRange([]byte("a"), []byte("a"))
	})
	want(t, store, "a", "old")
	want(t, store, "b", "")
	want(t, store, "bb", "")
	want(t, store, "c", "after the range")
	want(t, store, "d", "old")
	want(t, store, "x", "")
	want(t, store, "y", "2")
	apply(t, store, func(b *kv.Batch) { b.DeleteRange(nil, []byte("y")) })
	want(t, store, "a", "")
	want(t, store, "d", "")
	want(t, store, "y", "2")
}

func testOwnedMemory(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	key, value := []byte("key"), []byte("value")
	batch := kv.NewBatch()
	batch.Put(key, value)
	copy(key, "xxx")
	copy(value, "xxxxx")
	for range 2 { // a batch can be applied again
		commit, err := store.Apply(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := commit.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(t, store, "key", "value")
	got, err := store.Get(t.Context(), []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	copy(got, bytes.Repeat([]byte("y"), len(got)))
	want(t, store, "key", "value")
}

func testPreconditions(t *testing.T, h Harness) {
	t.Helper()
	tests := map[string]struct {
		require  func(*kv.Batch)
		conflict string
	}{
		"value holds":       {require: func(b *kv.Batch) { b.Require([]byte("a"), []byte("1")) }},
		"empty value holds": {require: func(b *kv.Batch) { b.Require([]byte("e"), nil) }},
		"absence holds":     {require: func(b *kv.Batch) { b.RequireAbsent([]byte("none")) }},
		"several hold": {require: func(b *kv.Batch) {
			b.Require([]byte("a"), []byte("1"))
			b.RequireAbsent([]byte("none"))
		}},
		"other value":            {require: func(b *kv.Batch) { b.Require([]byte("a"), []byte("2")) }, conflict: "a"},
		"longer value":           {require: func(b *kv.Batch) { b.Require([]byte("a"), []byte("1 ")) }, conflict: "a"},
		"empty instead of value": {require: func(b *kv.Batch) { b.Require([]byte("a"), nil) }, conflict: "a"},
		"value instead of none":  {require: func(b *kv.Batch) { b.Require([]byte("none"), []byte("1")) }, conflict: "none"},
		"empty instead of none":  {require: func(b *kv.Batch) { b.Require([]byte("none"), nil) }, conflict: "none"},
		"none instead of value":  {require: func(b *kv.Batch) { b.RequireAbsent([]byte("a")) }, conflict: "a"},
		"none instead of empty":  {require: func(b *kv.Batch) { b.RequireAbsent([]byte("e")) }, conflict: "e"},
		"the second of two": {
			require: func(b *kv.Batch) { b.Require([]byte("a"), []byte("1")); b.RequireAbsent([]byte("e")) }, conflict: "e",
		},
		"two that exclude others": {
			require: func(b *kv.Batch) { b.Require([]byte("a"), []byte("1")); b.RequireAbsent([]byte("a")) }, conflict: "a",
		},
		"its own write before": {
			require:  func(b *kv.Batch) { b.Put([]byte("none"), []byte("1")); b.Require([]byte("none"), []byte("1")) },
			conflict: "none",
		},
		"its own range before": {
			require: func(b *kv.Batch) { b.DeleteRange([]byte("a"), []byte("z")); b.RequireAbsent([]byte("a")) }, conflict: "a",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := h.open(t)
			apply(t, store, func(b *kv.Batch) {
				b.Put([]byte("a"), []byte("1"))
				b.Put([]byte("e"), nil)
			})
			batch := kv.NewBatch()
			test.require(batch)
			batch.Put([]byte("result"), []byte("written"))
			_, err := store.Apply(t.Context(), batch)
			if test.conflict == "" {
				if err != nil {
					t.Fatal(err)
				}
				want(t, store, "result", "written")
				return
			}
			var conflict *kv.ConflictError
			if !errors.Is(err, kv.ErrConflict) || !errors.As(err, &conflict) || string(conflict.Key) != test.conflict {
				t.Errorf("got %v, want a conflict at %q", err, test.conflict)
			}
			want(t, store, "result", "")
			want(t, store, "a", "1")
		})
	}
}

// testRefusedLeavesNothing checks that preconditions alone write nothing, and that a refused batch
// has no effect of any kind.
func testRefusedLeavesNothing(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) { b.Put([]byte("m"), []byte("1")) })
	apply(t, store, func(b *kv.Batch) { b.Require([]byte("m"), []byte("1")) })
	batch := kv.NewBatch()
	batch.DeleteRange([]byte("a"), []byte("z"))
	batch.Put([]byte("k"), []byte("2"))
	batch.Delete([]byte("m"))
	batch.RequireAbsent([]byte("m"))
	if _, err := store.Apply(t.Context(), batch); !errors.Is(err, kv.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	pairs, err := collect(t.Context(), store, kv.ScanOptions{})
	if err != nil || len(pairs) != 1 || pairs[0] != "m=1" {
		t.Errorf("got %q, %v", pairs, err)
	}
}
