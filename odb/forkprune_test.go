package odb_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// TestForkPruneKeepsItsOwnCopies has a fork write an object that lies hidden in a borrowed layer,
// and then prune others. The copy stays, although lookups ask the borrowed layer first.
func TestForkPruneKeepsItsOwnCopies(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(w *world){
		"in a segment": func(w *world) { w.Compact(repack.CompactOptions{All: true}) },
		"hot":          func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			line := func(text string, large bool, parents ...object.ID) object.ID {
				d := w.Draft()
				entries := []object.TreeEntry{
					{Mode: object.ModeBlob, Name: "a", ID: d.Write(object.TypeBlob, []byte(text), object.ZeroID)},
				}
				if large { // the objects of the same write go into its segment
					entries = append(entries,
						object.TreeEntry{Mode: object.ModeBlob, Name: "b", ID: d.WriteFrom(odbtest.Noise(random, 2<<20))})
				}
				tree := d.Write(object.TypeTree, odbtest.TreeOf(entries...), object.ZeroID)
				commit := d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1, parents...), object.ZeroID)
				d.Commit()
				return commit
			}
			secretly := func(d *odbtest.Draft, parent object.ID) object.ID {
				blob := d.Write(object.TypeBlob, []byte("secret"), object.ZeroID)
				tree := d.Write(object.TypeTree, odbtest.TreeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "s", ID: blob}),
					object.ZeroID)
				return d.Write(object.TypeCommit, odbtest.CommitOf(tree, 2, parent), object.ZeroID)
			}
			public := line("public", true)
			shared := maps.Clone(w.Objects)
			d := w.Draft()
			d.WriteFrom(odbtest.Noise(random, 2<<20))
			secretly(d, public)
			d.Commit()

			fork := w.forkOf(public)
			w.Store.AwaitVisibility()

			// The source goes, so that the segment of the public line is the fork's alone.
			batch := kv.NewBatch()
			w.Store.DropPool(batch, w.Pool)
			w.Apply(batch)
			w.Pool, w.Objects = fork, shared
			for range 2 {
				_, err := w.Store.Sweep(t.Context(), 0)
				w.Must(err)
			}
			d = w.Draft()
			secret := secretly(d, public)
			d.Commit()
			flush(w)
			kept := maps.Clone(w.Objects)
			line("garbage", false, public)
			w.CheckAll()
			w.Prune(kept, odbtest.PruneTo(0, public, secret))
			w.Sound(public, secret)
		})
	}
}

// TestForkPruneWithoutItsOwn plans prunes of a fork that has nothing of its own, and of its source,
// all of which the fork shares: neither walks anything, however large they are.
func TestForkPruneWithoutItsOwn(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	g := odbtest.NewRepository(t)
	g.Seed(oracle.History{Seed: 3, Commits: 20})
	fills["one segment"](h, g)
	tip := g.Tips("refs/heads/main")[0]
	walked := 0
	options := odbtest.PruneTo(0, tip)
	options.Progress = func(string, int64, int64) { walked++ }
	plan := func(pool odb.PoolID) {
		t.Helper()
		prune, err := repack.PlanPrune(t.Context(), h.Store, pool, options)
		h.Must(err)
		if prune != nil {
			t.Error("something is to be pruned")
			h.Must(prune.Close())
		}
	}
	plan(h.ID)
	if walked == 0 {
		t.Error("the source alone is not walked")
	}
	walked = 0
	fork := forkPool(h, tip)
	plan(h.ID)
	plan(fork.ID)
	if walked > 0 {
		t.Errorf("%d reports of a walk", walked)
	}
}
