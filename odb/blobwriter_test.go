package odb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// writePieces writes a blob in pieces of at most pieceMax bytes.
func writePieces(d *odbtest.Draft, random *rand.Rand, data []byte, pieceMax int) object.ID {
	d.Helper()
	b := d.Quarantine.NewBlob(object.ZeroID)
	for rest := data; len(rest) > 0; {
		piece := bytes.Clone(rest[:min(len(rest), 1+random.IntN(pieceMax))])
		rest = rest[len(piece):]
		d.Must(b.Write(d.Context(), piece))
		clear(piece) // the writer keeps none of it
	}
	id, err := b.Commit(d.Context())
	d.Must(err)
	d.Must(b.Close())
	return d.Expect(id, object.TypeBlob, data)
}

func TestBlobWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 7))
	d := w.Draft()
	sizes := []int{0, 1, 512 << 10, 512<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 + 77}
	if testing.Short() {
		sizes = []int{0, 512<<10 + 1, 1 << 20, 2<<20 + 77}
	}
	for _, size := range sizes {
		writePieces(d, random, odbtest.Noise(random, size), 1<<20)
		writePieces(d, random, odbtest.Text(random, size), 3<<20)
		half := size / 2
		mixed := slices.Concat(odbtest.Text(random, half), odbtest.Noise(random, size-half))
		writePieces(d, random, mixed, 300_000)
		writePieces(d, random, mixed, 4<<20) // it is there already
		if got, want := writePieces(d, random, mixed, 1<<20), d.WriteFrom(mixed); got != want {
			t.Errorf("%d bytes in pieces are %s, and %s at once", size, got, want)
		}
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) { checkRegions(t, v) })
	w.Reopen()
	w.CheckAll()
}

// TestBlobWriterDelta writes the next version of a blob in pieces, as a delta of its predecessor.
func TestBlobWriterDelta(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 9))
	first := odbtest.Text(random, 50_000)
	second := odbtest.Edited(random, first)
	d := w.Draft()
	predecessor := d.Write(object.TypeBlob, first, object.ZeroID)
	before := d.Quarantine.PackedBytes()
	b := d.Quarantine.NewBlob(predecessor)
	d.Must(b.Write(t.Context(), second[:100]))
	d.Must(b.Write(t.Context(), second[100:]))
	id, err := b.Commit(t.Context())
	d.Must(err)
	d.Must(b.Close())
	d.Expect(id, object.TypeBlob, second)
	if grown := d.Quarantine.PackedBytes() - before; grown > 1000 {
		t.Errorf("a small edit takes %d bytes", grown)
	}
	d.Commit()
	w.CheckAll()
}

// watchedFiles counts the scratch files that are open, and fails their operations when told to.
type watchedFiles struct {
	file.Store
	open, most  atomic.Int64
	write, read error
}

func (f *watchedFiles) Scratch(ctx context.Context) (file.Scratch, error) {
	s, err := f.Store.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	f.most.Store(max(f.most.Load(), f.open.Add(1)))
	return &watchedScratch{s, f}, nil
}

type watchedScratch struct {
	file.Scratch
	files *watchedFiles
}

func (s *watchedScratch) WriteAt(p []byte, offset int64) (int, error) {
	if s.files.write != nil {
		return 0, s.files.write
	}
	return s.Scratch.WriteAt(p, offset)
}

func (s *watchedScratch) ReadAt(p []byte, offset int64) (int, error) {
	if s.files.read != nil {
		return 0, s.files.read
	}
	return s.Scratch.ReadAt(p, offset)
}

func (s *watchedScratch) Close() error {
	s.files.open.Add(-1)
	return s.Scratch.Close()
}

// watchFiles makes the world use watched files from now on.
func (w *world) watchFiles() *watchedFiles {
	w.Helper()
	files := new(watchedFiles)
	w.OpenFiles = func() file.Store {
		dir, err := file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(w.FS)})
		w.Must(err)
		files.Store = dir
		return files
	}
	w.Reopen()
	return files
}

