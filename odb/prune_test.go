package odb_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// drop removes what the tips do not reach, and what they do not reach from what the world expects.
func (w *world) drop(kept map[object.ID]content, options repack.PruneOptions) {
	w.Helper()
	d, err := repack.PlanPrune(w.Context(), w.store, w.pool, options)
	w.must(err)
	if d == nil {
		w.Fatal("nothing was dropped")
	}
	w.commitDrop(d)
	w.objects = kept
}

func dropOptions(shareMin float64, tips ...object.ID) repack.PruneOptions {
	return repack.PruneOptions{ShareMin: shareMin, Roots: func(context.Context) (_, old []object.ID, err error) {
		return tips, nil, nil
	}}
}

func (w *world) commitDrop(d *repack.Prune) {
	w.Helper()
	w.must(d.Look(w.Context()))
	b := kv.NewBatch()
	w.must(d.Stage(w.Context(), b, nil))
	w.apply(b)
	d.Settled(w.Context())
	w.must(d.Close())
	_, err := w.store.Sweep(w.Context(), 0)
	w.must(err)
}

// twoHistories commits two histories, one of which can go, and returns their tips and what the
// first consists of.
func twoHistories(w *world, random *rand.Rand) (kept, other object.ID, objects map[object.ID]content) {
	kept = grow(w, random, object.ZeroID, 15)
	objects = maps.Clone(w.objects)
	other = grow(w, random, object.ZeroID, 15)
	return kept, other, objects
}

func TestDrop(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(w *world){
		"hot":       func(*world) {},
		"a segment": func(w *world) { w.compact(repack.CompactOptions{}) },
		"both": func(w *world) {
			w.compact(repack.CompactOptions{})
			grow(w, rand.New(rand.NewPCG(9, 9)), object.ZeroID, 3)
		},
		"a large blob": func(w *world) {
			d := w.draft()
			d.writeFrom(noise(rand.New(rand.NewPCG(9, 9)), 2<<20))
			d.commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{})
			tip, other, kept := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
			before(w)
			if d, err := repack.PlanPrune(t.Context(), w.store, w.pool, dropOptions(1, tip)); d != nil || err != nil {
				t.Fatalf("a drop that does not pay: %v, %v", d, err)
			}
			w.drop(kept, dropOptions(0, tip))
			w.sound(tip)
			w.with(func(v *odb.View) {
				if ok, err := v.Has(t.Context(), other); ok || err != nil {
					t.Errorf("the other history is still there: %v", err)
				}
			})
			if d, err := repack.PlanPrune(t.Context(), w.store, w.pool, dropOptions(0, tip)); d != nil || err != nil {
				t.Errorf("there is still something to drop: %v, %v", d, err)
			}
			w.reopen()
			w.sound(tip)
		})
	}
}

func TestDropKeepsOldValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	tip, other, _ := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
	unknown := object.ID{1}
	options := repack.PruneOptions{Roots: func(context.Context) (tips, old []object.ID, err error) {
		return []object.ID{tip}, []object.ID{other, unknown}, nil
	}}
	d, err := repack.PlanPrune(t.Context(), w.store, w.pool, options)
	if d != nil || err != nil {
		t.Errorf("PlanPrune = %v, %v, want nothing to drop", d, err)
	}
	if _, err := repack.PlanPrune(t.Context(), w.store, w.pool, dropOptions(0, unknown)); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("PlanPrune with a tip that is missing: %v", err)
	}
}

// TestDropIsNeeded has something come that builds on what is about to be dropped.
func TestDropIsNeeded(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world, old object.ID) (moved []object.ID){
		"a ref": func(_ *world, old object.ID) []object.ID { return []object.ID{old} },
		"a commit": func(w *world, old object.ID) []object.ID {
			d := w.draft()
			tree := d.write(object.TypeTree, nil, object.ZeroID)
			d.write(object.TypeCommit, commitOf(tree, 2_000_000, old), object.ZeroID)
			d.commit()
			return nil
		},
		"a segment": func(w *world, old object.ID) []object.ID {
			d := w.draft()
			d.writeFrom(noise(rand.New(rand.NewPCG(9, 9)), 2<<20))
			tree := d.write(object.TypeTree, nil, object.ZeroID)
			d.write(object.TypeCommit, commitOf(tree, 2_000_000, old), object.ZeroID)
			d.commit()
			return nil
		},
		"a delta": func(w *world, _ object.ID) []object.ID {
			random := rand.New(rand.NewPCG(9, 9))
			d := w.draft()
			for id, o := range w.objects {
				if o.kind == object.TypeBlob {
					d.write(object.TypeBlob, edited(random, o.data), id)
				}
			}
			d.commit()
			return nil
		},
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{})
			tip, other, _ := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
			d, err := repack.PlanPrune(t.Context(), w.store, w.pool, dropOptions(0, tip))
			w.must(err)
			w.must(d.Look(t.Context())) // nothing has come yet
			moved := use(w, other)
			if err := d.Look(t.Context()); len(moved) == 0 && !errors.Is(err, odb.ErrNeeded) {
				t.Errorf("Look: %v, want ErrNeeded", err)
			}
			if err := d.Stage(t.Context(), kv.NewBatch(), moved); !errors.Is(err, odb.ErrNeeded) {
				t.Errorf("Stage: %v, want ErrNeeded", err)
			}
			w.must(d.Close())
			w.sound(tip, other)
			w.reopen()
			w.sound(tip, other)
		})
	}
}

// TestDropUnderAQuarantine drops what a quarantine builds on that was there before: by names, by
// not writing what was there, by deltas.
func TestDropUnderAQuarantine(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]bool{"hot": false, "a segment": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			tip, other, kept := twoHistories(w, random)
			var tree object.ID
			for id, o := range w.objects {
				if _, is := kept[id]; !is && o.kind == object.TypeTree {
					tree = id
				}
			}
			d := w.draft()
			if large {
				d.writeFrom(noise(random, 2<<20))
			}
			again := d.write(object.TypeTree, w.objects[tree].data, object.ZeroID)
			revived := d.write(object.TypeCommit, commitOf(again, 2_000_000, other), other)
			all := maps.Clone(w.objects)
			w.drop(kept, dropOptions(0, tip))
			d.commit()
			w.objects = all
			maps.Copy(w.objects, d.objects)
			w.sound(tip, revived)
			w.reopen()
			w.sound(tip, revived)
		})
	}
}
