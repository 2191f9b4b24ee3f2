package odb_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// follow stages a draft behind others, as one try of a transaction does, after write has written
// what the try adds.
func follow(w *world, d *odbtest.Draft, before []*odbtest.Draft, write func()) *kv.Batch {
	w.Helper()
	var staged []*odb.Quarantine
	for _, other := range before {
		staged = append(staged, other.Quarantine)
	}
	readAhead(w, d)
	if !d.Quarantine.Follow(staged) {
		w.Fatal("it does not follow")
	}
	w.Must(d.Quarantine.Refresh(w.Context()))
	write()
	b := kv.NewBatch()
	w.Must(d.Quarantine.Stage(w.Context(), b))
	return b
}

// joined returns batches as one. What one of them requires must be what those before it put, or is
// required of the store.
func joined(w *world, batches ...*kv.Batch) *kv.Batch {
	w.Helper()
	all, put := kv.NewBatch(), map[string][]byte{}
	for i, b := range batches {
		for p := range b.Preconditions() {
			value, known := put[string(p.Key)]
			switch {
			case !known && p.Absent:
				all.RequireAbsent(p.Key)
			case !known:
				all.Require(p.Key, p.Value)
			case p.Absent || !bytes.Equal(value, p.Value):
				w.Errorf("batch %d requires %x of %q, where %x is put before", i, p.Value, p.Key, value)
			}
		}
		for op := range b.Operations() {
			if _, again := put[string(op.Key)]; again && op.Key[0] != 'l' {
				w.Errorf("batch %d puts %x again", i, op.Key)
			}
			put[string(op.Key)] = op.Value
			all.Put(op.Key, op.Value)
		}
	}
	return all
}

// TestFollow stages quarantines behind each other, and commits them as one or not at all.
func TestFollow(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct{ remote, commits bool }{
		"committed": {commits: true}, "committed, far": {remote: true, commits: true}, "lost": {}, "lost, far": {remote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFollow(t, run.remote, run.commits)
		})
	}
}

func testFollow(t *testing.T, remote, commits bool) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	text := func() []byte { return odbtest.Text(random, 4000) }
	w := newWorld(t, odb.Options{RemoteKeys: remote})
	stored, first := w.Draft(), text()
	base := stored.Write(object.TypeBlob, first, object.ZeroID)
	stored.Commit()

	a, b, c := w.Draft(), w.Draft(), w.Draft()
	early := text()
	earlyID := b.Write(object.TypeBlob, early, object.ZeroID)
	second := odbtest.Edited(random, first)
	third, fourth := odbtest.Edited(random, second), text()
	var secondID, thirdID object.ID
	batches := []*kv.Batch{
		follow(w, a, nil, func() { secondID = a.Write(object.TypeBlob, second, base) }),
		follow(w, b, []*odbtest.Draft{a}, func() {
			w.Check(b.Quarantine.View(), secondID, a.Objects[secondID])
			b.Write(object.TypeBlob, second, base) // is there
			thirdID = b.Write(object.TypeBlob, third, secondID)
		}),
		follow(w, c, []*odbtest.Draft{a, b}, func() {
			w.Check(c.Quarantine.View(), thirdID, b.Objects[thirdID])
			c.Write(object.TypeBlob, fourth, thirdID)
			c.Write(object.TypeBlob, early, object.ZeroID)
		}),
	}
	if c.Quarantine.Count() != 1 || b.Quarantine.Count() != 2 {
		t.Errorf("%d and %d new objects", c.Quarantine.Count(), b.Quarantine.Count())
	}
	w.With(func(v *odb.View) {
		for _, id := range []object.ID{secondID, thirdID, earlyID} {
			if there, err := v.Has(t.Context(), id); there || err != nil {
				t.Errorf("%s is seen before it is committed: %v", id, err)
			}
		}
	})
	if commits {
		w.Apply(joined(w, batches...))
		for _, d := range []*odbtest.Draft{c, a, b} { // in any order
			d.Quarantine.Settled(t.Context())
			w.Must(d.Quarantine.Close())
			maps.Copy(w.Objects, d.Objects)
		}
	} else {
		// The one that others have followed never is committed. What was written behind it is gone, and
		// what was there before is not.
		a.Discard()
		w.Apply(follow(w, b, nil, func() {
			if b.Quarantine.Count() != 1 || b.Quarantine.Forgotten() != 1 {
				t.Errorf("%d objects are left, %d times forgotten", b.Quarantine.Count(), b.Quarantine.Forgotten())
			}
			for _, id := range []object.ID{secondID, thirdID} {
				if there, err := b.Quarantine.View().Has(t.Context(), id); there || err != nil {
					t.Errorf("%s is still there: %v", id, err)
				}
				delete(b.Objects, id)
			}
			b.Write(object.TypeBlob, third, base)
		}))
		b.Quarantine.Settled(t.Context())
		w.Must(b.Quarantine.Close())
		maps.Copy(w.Objects, b.Objects)
		delete(c.Objects, earlyID)
		w.Apply(follow(w, c, nil, func() { c.Write(object.TypeBlob, fourth, thirdID) }))
		c.Quarantine.Settled(t.Context())
		w.Must(c.Quarantine.Close())
		maps.Copy(w.Objects, c.Objects)
	}
	more := w.Draft()
	more.Write(object.TypeBlob, text(), thirdID)
	more.Commit()
	w.CheckAll()
	w.Sound()
	w.Reopen()
	w.CheckAll()
}

