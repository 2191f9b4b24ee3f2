package odb_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// writeArriving writes a blob that grows by steps of at most stepMax bytes.
func writeArriving(d *odbtest.Draft, random *rand.Rand, data []byte, stepMax int) object.ID {
	d.Helper()
	a := d.Quarantine.NewArrival(bytes.NewReader(data))
	for size := 0; size < len(data); {
		size = min(size+1+random.IntN(stepMax), len(data))
		d.Must(a.Grow(d.Context(), int64(size)))
	}
	id, err := a.Finish(d.Context(), int64(len(data)))
	d.Must(err)
	d.Must(a.Close())
	return d.Expect(id, object.TypeBlob, data)
}

func TestArrival(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 7))
	d := w.Draft()
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 + 77} {
		writeArriving(d, random, odbtest.Noise(random, size), 1<<20)
		writeArriving(d, random, odbtest.Text(random, size), 3<<20)
		half := size / 2
		mixed := slices.Concat(odbtest.Text(random, half), odbtest.Noise(random, size-half))
		writeArriving(d, random, mixed, 300_000)
		writeArriving(d, random, mixed, 2<<20) // it is there already
		if got, want := writeArriving(d, random, mixed, 1<<20), d.WriteFrom(mixed); got != want {
			t.Errorf("%d bytes that arrive are %s, and %s at once", size, got, want)
		}
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) { checkRegions(t, v) })
	w.Reopen()
	w.CheckAll()
}

// failingAt is a content that cannot be read from an offset on.
type failingAt struct {
	io.ReaderAt
	offset int64
	err    error
}

func (f failingAt) ReadAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > f.offset {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, offset)
}

// TestArrivalFails looks at blobs that do not arrive: their quarantine takes others all the same.
func TestArrivalFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{Limits: odb.Limits{ObjectBytes: 4 << 20}})
	random := rand.New(rand.NewPCG(1, 8))
	broken := errors.New("broken")
	content := odbtest.Noise(random, 3<<20)
	gone, leave := context.WithCancel(t.Context())
	leave()
	tests := map[string]struct {
		ctx     context.Context
		content io.ReaderAt
		size    int64
		err     error
	}{
		"over the limit":  {t.Context(), bytes.NewReader(make([]byte, 5<<20)), 5 << 20, odb.ErrTooLarge},
		"shorter":         {t.Context(), bytes.NewReader(content), 3<<20 + 1, io.ErrUnexpectedEOF},
		"much shorter":    {t.Context(), bytes.NewReader(content), 4 << 20, io.ErrUnexpectedEOF},
		"broken":          {t.Context(), failingAt{bytes.NewReader(content), 2<<20 + 5, broken}, 3 << 20, broken},
		"nobody waits":    {gone, bytes.NewReader(content), 3 << 20, context.Canceled},
		"never completed": {t.Context(), bytes.NewReader(content), 0, nil},
	}
	d := w.Draft()
	for name, test := range tests {
		a := d.Quarantine.NewArrival(test.content)
		err := a.Grow(test.ctx, max(test.size-1<<20, 2<<20))
		if err == nil && test.size > 0 {
			_, err = a.Finish(test.ctx, test.size)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	writeArriving(d, random, odbtest.Text(random, 2<<20), 1<<20)
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) { checkRegions(t, v) })
}
