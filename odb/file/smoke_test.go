package file_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
)

func TestSmoke(t *testing.T) {
	d, err := file.OpenDir("x/files", file.DirOptions{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Create(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("hello"))
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, err := range d.Leftovers(t.Context()) {
		t.Log(i, err)
	}
	if err := d.Settle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := d.Settle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for i, err := range d.List(t.Context()) {
		t.Log(i, err)
	}
	f, err := d.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 5)
	f.ReadAt(p, 0)
	t.Logf("%s", p)
	s, err := d.Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Write([]byte("abc"))
	s.WriteAt([]byte("xyz"), 10)
	p = make([]byte, 13)
	n, err := s.ReadAt(p, 0)
	t.Logf("%d %v %q", n, err, p)
	s.Close()
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
