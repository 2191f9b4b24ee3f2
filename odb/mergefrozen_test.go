package odb_test

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// layerCount returns how many layers the world's pool has.
func (w *world) layerCount() int {
	w.Helper()
	count, err := w.store.LayerCount(w.Context(), w.pool)
	w.must(err)
	return count
}

// TestForksLeaveFewLayers commits to a pool and forks it in turn. The layers of both stay as few as
// the logarithm of the commits, the forks read what they took when the layers that they share have
// left the base, and maintenance folds what is left.
func TestForksLeaveFewLayers(t *testing.T) {
	t.Parallel()
	count := 1000
	if testing.Short() {
		count = 70
	}
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 1))
	base := w.pool
	type fork struct {
		pool odb.PoolID
		tip  object.ID
	}
	var forks []fork
	var tip object.ID
	for i := range count {
		tip = grow(w, random, tip, 1)
		forks = append(forks, fork{w.forkOf(tip), tip})
		if i%50 == 49 {
			_, err := w.store.Sweep(t.Context(), 0)
			w.must(err)
		}
		// Each layer has more objects than all newer ones; one may take writes, one has been frozen last.
		for _, w.pool = range []odb.PoolID{forks[i].pool, base} {
			if n := w.layerCount(); n > bits.Len(uint(4*(i+1)))+2+len(w.objects)/500 {
				t.Fatalf("%d layers after %d forks", n, i+1)
			}
		}
	}
	w.sound(tip)
	for i := 0; i < count; i += 1 + count/40 {
		w.pool = forks[i].pool
		w.with(func(v *odb.View) {
			commits := 0
			for _, err := range revwalk.Walk(t.Context(), v.Linked(), revwalk.WalkOptions{Tips: []object.ID{forks[i].tip}}) {
				w.must(err)
				commits++
			}
			if has, err := v.Has(t.Context(), tip); err != nil || has != (i == count-1) || commits != i+1 {
				t.Errorf("fork %d has %d commits, and the newest one %v, %v", i, commits, has, err)
			}
		})
		report, err := w.store.Fsck(t.Context(), w.pool, odb.FsckOptions{Tips: []object.ID{forks[i].tip}})
		if err != nil || report.ProblemCount > 0 {
			t.Fatalf("fsck of fork %d: %v, %v", i, report.Problems, err)
		}
	}
	w.pool = base
	w.compact(repack.CompactOptions{})
	if n := w.layerCount(); n > 2 {
		t.Errorf("%d layers after maintenance", n)
	}
	w.sound(tip)
}

// TestForksOfForksHaveFewLayers makes a chain of forks, each of the one before, and commits to
// each.
func TestForksOfForksHaveFewLayers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	var tip object.ID
	const depth = 120
	for i := range depth {
		tip = grow(w, random, tip, 1)
		if n := w.layerCount(); n > 2*bits.Len(uint(4*(i+1)))+3 {
			t.Fatalf("%d layers at depth %d", n, i)
		}
		w.pool = w.forkOf(tip)
	}
	w.checkAll()
	w.sound(tip)
}

// A segment that forks share is rewritten by the pool that it was made for, with twice its objects,
// and by no fork.
func TestSharedSegmentsAreMergedByTheirPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 3))
	base := w.pool
	var tip object.ID
	for i := range 12 {
		tip = grow(w, random, tip, 5)
		w.forkOf(tip)
		w.compact(repack.CompactOptions{})
		if n := w.layerCount(); n > 2+bits.Len(uint(i)) {
			t.Fatalf("%d layers after %d rounds", n, i+1)
		}
		w.sound(tip)
	}
	w.pool = w.forkOf(tip)
	w.store.AwaitLoans() // its layers are its own, and shared
	before := w.layerCount()
	w.compact(repack.CompactOptions{All: true})
	if n := w.layerCount(); n != before {
		t.Errorf("a fork has rewritten layers that it shares: %d layers, %d before", n, before)
	}
	w.sound(tip)
	w.pool = base
	w.sound(tip)
}

// Forks leave alone what maintenance is rewriting.
func TestForksDuringADrop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 4))
	var tip object.ID
	for range 2 { // leaves a small frozen layer each, which the pool alone uses
		tip = grow(w, random, tip, 1)
		gone := kv.NewBatch()
		w.store.DropPool(gone, w.forkOf(tip))
		w.apply(gone)
		_, err := w.store.Sweep(t.Context(), 0)
		w.must(err)
	}
	kept := len(w.objects)
	d := w.draft()
	d.write(object.TypeBlob, []byte("garbage"), object.ZeroID)
	d.commit()
	drop, err := repack.PlanPrune(t.Context(), w.store, w.pool, dropOptions(0, tip))
	w.must(err)
	if drop == nil {
		t.Fatal("nothing is dropped")
	}
	var forks []odb.PoolID
	for range 8 {
		tip = grow(w, random, tip, 1)
		forks = append(forks, w.forkOf(tip))
	}
	b := kv.NewBatch()
	w.must(drop.Stage(t.Context(), b, []object.ID{tip}))
	w.apply(b)
	drop.Settled(t.Context())
	w.must(drop.Close())
	_, err = w.store.Sweep(t.Context(), 0)
	w.must(err)
	hash, err := object.Hash(object.TypeBlob, []byte("garbage"))
	w.must(err)
	delete(w.objects, hash)
	if len(w.objects) <= kept {
		t.Fatal("nothing was written meanwhile")
	}
	w.sound(tip)
	tip = grow(w, random, tip, 1)
	w.forkOf(tip)
	tip = grow(w, random, tip, 1)
	forks = append(forks, w.forkOf(tip))
	if n := w.layerCount(); n > 6 {
		t.Errorf("%d layers are left", n)
	}
	for i, fork := range forks {
		report, err := w.store.Fsck(t.Context(), fork, odb.FsckOptions{})
		if err != nil || report.ProblemCount > 0 {
			t.Errorf("fsck of fork %d: %v, %v", i, report.Problems, err)
		}
	}
}
