package odb_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// largePack returns a pack with an object over 32 MiB, deltas against it that build a large and a
// small object, and what it holds.
func largePack(t *testing.T) (packed []byte, objects []content) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	base := bytes.Repeat(text(random, 1<<16), odb.WholeBytes>>16+1)
	base = append(base, noise(random, 1000)...)
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
	must(w.WriteWhole(object.TypeBlob, noise(random, 2<<20)))
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	random = rand.New(rand.NewPCG(1, 2))
	text(random, 1<<16)
	noise(random, 1000)
	for _, data := range [][]byte{base, large, small, noise(random, 2<<20)} {
		objects = append(objects, content{kind: object.TypeBlob, data: data})
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
	d := w.draft()
	w.must(d.q.AddPack(t.Context(), packed))
	for _, c := range objects {
		id, err := object.Hash(c.kind, c.data)
		w.must(err)
		d.expect(id, c.kind, c.data)
	}
	d.commit()
	w.checkAll()
	w.with(func(v *odb.View) {
		for id, c := range w.objects {
			_, _, err := v.Read(t.Context(), id)
			if large := len(c.data) > odb.WholeBytes; errors.Is(err, odb.ErrTooLarge) != large {
				t.Errorf("Read of %d bytes: %v", len(c.data), err)
			}
			checkSections(t, v, id, c.data)
		}
	})
	report, err := w.store.Fsck(t.Context(), w.pool, odb.FsckOptions{})
	if err != nil || report.ProblemCount > 0 {
		t.Fatalf("fsck: %+v, %v", report, err)
	}
}

// TestLargeHotObjects has small values that inflate to more than is held in memory, as a push may
// bring them.
func TestLargeHotObjects(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("dozens of MiB")
	}
	w := newWorld(t, odb.Options{})
	large := bytes.Repeat([]byte{7}, odb.WholeBytes+5)
	small := large[:5000]
	d := w.draft()
	var base object.ID
	for _, data := range [][]byte{large, small} {
		id, err := object.Hash(object.TypeBlob, data)
		w.must(err)
		stored := data
		if !base.IsZero() {
			var ok bool
			if stored, ok = delta.NewIndex(large).Create(nil, small, 1000); !ok {
				t.Fatal("no delta")
			}
		}
		w.must(d.q.AddHot(t.Context(), id, object.TypeBlob, int64(len(data)), base, stored))
		base = d.expect(id, object.TypeBlob, data)
	}
	for id, c := range d.objects {
		w.check(d.q.View(), id, c)
	}
	d.commit()
	w.checkAll()
}

func TestSectionsOfBlockStreams(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("dozens of MiB")
	}
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	const mebibyte = 1 << 20
	d := w.draft()
	d.write(object.TypeBlob, nil, object.ZeroID)
	d.write(object.TypeBlob, []byte("short"), object.ZeroID)
	for _, size := range []int{mebibyte, mebibyte + 1, 2 * mebibyte, 3*mebibyte + 12345} {
		d.writeFrom(text(random, size))
		d.writeFrom(noise(random, size))
	}
	for id, c := range d.objects { // while the segment is being written
		checkSections(t, d.q.View(), id, c.data)
	}
	d.commit()
	w.checkAll()
	w.with(func(v *odb.View) {
		for id, c := range w.objects {
			checkSections(t, v, id, c.data)
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
	if size > odb.WholeBytes { // inflated from the beginning each time
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
