package filetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/file"
)

func testWriter(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 900_000)
	w := begin(t, store, "a", nil)
	for rest := data; len(rest) > 0; { // pieces that do not align with any buffer
		n := min(70_001, len(rest))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if w.Size() != int64(len(data)) {
		t.Errorf("size %d", w.Size())
	}
	got, err := io.ReadAll(io.NewSectionReader(w, 0, w.Size()))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read back %d bytes, %v", len(got), err)
	}
	for _, at := range []int{0, 255, 300_000, len(data) - 7} {
		copy(data[at:], "patched")
		if _, err := w.WriteAt([]byte("patched"), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, offset := range []int64{-1, int64(len(data)) - 6, int64(len(data)), 1 << 40} {
		if _, err := w.WriteAt([]byte("patched"), offset); !errors.Is(err, file.ErrRange) {
			t.Errorf("write at %d: %v", offset, err)
		}
	}
	if n, err := w.ReadAt(make([]byte, 10), int64(len(data))-4); n != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("read across the end: %d, %v", n, err)
	}
	if n, err := w.ReadAt(make([]byte, 10), int64(len(data))); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read behind the end: %d, %v", n, err)
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, store, "a", data)
}

// testWriterModel compares a writer with a slice over random writes and reads.
func testWriterModel(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	rapid.Check(t, func(rt *rapid.T) {
		w, err := store.Create(t.Context(), "model")
		if err != nil {
			rt.Fatal(err)
		}
		model := exercise(rt, w, false)
		if err := w.Seal(t.Context()); err != nil {
			rt.Fatal(err)
		}
		want(t, store, "model", append([]byte{}, model...))
		if err := store.Delete(t.Context(), "model"); err != nil {
			rt.Fatal(err)
		}
	})
}

// spool is the common interface of writers and scratch files.
type spool interface {
	io.Writer
	io.ReaderAt
	io.WriterAt
	Size() int64
}

// exercise writes to w and to a slice, compares what they read, and returns the slice.
func exercise(t *rapid.T, w spool, sparse bool) []byte {
	var model []byte
	size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 600_000))
	for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
		piece := content(uint64(step), size.Draw(t, "size"))
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0, 1:
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			model = append(model, piece...)
		case 2:
			end := len(model)
			if sparse {
				end += 1000
			}
			at := rapid.IntRange(0, end).Draw(t, "at")
			if !sparse {
				piece = piece[:min(len(piece), len(model)-at)]
			}
			if n, err := w.WriteAt(piece, int64(at)); n != len(piece) || err != nil {
				t.Fatalf("write %d at %d of %d: %d, %v", len(piece), at, len(model), n, err)
			}
			if grow := at + len(piece) - len(model); grow > 0 && len(piece) > 0 {
				model = append(model, make([]byte, grow)...)
			}
			if len(piece) > 0 {
				copy(model[at:], piece)
			}
		case 3:
			at := rapid.IntRange(0, len(model)).Draw(t, "from")
			got := make([]byte, len(piece))
			n, err := w.ReadAt(got, int64(at))
			expected := model[at:min(at+len(piece), len(model))]
			if !bytes.Equal(got[:n], expected) || (n < len(got)) != errors.Is(err, io.EOF) && len(got) > 0 {
				t.Fatalf("read %d at %d of %d: %d, %v", len(got), at, len(model), n, err)
			}
		}
		if w.Size() != int64(len(model)) {
			t.Fatalf("size %d, want %d", w.Size(), len(model))
		}
	}
	return model
}

// testWriterEnd checks the state of a writer after its end.
func testWriterEnd(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	ends := map[string]func(file.Writer) error{
		"sealed":  func(w file.Writer) error { return w.Seal(t.Context()) },
		"aborted": file.Writer.Abort,
	}
	for name, end := range ends {
		w := begin(t, store, name, []byte("data"))
		if err := end(w); err != nil {
			t.Fatal(err)
		}
		_, writeErr := w.Write([]byte("more"))
		_, writeAtErr := w.WriteAt([]byte("x"), 0)
		_, readErr := w.ReadAt(make([]byte, 1), 0)
		for _, err := range []error{writeErr, writeAtErr, readErr, w.Seal(t.Context())} {
			if !errors.Is(err, file.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for range 2 {
			if err := w.Abort(); err != nil {
				t.Errorf("%s: abort: %v", name, err)
			}
		}
	}
	want(t, store, "sealed", []byte("data"))
	want(t, store, "aborted", nil)
}

func testScratch(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	first, err := store.Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := store.Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []file.Scratch{first, second} {
		if _, err := s.Write(content(uint64(i), 300_000)); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, store.List(t.Context())); len(got) != 0 {
		t.Errorf("scratch files are listed: %q", got)
	}
	for i, s := range []file.Scratch{first, second} {
		got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
		if err != nil || !bytes.Equal(got, content(uint64(i), 300_000)) {
			t.Errorf("scratch file %d: %d bytes, %v", i, len(got), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.ReadAt(got, 0); !errors.Is(err, file.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if err := s.Close(); !errors.Is(err, file.ErrClosed) {
			t.Errorf("close again: %v", err)
		}
	}
}

func testScratchModel(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	rapid.Check(t, func(rt *rapid.T) {
		s, err := store.Scratch(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		model := exercise(rt, s, true)
		got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()+1))
		if err != nil || !bytes.Equal(got, model) {
			rt.Errorf("%d bytes, want %d, %v", len(got), len(model), err)
		}
		if err := s.Close(); err != nil {
			rt.Error(err)
		}
	})
}
