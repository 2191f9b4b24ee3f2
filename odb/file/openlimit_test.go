package file_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
)

// Files beyond the limit are refused until others have been closed; sealed ones count only where
// that is wanted.
func TestOpenLimit(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	limit := file.NewOpenLimit(2)
	dir, err := file.OpenDir("files", file.DirOptions{FS: limit.Created(fs)})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(t, dir, "a", []byte("data")); err != nil {
		t.Fatal(err)
	}
	scratch, err := dir.Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	written, err := dir.Create(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Scratch(t.Context()); !errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a third file: %v", err)
	}
	if _, err := dir.Create(t.Context(), "c"); !errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a third file: %v", err)
	}
	sealed, err := dir.Open(t.Context(), "a")
	if err != nil {
		t.Errorf("a sealed file: %v", err)
	}
	other := limit.Opened(fs)
	if _, err := other.Open("files/incoming/local/a"); !errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a file of another file system: %v", err)
	}
	if _, err := other.Open("absent"); !errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a file that is absent: %v", err)
	}
	if err := scratch.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open("absent"); err == nil || errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a file that is absent, when there is room: %v", err)
	}
	opened, err := other.Open("files/incoming/local/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Scratch(t.Context()); !errors.Is(err, file.ErrManyOpen) {
		t.Errorf("a third file: %v", err)
	}
	if err := errors.Join(opened.Close(), written.Seal(t.Context()), sealed.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := dir.Scratch(t.Context()); err != nil {
			t.Errorf("when all have been closed: %v", err)
		}
	}
	if (*file.OpenLimit)(nil).Created(fs) != vfs.FS(fs) {
		t.Error("no limit is one")
	}
}
