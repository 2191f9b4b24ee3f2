package filetest

import (
	"context"
	"errors"
	"testing"

	"packhorse/odb/file"
)

// first returns the error that a walk begins with.
func first(walk func(func(file.Info, error) bool)) error {
	for _, err := range walk {
		return err
	}
	return nil
}

func testContext(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	seal(t, store, "a", []byte("data"))
	w := begin(t, store, "w", []byte("data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, createErr := store.Create(ctx, "b")
	_, openErr := store.Open(ctx, "a")
	_, scratchErr := store.Scratch(ctx)
	_, freeErr := store.Free(ctx)
	for name, err := range map[string]error{
		"create": createErr, "open": openErr, "scratch": scratchErr, "free": freeErr,
		"delete": store.Delete(ctx, "a"), "seal": w.Seal(ctx), "list": first(store.List(ctx)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, store, "a", []byte("data"))
	want(t, store, "b", nil)
	f, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(ctx, make([]byte, 4), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Seal(t.Context()); err != nil { // goes on with a better context
		t.Error(err)
	}
	seal(t, store, "b", []byte("data"))
}

func testFree(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	if free, err := store.Free(t.Context()); err != nil || free == 0 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}

func testClosed(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	seal(t, store, "a", []byte("data"))
	f, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w := begin(t, store, "w", []byte("data"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, createErr := store.Create(t.Context(), "b")
	_, openErr := store.Open(t.Context(), "a")
	_, scratchErr := store.Scratch(t.Context())
	_, freeErr := store.Free(t.Context())
	for name, err := range map[string]error{
		"create": createErr, "open": openErr, "scratch": scratchErr, "free": freeErr,
		"delete": store.Delete(t.Context(), "a"), "list": first(store.List(t.Context())),
		"seal": w.Seal(t.Context()), "close": store.Close(),
	} {
		if !errors.Is(err, file.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := make([]byte, 4); true {
		if _, err := f.ReadAt(t.Context(), got, 0); err != nil || string(got) != "data" {
			t.Errorf("an open file: %q, %v", got, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
