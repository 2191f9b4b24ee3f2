package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
)

// sharing is a store whose scratch files share one.
type sharing struct {
	file.Store
	shared *file.SharedScratch
}

func (s sharing) Scratch(ctx context.Context) (file.Scratch, error) { return s.shared.Scratch(ctx) }

// TestSharedScratch holds files that share one to what is promised of scratch files.
func TestSharedScratch(t *testing.T) {
	t.Parallel()
	filetest.Run(t, filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			store := openMem(t, vfs.NewCrashableMem(), "")
			return sharing{store, file.NewSharedScratch(store)}
		},
	})
}

// TestSharedScratchPages writes files in turn, closes every other one and writes others, which take
// the pages of those: nobody reads what another wrote, and there is one file below as long as any
// is open.
func TestSharedScratchPages(t *testing.T) {
	t.Parallel()
	below := newCountingFiles(t)
	shared := file.NewSharedScratch(below)
	type written struct {
		file.Scratch
		want []byte
	}
	var files []*written
	more := func(count int) {
		for range count {
			s, err := shared.Scratch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, &written{Scratch: s})
		}
	}
	write := func() {
		for i, f := range files {
			piece := bytes.Repeat([]byte(fmt.Sprint(i, len(f.want))), 70_000+i)
			if _, err := f.Write(piece); err != nil {
				t.Fatal(err)
			}
			f.want = append(f.want, piece...)
		}
	}
	more(6)
	for range 5 {
		write()
	}
	for i := range 3 {
		if err := files[i].Close(); err != nil {
			t.Fatal(err)
		}
		files = append(files[:i], files[i+1:]...)
	}
	more(3)
	hollow := files[len(files)-1] // where another file has been
	if _, err := hollow.WriteAt([]byte("x"), 300_000); err != nil {
		t.Fatal(err)
	}
	hollow.want = append(make([]byte, 300_000), 'x')
	for range 5 {
		write()
	}
	for i, f := range files {
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err != nil || !bytes.Equal(got, f.want) {
			t.Errorf("file %d: %d bytes of %d are others or missing, %v", i, len(got), len(f.want), err)
		}
		if below.open != 1 {
			t.Errorf("%d files are open below", below.open)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if below.open != 0 || below.most != 1 {
		t.Errorf("%d files are open below, and %d were at a time", below.open, below.most)
	}
	files = nil
	more(1)
	write()
	if err := files[0].Close(); err != nil || below.open != 0 {
		t.Errorf("after the last: %v, %d files", err, below.open)
	}
}

// TestSharedScratchFails looks at files when that which they share does not open.
func TestSharedScratchFails(t *testing.T) {
	t.Parallel()
	below := newCountingFiles(t)
	shared := file.NewSharedScratch(below)
	below.err = errFault
	if _, err := shared.Scratch(t.Context()); !errors.Is(err, errFault) {
		t.Errorf("got %v", err)
	}
	below.err = nil
	s, err := shared.Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || below.open != 0 {
		t.Errorf("%v, %d files", err, below.open)
	}
}
