package filetest

import (
	"errors"
	"io"
	"strings"
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
		deleteErr := store.Delete(t.Context(), name)
		for _, err := range []error{createErr, openErr, deleteErr} {
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
	missing(t, store.Delete(t.Context(), "a"))
	if got := names(t, store.List(t.Context())); len(got) != 0 {
		t.Errorf("found %q", got)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	seal(t, store, "a", []byte("again"))
	want(t, store, "a", []byte("again"))
}

// testExists checks that a name is taken while a file of it is written, and that a second file does
// not come in place of a stored one.
func testExists(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	refused := func(when string) {
		t.Helper()
		w, err := store.Create(t.Context(), "a")
		if err == nil && when != "being written" {
			if _, err = w.Write([]byte("second")); err == nil {
				err = w.Seal(t.Context())
			}
		}
		if !errors.Is(err, file.ErrExists) {
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
	missing(t, store.Delete(t.Context(), "none"))
	seal(t, store, "some", []byte("data"))
	if err := store.Delete(t.Context(), "some"); err != nil {
		t.Error(err)
	}
	missing(t, store.Delete(t.Context(), "some"))
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
	if got := strings.Join(names(t, store.List(t.Context())), " "); got != "four one three" {
		t.Errorf("list: %s", got)
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

// testDeleteOpen reads an open file that has been deleted: its bytes, unless they are no more to be
// had.
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
	got, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()))
	if !errors.Is(err, file.ErrNotFound) && (err != nil || string(got) != string(data)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, file.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := f.Close(); !errors.Is(err, file.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
}

// testOtherServer checks that servers see and delete each other's sealed files.
func testOtherServer(t *testing.T, h Harness) {
	t.Helper()
	store, other := h.two(t)
	seal(t, store, "mine", []byte("m"))
	seal(t, other, "theirs", []byte("t"))
	want(t, store, "theirs", []byte("t"))
	want(t, other, "mine", []byte("m"))
	if got := strings.Join(names(t, store.List(t.Context())), " "); got != "mine theirs" {
		t.Errorf("list: %s", got)
	}
	settle(t, store, "theirs")
	if err := other.Delete(t.Context(), "mine"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(names(t, other.List(t.Context())), " "); got != "theirs" {
		t.Errorf("list: %s", got)
	}
}
