package odb_test

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// layerCount returns how many layers the world's pool has.
func (w *world) layerCount() int {
	w.Helper()
	count, err := w.Store.LayerCount(w.Context(), w.Pool)
	w.Must(err)
	return count
}

// TestForksLeaveFewLayers commits to a pool and forks it in turn. Pool and forks have O(log n)
// layers for n commits, the forks read their objects when shared layers have left the base, and
// maintenance flushes the rest.
func TestForksLeaveFewLayers(t *testing.T) {
	t.Parallel()
	count := 500
	if testing.Short() {
		count = 70
	}
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 1))
	base := w.Pool
	type fork struct {
		pool odb.PoolID
		tip  object.ID
	}
	var forks []fork
	var tip object.ID
	for i := range count {
		tip = w.Grow(random, tip, 1)
		forks = append(forks, fork{w.forkOf(tip), tip})
		if i%50 == 49 {
			_, err := w.Store.Sweep(t.Context(), 0)
			w.Must(err)
		}
		// Each layer has more objects than all newer ones; one may take writes, one has been frozen
		// last.
		for _, w.Pool = range []odb.PoolID{forks[i].pool, base} {
			if n := w.layerCount(); n > bits.Len(uint(4*(i+1)))+2+len(w.Objects)/500 {
				t.Fatalf("%d layers after %d forks", n, i+1)
			}
		}
	}
	w.Sound(tip)
	for i := 0; i < count; i += 1 + count/40 {
		w.Pool = forks[i].pool
		w.With(func(v *odb.View) {
			commits := 0
			for _, err := range revwalk.Walk(t.Context(), v.Linked(), revwalk.WalkOptions{Tips: []object.ID{forks[i].tip}}) {
				w.Must(err)
				commits++
			}
			if has, err := v.Has(t.Context(), tip); err != nil || has != (i == count-1) || commits != i+1 {
				t.Errorf("fork %d has %d commits, and the newest one %v, %v", i, commits, has, err)
			}
		})
		report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{Tips: []object.ID{forks[i].tip}})
		if err != nil || report.ProblemCount > 0 {
			t.Fatalf("fsck of fork %d: %v, %v", i, report.Problems, err)
		}
	}
	w.Pool = base
	w.Compact(repack.CompactOptions{})
	if n := w.layerCount(); n > 2 {
		t.Errorf("%d layers after maintenance", n)
	}
	w.Sound(tip)
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
		tip = w.Grow(random, tip, 1)
		if n := w.layerCount(); n > 2*bits.Len(uint(4*(i+1)))+3 {
			t.Fatalf("%d layers at depth %d", n, i)
		}
		w.Pool = w.forkOf(tip)
	}
	w.CheckAll()
	w.Sound(tip)
}

// A segment that forks share is rewritten by the pool that it was made for, with twice its objects,
// and by no fork.
func TestSharedSegmentsAreMergedByTheirPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 3))
	base := w.Pool
	var tip object.ID
	for i := range 12 {
		tip = w.Grow(random, tip, 5)
		w.forkOf(tip)
		w.Compact(repack.CompactOptions{})
		if n := w.layerCount(); n > 2+bits.Len(uint(i)) {
			t.Fatalf("%d layers after %d rounds", n, i+1)
		}
		w.Sound(tip)
	}
	w.Pool = w.forkOf(tip)
	w.Store.AwaitVisibility() // its layers are its own, and shared
	before := w.layerCount()
	w.Compact(repack.CompactOptions{All: true})
	if n := w.layerCount(); n != before {
		t.Errorf("a fork has rewritten layers that it shares: %d layers, %d before", n, before)
	}
	w.Sound(tip)
	w.Pool = base
	w.Sound(tip)
}

// TestMaintenanceBeginsWithFewLayers forks a base so that its frozen layers shrink by half each. A
// rewrite merges those that are small together before it keeps forks from that, whether or not the
// base was written to since the last fork.
func TestMaintenanceBeginsWithFewLayers(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"written": true, "just forked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beginWithFewLayers(t, written)
		})
	}
}

func beginWithFewLayers(t *testing.T, written bool) {
	t.Helper()
	w := newWorld(t, odb.Options{Limits: odb.Limits{HotCount: 1000}})
	random := rand.New(rand.NewPCG(1, 5))
	var tip object.ID
	for range 63 {
		tip = w.Grow(random, tip, 1)
		w.forkOf(tip)
	}
	want := 2 // merged, and the one that takes writes
	if written {
		tip = w.Grow(random, tip, 1)
		want++ // frozen just now
	}
	before := w.layerCount()
	if before < 5 {
		t.Fatalf("%d layers, too few for the test", before)
	}
	rewrite, err := w.Store.BeginRewrite(t.Context(), w.Pool, nil)
	w.Must(err)
	if n := w.layerCount(); n != want {
		t.Errorf("%d layers instead of %d when a rewrite has begun, %d before", n, want, before)
	}
	w.Must(rewrite.Close())
	w.Sound(tip)
}

// Forks do not merge layers that maintenance is rewriting, and go on to merge those that came
// afterwards.
func TestForksDuringAPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 4))
	var tip object.ID
	for range 2 { // leaves a small frozen layer each, which the pool alone uses
		tip = w.Grow(random, tip, 1)
		gone := kv.NewBatch()
		w.Store.DropPool(gone, w.forkOf(tip))
		w.Apply(gone)
		_, err := w.Store.Sweep(t.Context(), 0)
		w.Must(err)
	}
	kept := len(w.Objects)
	d := w.Draft()
	d.Write(object.TypeBlob, []byte("garbage"), object.ZeroID)
	d.Commit()
	prune, err := repack.PlanPrune(t.Context(), w.Store, w.Pool, odbtest.PruneTo(0, tip))
	w.Must(err)
	if prune == nil {
		t.Fatal("nothing is pruned")
	}
	var forks []odb.PoolID
	before := w.layerCount()
	const during = 40
	for i := range during {
		tip = w.Grow(random, tip, 1)
		forks = append(forks, w.forkOf(tip))
		if n := w.layerCount(); n > before+bits.Len(uint(4*(i+1)))+2 {
			t.Fatalf("%d layers after %d forks, %d before", n, i+1, before)
		}
	}
	b := kv.NewBatch()
	w.Must(prune.Stage(t.Context(), b, []object.ID{tip}))
	w.Apply(b)
	prune.Settled(t.Context())
	w.Must(prune.Close())
	_, err = w.Store.Sweep(t.Context(), 0)
	w.Must(err)
	hash, err := object.Hash(object.TypeBlob, []byte("garbage"))
	w.Must(err)
	delete(w.Objects, hash)
	if len(w.Objects) <= kept {
		t.Fatal("nothing was written meanwhile")
	}
	w.Sound(tip)
	tip = w.Grow(random, tip, 1)
	w.forkOf(tip)
	tip = w.Grow(random, tip, 1)
	forks = append(forks, w.forkOf(tip))
	if n := w.layerCount(); n > 6 {
		t.Errorf("%d layers are left", n)
	}
	for i, fork := range forks {
		report, err := w.Store.Fsck(t.Context(), fork, odb.FsckOptions{})
		if err != nil || report.ProblemCount > 0 {
			t.Errorf("fsck of fork %d: %v, %v", i, report.Problems, err)
		}
	}
}
