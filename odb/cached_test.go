package odb_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/segment"
)

// cacheFiles makes the world read its files as copies from afar, all of them damaged at first.
func (w *world) cacheFiles() *odbtest.CachedFiles {
	w.Helper()
	w.Must(w.Store.Close(w.Context()))
	files := &odbtest.CachedFiles{Store: w.Files}
	w.Files = files
	var err error
	w.Store, err = odbtest.OpenOn(w.Context(), w.Keys, files, w.Options)
	w.Must(err)
	return files
}

// clone returns a pack of everything.
func (w *world) clone() ([]byte, error) {
	var out bytes.Buffer
	var err error
	w.With(func(v *odb.View) {
		var plan *packgen.PackPlan
		if plan, err = packgen.Plan(w.Context(), v, packgen.Request{Wants: w.commits(), OFSDelta: true}, nil); err == nil {
			_, err = plan.WriteTo(w.Context(), &out, nil)
			err = errors.Join(err, plan.Close())
		}
	})
	return out.Bytes(), err
}

// TestDamagedCopies damages all copies of files that are not fetched twice: all answers are right,
// and no damage is told of.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	want, err := w.clone()
	w.Must(err)
	files := w.cacheFiles()
	got, err := w.clone()
	w.Must(err)
	if !bytes.Equal(got, want) {
		t.Errorf("a pack of %d bytes, want the same %d", len(got), len(want))
	}
	if !files.Forgotten() {
		t.Fatal("no copy was damaged")
	}
	w.Sound(w.commits()...)
	if n := w.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads met damage", n)
	}
}

// TestDamagedCopyOfAStream has a large entry whose copy is damaged: the read fails after some of it
// was passed on, without damage, and the next one succeeds. What is damaged in the store is
// [odb.ErrCorrupt] all the same.
func TestDamagedCopyOfAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	d := w.Draft()
	blob := d.WriteFrom(odbtest.Noise(random, 3<<20))
	d.Commit()
	files := w.cacheFiles()
	read := func() error {
		var failed error
		w.With(func(v *odb.View) {
			e, err := v.Entry(t.Context(), blob)
			w.Must(err)
			failed = v.CopyPacked(t.Context(), io.Discard, &e)
		})
		return failed
	}
	if err := read(); !errors.Is(err, segment.ErrCopyDamaged) || errors.Is(err, odb.ErrCorrupt) {
		t.Errorf("a damaged copy: %v", err)
	}
	w.Must(read())
	if n := w.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads met damage", n)
	}
	name, size := "", int64(0)
	for info, err := range files.List(t.Context()) {
		w.Must(err)
		name, size = info.Name, info.Size
	}
	if n := files.PrefetchedBytes(name); n < 3<<20 {
		t.Errorf("%d bytes of %d were prefetched", n, size)
	}
	flipAt(t, w, listFiles(t, w)[0], 2<<20, 1)
	if err := read(); !errors.Is(err, odb.ErrCorrupt) || w.Store.Stats().CorruptCount != 1 {
		t.Errorf("damage of the store: %v, %d reads", err, w.Store.Stats().CorruptCount)
	}
}
