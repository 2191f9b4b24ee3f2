package odb_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// TestForkDropKeepsItsOwnCopies lets a fork write what it has borrowed and may not read, and then
// drop something else. Its copy stays, although the borrowed layer is asked first.
func TestForkDropKeepsItsOwnCopies(t *testing.T) {
	t.Parallel()
	for name, fold := range map[string]func(w *world){
		"in a segment": func(w *world) { w.compact(repack.CompactOptions{All: true}) },
		"hot":          func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, odb.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			line := func(text string, large bool, parents ...object.ID) object.ID {
				d := w.draft()
				entries := []object.TreeEntry{
					{Mode: object.ModeBlob, Name: "a", ID: d.write(object.TypeBlob, []byte(text), object.ZeroID)},
				}
				if large { // the objects of the same write go into its segment
					entries = append(entries,
						object.TreeEntry{Mode: object.ModeBlob, Name: "b", ID: d.writeFrom(noise(random, 2<<20))})
				}
				tree := d.write(object.TypeTree, treeOf(entries...), object.ZeroID)
				commit := d.write(object.TypeCommit, commitOf(tree, 1, parents...), object.ZeroID)
				d.commit()
				return commit
			}
			secretly := func(d *draft, parent object.ID) object.ID {
				blob := d.write(object.TypeBlob, []byte("secret"), object.ZeroID)
				tree := d.write(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "s", ID: blob}),
					object.ZeroID)
				return d.write(object.TypeCommit, commitOf(tree, 2, parent), object.ZeroID)
			}
			public := line("public", true)
			shared := maps.Clone(w.objects)
			d := w.draft()
			d.writeFrom(noise(random, 2<<20))
			secretly(d, public)
			d.commit()

			fork := w.forkOf(public)
			w.store.AwaitLoans()

			// The source goes, so that the segment of the public line is the fork's alone.
			batch := kv.NewBatch()
			w.store.DropPool(batch, w.pool)
			w.apply(batch)
			w.pool, w.objects = fork, shared
			for range 2 {
				_, err := w.store.Sweep(t.Context(), 0)
				w.must(err)
			}
			d = w.draft()
			secret := secretly(d, public)
			d.commit()
			fold(w)
			kept := maps.Clone(w.objects)
			line("garbage", false, public)
			w.checkAll()
			w.drop(kept, dropOptions(0, public, secret))
			w.sound(public, secret)
		})
	}
}
