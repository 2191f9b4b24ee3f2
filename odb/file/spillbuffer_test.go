package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
)

// countingFiles counts the scratch files of a store that are open, and fails when told to.
type countingFiles struct {
	file.Store
	open, most int
	err        error
}

func (c *countingFiles) Scratch(ctx context.Context) (file.Scratch, error) {
	if c.err != nil {
		return nil, c.err
	}
	s, err := c.Store.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	c.open++
	c.most = max(c.most, c.open)
	return &countedScratch{s, c}, nil
}

type countedScratch struct {
	file.Scratch
	files *countingFiles
}

func (s *countedScratch) Close() error {
	s.files.open--
	return s.Scratch.Close()
}

func newCountingFiles(t *testing.T) *countingFiles {
	t.Helper()
	return &countingFiles{Store: openMem(t, vfs.NewCrashableMem(), "")}
}

func TestSpillBuffer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pieces []int
		spills bool
	}{
		"empty":          {nil, false},
		"as much as may": {[]int{40, 60}, false},
		"a byte more":    {[]int{40, 60, 1}, true},
		"at once":        {[]int{300_000}, true},
		"and more":       {[]int{1, 300_000, 0, 7}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := newCountingFiles(t)
			b := file.NewSpillBuffer(files, 100)
			var want []byte
			for i, size := range test.pieces {
				piece := bytes.Repeat([]byte{byte('a' + i)}, size)
				if err := b.Write(t.Context(), piece); err != nil {
					t.Fatal(err)
				}
				want = append(want, piece...)
				clear(piece) // the buffer keeps none of it
				wantSpilled(t, b, want)
			}
			if content, ok := b.InMemory(); ok == test.spills || ok && !bytes.Equal(content, want) {
				t.Errorf("%d bytes in memory, %t", len(content), ok)
			}
			if err := b.Spill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, ok := b.InMemory(); ok || files.open != 1 {
				t.Errorf("spilled, it is in memory: %t; %d scratch files", ok, files.open)
			}
			wantSpilled(t, b, want)
			for range 2 {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
			if files.open != 0 {
				t.Errorf("%d scratch files are left", files.open)
			}
		})
	}
}

// wantSpilled reads the buffer in every way.
func wantSpilled(t *testing.T, b *file.SpillBuffer, want []byte) {
	t.Helper()
	if b.Size() != int64(len(want)) {
		t.Errorf("size %d, want %d", b.Size(), len(want))
	}
	var all bytes.Buffer
	if n, err := b.WriteTo(&all); err != nil || n != int64(len(want)) || !bytes.Equal(all.Bytes(), want) {
		t.Errorf("WriteTo of %d bytes: %d, %v", len(want), n, err)
	}
	got, err := io.ReadAll(iotest.OneByteReader(io.NewSectionReader(b, int64(len(want)/2), 100)))
	if part := want[len(want)/2:]; err != nil || !bytes.Equal(got, part[:min(len(part), 100)]) {
		t.Errorf("ReadAt in the middle: %d bytes, %v", len(got), err)
	}
	if n, err := b.ReadAt(make([]byte, 1), int64(len(want))); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt behind the end: %d, %v", n, err)
	}
	if _, err := b.ReadAt(make([]byte, 1), -1); !errors.Is(err, file.ErrRange) {
		t.Errorf("ReadAt before the start: %v", err)
	}
}

// TestSpillBufferFails looks at a buffer that gets no scratch file.
func TestSpillBufferFails(t *testing.T) {
	t.Parallel()
	files := newCountingFiles(t)
	files.err = errFault
	b := file.NewSpillBuffer(files, 100)
	if err := b.Write(t.Context(), make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), make([]byte, 1)); !errors.Is(err, errFault) {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