// A segment cannot be taken back, and changes the manifest: quarantines with one follow nobody, are
// followed by nobody, and who follows others begins none.
func TestFollowSegments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	large := odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 2<<20)
	a, b := w.Draft(), w.Draft()
	follow(w, a, nil, func() { a.Write(object.TypeBlob, []byte("small"), object.ZeroID) })
	follow(w, b, []*odbtest.Draft{a}, func() {
		_, err := b.Quarantine.Write(t.Context(), object.TypeBlob, large, object.ZeroID)
		if !errors.Is(err, odb.ErrUncommitted) {
			t.Errorf("a segment behind another quarantine: %v", err)
		}
	})
	staged := follow(w, b, nil, func() { b.Write(object.TypeBlob, large, object.ZeroID) })
	if b.Quarantine.Follow([]*odb.Quarantine{a.Quarantine}) || a.Quarantine.Follow([]*odb.Quarantine{b.Quarantine}) {
		t.Error("a quarantine with a segment follows, or is followed")
	}
	w.Apply(staged)
	b.Quarantine.Settled(t.Context())
	w.Must(b.Quarantine.Close())
	maps.Copy(w.Objects, b.Objects)
	a.Discard()
	w.CheckAll()
}

// When the pool changes while a quarantine follows others, it says so; alone it goes on.
func TestFollowOnAChangedPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{RemoteKeys: true})
	stored := w.Draft()
	stored.Write(object.TypeBlob, []byte("stored"), object.ZeroID)
	stored.Commit()
	a, b := w.Draft(), w.Draft()
	follow(w, a, nil, func() { a.Write(object.TypeBlob, []byte("a"), object.ZeroID) })
	b.Write(object.TypeBlob, []byte("b"), object.ZeroID)
	w.Must(w.Store.Freeze(t.Context(), w.Pool))
	if !b.Quarantine.Follow([]*odb.Quarantine{a.Quarantine}) {
		t.Fatal("it does not follow")
	}
	if err := b.Quarantine.Refresh(t.Context()); !errors.Is(err, odb.ErrUncommitted) {
		t.Errorf("got %v", err)
	}
	w.Apply(follow(w, b, nil, func() {}))
	b.Quarantine.Settled(t.Context())
	w.Must(b.Quarantine.Close())
	maps.Copy(w.Objects, b.Objects)
	a.Discard()
	w.CheckAll()
}
