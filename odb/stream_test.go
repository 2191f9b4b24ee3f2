package odb_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// largePack returns a pack with an object over 32 MiB and deltas against it that build a large and
// a small object. objects are all objects of the pack.
func largePack(t *testing.T) (packed []byte, objects []odbtest.Content) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	base := bytes.Repeat(odbtest.Text(random, 1<<16), segment.WholeMax>>16+1)
	base = append(base, odbtest.Noise(random, 1000)...)
	large := append(bytes.Clone(base[:40]), base...)
	small := bytes.Clone(base[1000:5000])
	var out bytes.Buffer
	w := packtest.NewWriter(&out, 4, pack.LevelFast)
	must := func(e pack.Entry, err error) pack.Entry {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	below := func(base, target []byte) []byte {
		program, ok := delta.NewIndex(base).Create(nil, target, len(target)+100)
		if !ok {
			t.Fatal("no delta")
		}
		return program
	}
	first := must(w.WriteWhole(object.TypeBlob, base))
	second := must(w.WriteOFSDelta(first.Offset, below(base, large)))
	must(w.WriteOFSDelta(second.Offset, below(large, small)))
	must(w.WriteWhole(object.TypeBlob, odbtest.Noise(random, 2<<20)))
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	random = rand.New(rand.NewPCG(1, 2))
	odbtest.Text(random, 1<<16)
	odbtest.Noise(random, 1000)
	for _, data := range [][]byte{base, large, small, odbtest.Noise(random, 2<<20)} {
		objects = append(objects, odbtest.Content{Type: object.TypeBlob, Data: data})
	}
	return out.Bytes(), objects
}

func TestLargeObjects(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("hundreds of MiB")
	}
	w := newWorld(t, odb.Options{})
	packed, objects := largePack(t)
	d := w.Draft()
	d.AddPack(packed)
	for _, c := range objects {
		id, err := object.Hash(c.Type, c.Data)
		w.Must(err)
		d.Expect(id, c.Type, c.Data)
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) {
		for id, c := range w.Objects {
			_, _, err := v.Read(t.Context(), id)
			if large := len(c.Data) > segment.WholeMax; errors.Is(err, odb.ErrTooLarge) != large {
				t.Errorf("Read of %d bytes: %v", len(c.Data), err)
			}
			checkSections(t, v, id, c.Data)
		}
	})
	report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
	if err != nil || report.ProblemCount > 0 {
		t.Fatalf("fsck: %+v, %v", report, err)
	}
}

// TestLargeHotObjects stores small values that inflate to more than fits into memory, as a push may
// bring them.
func TestLargeHotObjects(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("dozens of MiB")
	}
	w := newWorld(t, odb.Options{})
	large := bytes.Repeat([]byte{7}, segment.WholeMax+5)
	small := large[:5000]
	d := w.Draft()
	var base object.ID
	for _, data := range [][]byte{large, small} {
		id, err := object.Hash(object.TypeBlob, data)
		w.Must(err)
		stored := data
		if !base.IsZero() {
			var ok bool
			if stored, ok = delta.NewIndex(large).Create(nil, small, 1000); !ok {
				t.Fatal("no delta")
			}
		}
		d.AddHot(id, object.TypeBlob, int64(len(data)), base, stored)
		base = d.Expect(id, object.TypeBlob, data)
	}
	for id, c := range d.Objects {
		w.Check(d.Quarantine.View(), id, c)
	}
	d.Commit()
	w.CheckAll()
}

func TestSectionsOfBlockStreams(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("dozens of MiB")
	}
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	const mebibyte = 1 << 20
	d := w.Draft()
	d.Write(object.TypeBlob, nil, object.ZeroID)
	d.Write(object.TypeBlob, []byte("short"), object.ZeroID)
	for _, size := range []int{mebibyte, mebibyte + 1, 2 * mebibyte, 3*mebibyte + 12345} {
		d.WriteFrom(odbtest.Text(random, size))
		d.WriteFrom(odbtest.Noise(random, size))
	}
	for id, c := range d.Objects { // while the segment is being written
		checkSections(t, d.Quarantine.View(), id, c.Data)
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) {
		for id, c := range w.Objects {
			checkSections(t, v, id, c.Data)
		}
	})
}

// checkSections reads ranges around the ends of blocks and anywhere.
func checkSections(t *testing.T, v *odb.View, id object.ID, want []byte) {
	t.Helper()
	o, err := v.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(9, 9))
	size := int64(len(want))
	ranges := [][2]int64{
		{0, size},
		{0, 0},
		{size, 10},
		{size - 1, 10},
		{1<<20 - 1, 2},
		{1 << 20, 1},
		{1<<20 + 1, 1 << 20},
		{-5, 3},
		{size + 7, 1},
	}
	if size > segment.WholeMax { // inflated from the beginning each time
		ranges = ranges[4:6]
	}
	for range 3 {
		off := random.Int64N(size + 1)
		ranges = append(ranges, [2]int64{off, random.Int64N(size - off + 1)})
	}
	for _, r := range ranges {
		off := min(max(r[0], 0), size)
		end := min(off+r[1], size)
		section, err := o.Section(r[0], r[1])
		if err != nil {
			t.Fatalf("Section(%d, %d) of %d: %v", r[0], r[1], size, err)
		}
		got, err := io.ReadAll(section)
		if err != nil || !bytes.Equal(got, want[off:end]) {
			t.Fatalf("Section(%d, %d) of %d: %d bytes, %v", r[0], r[1], size, len(got), err)
		}
		if err := section.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}
