package filetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/odb/file"
)

func testLife(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	for name, data := range map[string][]byte{"a": content(1, 1000), "empty": {}, "b.c-d.0": content(2, 700_000)} {
		w := begin(t, store, name, data)
		want(t, store, name, nil)
		if err := w.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, store, name, data)
		for range 2 {
			settle(t, store, name)
			want(t, store, name, data)
		}
		if err := store.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		want(t, store, name, nil)
		seal(t, store, name, content(3, 10)) // the name is free again
		want(t, store, name, content(3, 10))
		if err := store.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		want(t, store, name, nil)
	}
}

func testNames(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	for _, name := range []string{"0", "a", "9z", "a.b", "a-b", "a..b", "a.", strings.Repeat("x", file.NameBytesMax)} {
		seal(t, store, name, []byte(name))
		settle(t, store, name)
		want(t, store, name, []byte(name))
	}
	refused := []string{
		"", ".", "..", ".a", "-a", "A", "a/b", "/a", "../a", "a b", "a_b", "a~", "~1", "a\x00", "ä", "a\n", "a\\b", "LOCK",
		strings.Repeat("x", file.NameBytesMax+1),
	}
	for _, name := range refused {
		_, createErr := store.Create(t.Context(), name)
		_, openErr := store.Open(t.Context(), name)
		settleErr := store.Settle(t.Context(), name)
		deleteErr := store.Delete(t.Context(), name)
		for _, err := range []error{createErr, openErr, settleErr, deleteErr} {
			var refusal *file.NameError
			if !errors.Is(err, file.ErrName) || !errors.As(err, &refusal) || refusal.Name != name {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// testUnsealed checks that an unsealed file is invisible, and that an aborted one leaves nothing.
func testUnsealed(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	w := begin(t, store, "a", content(1, 1<<20))
	want(t, store, "a", nil)
	if err := store.Settle(t.Context(), "a"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("settle: %v", err)
	}
	if err := store.Delete(t.Context(), "a"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("delete: %v", err)
	}
	for _, walk := range []func(context.Context) func(func(file.Info, error) bool){
		func(ctx context.Context) func(func(file.Info, error) bool) { return store.List(ctx) },
		func(ctx context.Context) func(func(file.Info, error) bool) { return store.Leftovers(ctx) },
	} {
		if got := names(t, walk(t.Context())); len(got) != 0 {
			t.Errorf("found %q", got)
		}
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	seal(t, store, "a", []byte("again"))
	want(t, store, "a", []byte("again"))
}

func testExists(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	refused := func(when string) {
		t.Helper()
		if _, err := store.Create(t.Context(), "a"); !errors.Is(err, file.ErrExists) {
			t.Errorf("create while %s: %v", when, err)
		}
	}
	w := begin(t, store, "a", []byte("first"))
	refused("being written")
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("sealed")
	settle(t, store, "a")
	refused("settled")
	want(t, store, "a", []byte("first"))
}

func testNotFound(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	want(t, store, "none", nil)
	if err := store.Settle(t.Context(), "none"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("settle: %v", err)
	}
	if err := store.Delete(t.Context(), "none"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("delete: %v", err)
	}
}

func testList(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	start := time.Now().Add(-time.Minute)
	for _, name := range []string{"one", "two", "three", "four"} {
		seal(t, store, name, []byte(name))
	}
	settle(t, store, "one")
	settle(t, store, "two")
	if err := store.Delete(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, store.List(t.Context())), " "); got != "four one* three" {
		t.Errorf("list: %s", got)
	}
	if got := strings.Join(names(t, store.Leftovers(t.Context())), " "); got != "four three" {
		t.Errorf("leftovers: %s", got)
	}
	for info, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != int64(len(info.Name)) || info.Time.Before(start) || info.Time.After(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", info)
		}
	}
	for _, err := range store.List(t.Context()) { // a walk may end early
		if err != nil {
			t.Error(err)
		}
		break
	}
}

// testReadWhileMoving opens files continuously while they are settled.
func testReadWhileMoving(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 100)
	for i := range 30 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		seal(t, store, name, data)
		moved := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for {
					want(t, store, name, data)
					select {
					case <-moved:
						return
					default:
					}
				}
			})
		}
		var movers sync.WaitGroup
		for range 2 {
			movers.Go(func() {
				if err := store.Settle(t.Context(), name); err != nil {
					t.Error(err)
				}
			})
		}
		movers.Wait()
		close(moved)
		readers.Wait()
	}
}

func testDeleteOpen(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 5000)
	seal(t, store, "a", data)
	f, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
	if err != nil || string(got) != string(data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(got, 0); !errors.Is(err, file.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := f.Close(); !errors.Is(err, file.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
}

// testOtherServer checks that servers see each other's sealed files, settle them and have leftovers
// of their own only.
func testOtherServer(t *testing.T, h Harness) {
	t.Helper()
	if h.Other == nil {
		t.Skip("this store has one server only")
	}
	store := h.open(t)
	other := h.Other(t, store)
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	seal(t, store, "mine", []byte("m"))
	seal(t, other, "theirs", []byte("t"))
	want(t, store, "theirs", []byte("t"))
	want(t, other, "mine", []byte("m"))
	if got := strings.Join(names(t, store.Leftovers(t.Context())), " "); got != "mine" {
		t.Errorf("leftovers: %s", got)
	}
	if got := strings.Join(names(t, store.List(t.Context())), " "); got != "mine theirs" {
		t.Errorf("list: %s", got)
	}
	settle(t, store, "theirs")
	if err := other.Delete(t.Context(), "mine"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(names(t, other.List(t.Context())), " "); got != "theirs*" {
		t.Errorf("list: %s", got)
	}
}
