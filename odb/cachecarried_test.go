package odb_test

import (
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// TestMovedObjectsStayCached merges the layers that forks freeze, flushes them, and rewrites the
// segment with later ones. Each time the trees and commits that were read before are in the cache:
// a read returns the same slice.
func TestMovedObjectsStayCached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 6))
	cached := make(map[object.ID]*byte)
	read := func(after string) {
		t.Helper()
		w.With(func(v *odb.View) {
			for id, o := range w.Objects {
				if o.Type == object.TypeBlob {
					continue
				}
				_, data, err := v.Read(t.Context(), id)
				w.Must(err)
				if known, ok := cached[id]; ok && known != &data[0] {
					t.Errorf("%s %s was built again after %s", o.Type, id, after)
				}
				cached[id] = &data[0]
			}
		})
	}
	var tip object.ID
	for _, versions := range []int{1, 4} { // the second time enough for the shared segment to be rewritten, too
		const forks = 16
		for range forks {
			tip = w.Grow(random, tip, versions)
			read("a write")
			w.forkOf(tip)
			read("a fork")
		}
		if n := w.layerCount(); n > forks/2 {
			t.Fatalf("%d layers: forks have not merged any", n)
		}
		w.Compact(repack.CompactOptions{})
		if n := w.layerCount(); n > 2 {
			t.Fatalf("%d layers after a rewrite", n)
		}
		read("a rewrite")
	}
	w.Sound(tip)
}
