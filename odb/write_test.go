package odb_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// TestSkipDeltas writes many versions of one file, in writes of different sizes.
func TestSkipDeltas(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("thousands of versions")
	}
	const versions = 10_000
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	data := odbtest.Text(random, 3000)
	var id object.ID
	var ids []object.ID
	d := w.Draft()
	for range versions {
		id = d.Write(object.TypeBlob, data, id)
		ids = append(ids, id)
		data = odbtest.Edited(random, data)
		if random.IntN(50) == 0 {
			d.Commit()
			d = w.Draft()
		}
	}
	d.Commit()
	w.With(func(v *odb.View) {
		deepest, deltas, stored := 0, 0, int64(0)
		for _, id := range ids {
			depth := odbtest.Depth(t, v, id)
			e, err := v.Entry(t.Context(), id)
			w.Must(err)
			deepest = max(deepest, depth)
			stored += e.PayloadSize
			if e.Delta() {
				deltas++
			}
		}
		if deepest != 8 || deltas < versions*9/10 {
			t.Errorf("deepest chain %d, want 8; %d deltas", deepest, deltas)
		}
		if stored > versions*600 {
			t.Errorf("%d bytes stored for %d versions", stored, versions)
		}
	})
	w.Reopen()
	w.CheckAll()
}

// The chain below a version is never longer than that below an object of a pack may be: the next
// version of an object with the longest chain is stored whole, and so all of them stay readable.
func TestWriteAboveLongChain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	text := odbtest.Text(rand.New(rand.NewPCG(1, 12)), 2000)
	version := func(n int) []byte { return fmt.Appendf(bytes.Clone(text), "version %d\n", n) }
	entries := []packtest.Entry{packtest.Whole(object.TypeBlob, version(0))}
	for n := 1; n <= odb.DepthMax; n++ {
		entries = append(entries, packtest.Entry{
			Kind: pack.KindOFSDelta, Base: n - 1, Data: packtest.DeltaOf(t, version(n-1), version(n)),
		})
	}
	h := odbtest.NewPool(t, odb.Options{})
	_, err := h.Push(packtest.Encode(entries...), ingest.Options{})
	h.Must(err)
	v := h.View()
	q := v.NewQuarantine(ctx)
	defer func() { h.Must(q.Close()) }()
	written := make(map[object.ID][]byte)
	for below, firstIsDelta := range map[int]bool{
		odb.DepthMax: false, odb.DepthMax - 7: false, odb.DepthMax - 8: true, 0: true,
	} {
		id := packtest.Hash(t, object.TypeBlob, version(below))
		if depth := odbtest.Depth(t, v, id); depth != below {
			t.Fatalf("version %d of the pack has a chain of %d deltas", below, depth)
		}
		deepest := 0
		for n := range 20 {
			data := version(100_000*(below+1) + n)
			id, err = q.Write(ctx, object.TypeBlob, data, id)
			h.Must(err)
			written[id] = data
			depth := odbtest.Depth(t, q.View(), id)
			if deepest = max(deepest, depth); n == 0 && (depth > 0) != firstIsDelta {
				t.Errorf("above %d deltas the first version has %d", below, depth)
			}
		}
		if deepest > odb.DepthMax {
			t.Errorf("above %d deltas there are chains of %d", below, deepest)
		}
	}
	batch := kv.NewBatch()
	h.Must(q.Stage(ctx, batch))
	h.Apply(batch)
	q.Settled(ctx)

	other, err := odbtest.OpenOn(ctx, h.Keys, h.Files, odb.Options{}) // with nothing in its cache
	h.Must(err)
	defer func() { h.Must(other.Close(ctx)) }()
	after, err := other.View(ctx, h.ID)
	h.Must(err)
	defer func() { h.Must(after.Close()) }()
	for id, data := range written {
		if _, got, err := after.Read(ctx, id); err != nil || !bytes.Equal(got, data) {
			t.Errorf("version %s is %q, %v", id, got, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{Limits: odb.Limits{ObjectBytes: 2 << 20}})
	random := rand.New(rand.NewPCG(1, 2))
	ctx := t.Context()
	d := w.Draft()
	kept := d.WriteFrom(odbtest.Noise(random, 1<<20+1))
	broken := errors.New("broken")
	tests := map[string]struct {
		write func() (object.ID, error)
		err   error
	}{
		"blob over the limit": {
			write: func() (object.ID, error) { return d.Quarantine.WriteBlobFrom(ctx, bytes.NewReader(nil), 2<<20+1) },
			err:   odb.ErrTooLarge,
		},
		"tree over the limit": {
			write: func() (object.ID, error) {
				return d.Quarantine.Write(ctx, object.TypeTree, make([]byte, 2<<20+1), object.ZeroID)
			},
			err: odb.ErrTooLarge,
		},
		"small blob cut off": {
			write: func() (object.ID, error) { return d.Quarantine.WriteBlobFrom(ctx, strings.NewReader("abc"), 4) },
			err:   io.ErrUnexpectedEOF,
		},
		"large blob cut off": {
			write: func() (object.ID, error) {
				return d.Quarantine.WriteBlobFrom(ctx, bytes.NewReader(odbtest.Noise(random, 3<<19)), 2<<20)
			},
			err: io.ErrUnexpectedEOF,
		},
		"large blob with a broken source": {
			write: func() (object.ID, error) {
				r := io.MultiReader(bytes.NewReader(odbtest.Noise(random, 3<<19)), iotest.ErrReader(broken))
				return d.Quarantine.WriteBlobFrom(ctx, r, 2<<20)
			},
			err: broken,
		},
		"commit without its parent": {
			write: func() (object.ID, error) {
				return d.Quarantine.Write(ctx, object.TypeCommit, odbtest.CommitOf(object.EmptyTreeID, 1, kept), object.ZeroID)
			},
			err: odb.ErrNotFound,
		},
	}
	for name, test := range tests {
		if _, err := test.write(); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
	}
	var invalid *object.CheckError
	if _, err := d.Quarantine.Write(
		ctx, object.TypeTree, []byte("100644 a/b\x00"+strings.Repeat("x", 20)), object.ZeroID,
	); !errors.As(err, &invalid) {
		t.Errorf("invalid tree: %v, want a CheckError", err)
	}
	// Refused objects leave no trace in the segment that was being written.
	d.WriteFrom(odbtest.Text(random, 1<<20+100))
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) { checkRegions(t, v) })
}

func TestWriteOfWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	small, large := odbtest.Text(random, 500), odbtest.Noise(random, 2<<20)
	d := w.Draft()
	d.Write(object.TypeBlob, small, object.ZeroID)
	d.WriteFrom(large)
	d.WriteFrom(large)
	d.Write(object.TypeBlob, small, object.ZeroID)
	if d.Quarantine.Count() != 2 {
		t.Errorf("%d objects quarantined, want 2", d.Quarantine.Count())
	}
	d.Commit()
	d = w.Draft()
	d.Write(object.TypeBlob, small, object.ZeroID)
	d.WriteFrom(large)
	if d.Quarantine.Count() != 0 {
		t.Errorf("%d objects quarantined again", d.Quarantine.Count())
	}
	if b := d.Stage(); b.Count() != 1 { // the precondition alone
		t.Errorf("%d operations staged for nothing", b.Count())
	}
	d.Discard()
	w.CheckAll()
}

// TestTwoQuarantines writes the same objects twice at the same time: the second to commit adds
// nothing, and no delta comes to rest upon itself.
func TestTwoQuarantines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{CacheBytes: 1})
	random := rand.New(rand.NewPCG(1, 2))
	one := odbtest.Text(random, 5000)
	two := odbtest.Edited(random, one)
	a, b := w.Draft(), w.Draft()
	idOne := a.Write(object.TypeBlob, one, object.ZeroID)
	a.Write(object.TypeBlob, two, idOne)
	idTwo := b.Write(object.TypeBlob, two, object.ZeroID)
	b.Write(object.TypeBlob, one, idTwo)
	a.Commit()
	b.Commit()
	w.CheckAll()
	var stored int
	w.Must(countKeys(t, w.Keys, 'o', &stored))
	if stored != 2 {
		t.Errorf("%d hot objects stored, want 2", stored)
	}
}

func countKeys(t *testing.T, keys kv.Store, table byte, count *int) error {
	t.Helper()
	for _, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
		if err != nil {
			return err
		}
		*count++
	}
	return nil
}

func TestHotLimits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	tests := map[string]struct {
		sizes   []int
		segment bool
	}{
		"one small":     {sizes: []int{100}},
		"exactly 1,000": {sizes: slicesRepeat(10, 1000)},
		"1,001":         {sizes: slicesRepeat(10, 1001), segment: true},
		"128 KiB":       {sizes: []int{128<<10 - 20}},
		"over 128 KiB":  {sizes: []int{10, 128<<10 + 1, 10}, segment: true},
		"under 1 MiB":   {sizes: slicesRepeat(100<<10, 10)},
		"over 1 MiB":    {sizes: slicesRepeat(100<<10, 11), segment: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, odb.Options{})
			d := w.Draft()
			for _, size := range test.sizes {
				d.Write(object.TypeBlob, odbtest.Noise(random, size), object.ZeroID)
			}
			d.Commit()
			w.CheckAll()
			var hot int
			w.Must(countKeys(t, w.Keys, 'o', &hot))
			if (hot == 0) != test.segment {
				t.Errorf("%d hot objects", hot)
			}
		})
	}
}

func slicesRepeat(value, count int) []int {
	values := make([]int, count)
	for i := range values {
		values[i] = value
	}
	return values
}
