package filetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"packhorse/odb/file"
)

// open opens a sealed file, which is closed when the test ends.
func open(t *testing.T, store file.Store, name string) file.File {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return f
}

// testRead reads pieces of a file, also beyond its end.
func testRead(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 3_000_000)
	seal(t, store, "a", data)
	f := open(t, store, "a")
	if f.Size() != int64(len(data)) {
		t.Errorf("size %d, want %d", f.Size(), len(data))
	}
	for _, piece := range []struct{ offset, size int }{
		{0, 0},
		{0, 1},
		{0, len(data)},
		{1 << 20, 10},
		{1<<20 - 5, 10},
		{2_999_990, 10},
		{2_999_995, 10},
		{100, 2_500_000},
		{len(data), 10},
		{len(data) + 5, 1},
	} {
		got := make([]byte, piece.size)
		n, err := f.ReadAt(t.Context(), got, int64(piece.offset))
		expected := data[min(piece.offset, len(data)):min(piece.offset+piece.size, len(data))]
		if !bytes.Equal(got[:n], expected) {
			t.Errorf("%d bytes at %d: %d, or others", piece.size, piece.offset, n)
		}
		if atEnd := errors.Is(err, io.EOF); n < len(got) && !atEnd || err != nil && !atEnd {
			t.Errorf("%d bytes at %d: %d, %v", piece.size, piece.offset, n, err)
		}
	}
	if _, err := f.ReadAt(t.Context(), make([]byte, 1), -1); err == nil {
		t.Error("a read before the begin succeeds")
	}
	got, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 1000, 2000))
	if err != nil || !bytes.Equal(got, data[1000:3000]) {
		t.Errorf("a section: %d bytes, %v", len(got), err)
	}
}

// testCached checks that hints change nothing of what is read.
func testCached(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 3_000_000)
	seal(t, store, "a", data)
	f := open(t, store, "a")
	cached, ok := f.(file.Cached)
	if !ok {
		t.Skip("the files of this store are not cached")
	}
	for _, at := range []struct{ offset, size int64 }{
		{0, 0}, {0, 1}, {1 << 20, 1 << 20}, {2_999_999, 10}, {3_000_000, 1}, {1 << 40, 1}, {0, 1 << 40},
	} {
		for _, hint := range []func(offset, size int64){cached.Prefetch, cached.Forget, cached.Prefetch} {
			hint(at.offset, at.size)
			got := make([]byte, 100)
			begin := min(at.offset, f.Size()-100)
			if n, err := f.ReadAt(t.Context(), got, begin); n < len(got) || !bytes.Equal(got, data[begin:begin+100]) {
				t.Errorf("a hint about %d bytes at %d: %d, %v", at.size, at.offset, n, err)
			}
		}
	}
}
