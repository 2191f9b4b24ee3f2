package odb_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/segment"
)

// memoryFile is a file in memory.
type memoryFile struct{ *bytes.Reader }

func (m memoryFile) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	return m.Reader.ReadAt(p, offset)
}

func (memoryFile) Close() error { return nil }

// passesCheck checks a file that is read in pieces of some bytes.
func passesCheck(name string, content []byte, piece int) error {
	c, err := segment.CheckFile(context.Background(), name, memoryFile{bytes.NewReader(content)})
	if err != nil {
		return err
	}
	for rest := content; len(rest) > 0; {
		n, err := c.Write(rest[:min(piece, len(rest))])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return c.End()
}

// TestFileCheck holds every kind of file against its own checksums: as it is, and with one bit
// changed, cut off or made longer anywhere.
func TestFileCheck(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	_, err := w.Store.StoreVisibilityFile(t.Context(), w.forkOf(w.commits()[0]))
	w.Must(err)
	w.Reopen()
	random := rand.New(rand.NewPCG(21, 22))
	kinds := map[string]bool{}
	for _, name := range listFiles(t, w) {
		content := readAll(t, w.FS, name)
		base := path.Base(name)
		kinds[path.Ext(base)] = true
		for _, piece := range []int{1, 1000, len(content)} {
			if err := passesCheck(base, content, piece); err != nil {
				t.Fatalf("%s, %d bytes at a time: %v", base, piece, err)
			}
		}
		wrong := func(what string, damaged []byte) {
			t.Helper()
			if err := passesCheck(base, damaged, 4096); !errors.Is(err, odb.ErrCorrupt) {
				t.Errorf("%s %s of %d bytes: %v", base, what, len(content), err)
			}
		}
		for range rounds(400) {
			damaged := bytes.Clone(content)
			damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			wrong("with another bit", damaged)
		}
		for _, near := range []int{0, 1, 4, 20, 40} { // headers and footers
			for _, at := range []int{near, len(content) - 1 - near} {
				damaged := bytes.Clone(content)
				damaged[at] ^= 0x10
				wrong("with another bit at an end", damaged)
			}
		}
		for range rounds(20) {
			wrong("cut off", content[:random.IntN(len(content))])
		}
		wrong("with a byte more", append(bytes.Clone(content), 0))
		wrong("twice", append(bytes.Clone(content), content...))
	}
	if len(kinds) != 7 {
		t.Errorf("kinds of files: %v", kinds)
	}
	if err := passesCheck("stranger.txt", []byte("x"), 1); !errors.Is(err, odb.ErrCorrupt) {
		t.Errorf("a file of no pool: %v", err)
	}
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}
