package odb_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// readAhead reads what a try of the draft begins with.
func readAhead(w *world, d *odbtest.Draft) {
	w.Helper()
	set, take := d.Quarantine.ReadAhead()
	rows, err := w.Keys.Read(w.Context(), set)
	w.Must(err)
	take(rows)
}

// TestReadAhead changes the pool between what a try begins with and its batch, which is then
// refused. The next try commits.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	text := func(seed uint64) []byte { return odbtest.Text(rand.New(rand.NewPCG(seed, 0)), 4000) }
	changes := map[string]struct {
		do func(w *world)
		// near says that the batch is refused also where no additions are counted.
		near bool
	}{
		"an object": {do: func(w *world) {
			d := w.Draft()
			d.Write(object.TypeBlob, []byte("another one"), object.ZeroID)
			d.Commit()
		}},
		"the same object": {do: func(w *world) {
			d := w.Draft()
			d.Write(object.TypeBlob, text(1), object.ZeroID)
			d.Commit()
		}},
		"a segment": {near: true, do: func(w *world) {
			d := w.Draft()
			d.WriteFrom(odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 2<<20))
			d.Commit()
		}},
		"a layer that takes no more writes": {near: true, do: func(w *world) {
			w.Must(w.Store.Freeze(w.Context(), w.Pool))
		}},
		"a prune": {near: true, do: func(w *world) {
			b := kv.NewBatch()
			for id := range w.Objects {
				w.Must(w.Store.PruneHot(w.Context(), b, w.Pool, id))
				delete(w.Objects, id)
				break
			}
			w.Apply(b)
		}},
	}
	for name, change := range changes {
		for _, remote := range []bool{false, true} {
			for _, late := range []bool{false, true} { // after Stage, or before it
				t.Run(testName(name, remote, late), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, odb.Options{RemoteKeys: remote})
					stored := w.Draft()
					base := stored.Write(object.TypeBlob, text(2), object.ZeroID)
					stored.Commit()

					d := w.Draft()
					d.Write(object.TypeBlob, text(1), object.ZeroID)
					d.Write(object.TypeBlob, text(2), object.ZeroID) // is stored, so it is not written
					d.Write(object.TypeBlob, odbtest.Edited(rand.New(rand.NewPCG(1, 2)), text(2)), base)
					stage := func(meanwhile func(w *world)) *kv.Batch {
						readAhead(w, d)
						w.Must(d.Quarantine.Refresh(t.Context()))
						if !late {
							meanwhile(w)
						}
						b := kv.NewBatch()
						w.Must(d.Quarantine.Stage(t.Context(), b))
						if late {
							meanwhile(w)
						}
						return b
					}
					_, err := w.Keys.Apply(t.Context(), stage(change.do))
					if refused := errors.Is(err, kv.ErrConflict); refused != (change.near || remote) {
						t.Fatalf("the batch: %v", err)
					} else if !refused {
						w.Must(d.Quarantine.Close())
						return
					}
					for try := 0; err != nil; try++ { // the store changes manifests, too
						if try == 16 {
							t.Fatal(err)
						}
						_, err = w.Keys.Apply(t.Context(), stage(func(*world) {}))
					}
					d.Quarantine.Settled(t.Context())
					w.Must(d.Quarantine.Close())
					maps.Copy(w.Objects, d.Objects)
					w.CheckAll()
				})
			}
		}
	}
}

func testName(name string, remote, late bool) string {
	if remote {
		name += ", far"
	}
	if late {
		name += ", late"
	}
	return name
}

// TestReadAheadTwice refreshes and stages more often than rows are read ahead: what is not read
// ahead is read again.
func TestReadAheadTwice(t *testing.T) {
	t.Parallel()
	keys, p, other, _ := remotePool(t, 3)
	v := p.View()
	q := v.NewQuarantine(t.Context())
	p.Must(v.Close())
	t.Cleanup(func() { p.Must(q.Close()) })
	_, err := q.Write(t.Context(), object.TypeBlob, []byte("x"), object.ZeroID)
	p.Must(err)
	stage := func() { p.Must(q.Stage(t.Context(), kv.NewBatch())) }
	refresh := func() { p.Must(q.Refresh(t.Context())) }
	ahead := func() {
		set, take := q.ReadAhead()
		rows, err := p.Keys.Read(t.Context(), set)
		p.Must(err)
		take(rows)
	}
	for _, step := range []struct {
		what string
		do   func()
		most int64
	}{
		{"what is read ahead", ahead, 1},
		{"a refresh", refresh, 0},
		{"a batch", stage, 0},
		{"another batch", stage, 1},
		{"another refresh", refresh, 1},
	} {
		keys.count(t, step.what, step.most, step.do)
	}
	prune := func() { p.Must(other.Store.LeaveAll(t.Context(), p.ID)) }
	ahead()
	refresh()
	prune()
	refresh() // which no rows were read ahead for
	if q.PruneCount() != 1 {
		t.Errorf("prune generation %d", q.PruneCount())
	}
	ahead()
	refresh()
	stage()
	prune()
	if err := q.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrPruned) {
		t.Errorf("a batch that nothing was read ahead for: %v, want ErrPruned", err)
	}
}

// TestOpening opens views from rows that were read together with others.
func TestOpening(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, between, after func(w *world)
		err                    error
	}{
		"known":   {},
		"unknown": {before: func(w *world) { w.Store.ForgetManifest(w.Pool) }},
		"changed": {before: func(w *world) { w.Must(w.Store.Freeze(w.Context(), w.Pool)) }},
		"changed since it began": {between: func(w *world) {
			w.Must(w.Store.Freeze(w.Context(), w.Pool))
		}},
		"changed after it was read": {after: func(w *world) {
			d := w.Draft()
			d.WriteFrom(odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 2<<20))
			d.Commit()
		}},
		"unknown and changed after it was read": {
			before: func(w *world) { w.Store.ForgetManifest(w.Pool) },
			after:  func(w *world) { w.Must(w.Store.Freeze(w.Context(), w.Pool)) },
		},
		"dropped": {between: func(w *world) {
			b := kv.NewBatch()
			b.Delete(append([]byte{'m'}, w.Pool[:]...))
			w.Apply(b)
		}, err: odb.ErrNoPool},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{RemoteKeys: true})
			d := w.Draft()
			id := d.Write(object.TypeBlob, []byte("x"), object.ZeroID)
			d.Commit()
			w.With(func(v *odb.View) { w.Check(v, id, w.Objects[id]) }) // which makes a copy
			step := func(do func(w *world)) {
				if do != nil {
					do(w)
				}
			}
			step(test.before)
			opening := w.Store.Opening(w.Pool)
			step(test.between)
			set, take := opening.ReadAhead()
			rows, err := w.Keys.Read(t.Context(), set)
			w.Must(err)
			step(test.after)
			take(rows)
			v, err := opening.View(t.Context())
			if !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			if err == nil {
				w.Check(v, id, w.Objects[id])
				w.Must(v.Close())
			}
			w.Must(opening.Close())
			unused := w.Store.Opening(w.Pool)
			w.Must(unused.Close()) // and no view is left open, as the end of the world checks
		})
	}
}