// TestBlobWritersInTurn writes many blobs a piece of each at a time: what memory has no room for
// lies in one scratch file, which goes with the last of them.
func TestBlobWritersInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	files := w.watchFiles()
	random := rand.New(rand.NewPCG(1, 10))
	d := w.Draft()
	type arriving struct {
		*odb.BlobWriter
		data []byte
		sent int
	}
	var blobs []*arriving
	for i := range 300 {
		size := 1 + random.IntN(5000)
		if i%60 == 0 {
			size = 1<<20 + random.IntN(3<<20)
		}
		data := slices.Concat(fmt.Append(nil, i), odbtest.Text(random, size))
		blobs = append(blobs, &arriving{BlobWriter: d.Quarantine.NewBlob(object.ZeroID), data: data})
	}
	for len(blobs) > 0 {
		i := random.IntN(len(blobs))
		b := blobs[i]
		piece := b.data[b.sent:min(len(b.data), b.sent+1+random.IntN(1+len(b.data)/3))]
		d.Must(b.Write(t.Context(), piece))
		if b.sent += len(piece); b.sent < len(b.data) {
			continue
		}
		if random.IntN(10) > 0 {
			id, err := b.Commit(t.Context())
			d.Must(err)
			d.Expect(id, object.TypeBlob, b.data)
		}
		d.Must(b.Close())
		d.Must(b.Close())
		blobs = slices.Delete(blobs, i, i+1)
	}
	if open, most := files.open.Load(), files.most.Load(); open != 0 || most != 1 {
		t.Errorf("%d scratch files are open, and %d were at a time, want 0 and 1", open, most)
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) { checkRegions(t, v) })
}

// TestBlobWriterInMemory writes small blobs in pieces, and no scratch file.
func TestBlobWriterInMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	files := w.watchFiles()
	random := rand.New(rand.NewPCG(1, 11))
	d := w.Draft()
	for range 3 {
		writePieces(d, random, odbtest.Noise(random, 512<<10), 100_000)
	}
	if most := files.most.Load(); most != 0 {
		t.Errorf("%d scratch files", most)
	}
	d.Commit()
	w.CheckAll()
}

// TestBlobWriterFails looks at blobs that are not completed: their quarantine takes others all the
// same, and nothing of them is left.
func TestBlobWriterFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	gone, leave := context.WithCancel(t.Context())
	leave()
	tests := map[string]struct {
		ctx         context.Context
		size        int
		write, read error
		err         error
	}{
		"over the limit":      {ctx: t.Context(), size: 4<<20 + 1, err: odb.ErrTooLarge},
		"nobody waits":        {ctx: gone, size: 3 << 20, err: context.Canceled},
		"disk takes nothing":  {ctx: t.Context(), size: 3 << 20, write: broken, err: broken},
		"disk gives nothing":  {ctx: t.Context(), size: 3 << 20, read: broken, err: broken},
		"small, from memory":  {ctx: t.Context(), size: 500 << 10, write: broken, read: broken},
		"small, from scratch": {ctx: t.Context(), size: 600 << 10, read: broken, err: broken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{Limits: odb.Limits{ObjectBytes: 4 << 20}})
			files := w.watchFiles()
			random := rand.New(rand.NewPCG(1, 8))
			content := odbtest.Text(random, test.size)
			d := w.Draft()
			begun := d.Quarantine.NewBlob(object.ZeroID) // and never completed
			d.Must(begun.Write(t.Context(), odbtest.Noise(random, 600<<10)))
			files.write, files.read = test.write, test.read
			b := d.Quarantine.NewBlob(object.ZeroID)
			err := b.Write(test.ctx, content[:len(content)/2])
			if err == nil {
				err = b.Write(test.ctx, content[len(content)/2:])
			}
			if err == nil {
				_, err = b.Commit(test.ctx)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			d.Must(b.Close())
			d.Must(begun.Close())
			files.write, files.read = nil, nil
			if open := files.open.Load(); open != 0 {
				t.Errorf("%d scratch files are left", open)
			}
			writePieces(d, random, odbtest.Text(random, 2<<20), 1<<20)
			d.Commit()
			w.CheckAll()
			w.With(func(v *odb.View) { checkRegions(t, v) })
		})
	}
}
