package repack_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// twoHistories commits two unrelated histories. It returns their tips and the objects of the first.
func twoHistories(w *odbtest.World, random *rand.Rand) (kept, other object.ID, objects map[object.ID]odbtest.Content) {
	kept = w.Grow(random, object.ZeroID, 15)
	objects = maps.Clone(w.Objects)
	other = w.Grow(random, object.ZeroID, 15)
	return kept, other, objects
}

func TestPrune(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(w *odbtest.World){
		"hot":       func(*odbtest.World) {},
		"a segment": func(w *odbtest.World) { w.Compact(repack.CompactOptions{}) },
		"both": func(w *odbtest.World) {
			w.Compact(repack.CompactOptions{})
			w.Grow(rand.New(rand.NewPCG(9, 9)), object.ZeroID, 3)
		},
		"a large blob": func(w *odbtest.World) {
			d := w.Draft()
			d.WriteFrom(odbtest.Noise(rand.New(rand.NewPCG(9, 9)), 2<<20))
			d.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := odbtest.NewWorld(t, odb.Options{})
			tip, other, kept := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
			before(w)
			if d, err := repack.PlanPrune(t.Context(), w.Store, w.Pool, odbtest.PruneTo(1, tip)); d != nil || err != nil {
				t.Fatalf("a prune that does not pay: %v, %v", d, err)
			}
			w.Prune(kept, odbtest.PruneTo(0, tip))
			w.Sound(tip)
			w.With(func(v *odb.View) {
				if ok, err := v.Has(t.Context(), other); ok || err != nil {
					t.Errorf("the other history is still there: %v", err)
				}
			})
			if d, err := repack.PlanPrune(t.Context(), w.Store, w.Pool, odbtest.PruneTo(0, tip)); d != nil || err != nil {
				t.Errorf("there is still something to prune: %v, %v", d, err)
			}
			w.Reopen()
			w.Sound(tip)
		})
	}
}

// Entries of file types that git does not know are links to submodules, as git reads them, also
// when two versions of a folder are compared.
func TestPruneOddFileTypes(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	d := w.Draft()
	var tip, tree object.ID
	for i, mode := range []object.Mode{0o010000, 0o020000, 0o644, 0} {
		file := d.Write(object.TypeBlob, fmt.Appendf(nil, "%d\n", i), object.ZeroID)
		tree = d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("file", file),
			object.TreeEntry{Mode: mode, Name: "link", ID: object.ID{1, byte(i)}}), tree)
		var parents []object.ID
		if i > 0 {
			parents = append(parents, tip)
		}
		tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1_000_000+i, parents...), tip)
	}
	d.Commit()
	kept := maps.Clone(w.Objects)
	w.Grow(rand.New(rand.NewPCG(1, 2)), object.ZeroID, 15)
	w.Prune(kept, odbtest.PruneTo(0, tip))
	w.Compact(repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: true}})
	w.Sound(tip)
}

func TestPruneKeepsOldValues(t *testing.T) {
	t.Parallel()
	w := odbtest.NewWorld(t, odb.Options{})
	tip, other, _ := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
	unknown := object.ID{1}
	options := repack.PruneOptions{Roots: func(context.Context) (tips, old []object.ID, err error) {
		return []object.ID{tip}, []object.ID{other, unknown}, nil
	}}
	d, err := repack.PlanPrune(t.Context(), w.Store, w.Pool, options)
	if d != nil || err != nil {
		t.Errorf("PlanPrune = %v, %v, want nothing to prune", d, err)
	}
	_, err = repack.PlanPrune(t.Context(), w.Store, w.Pool, odbtest.PruneTo(0, unknown))
	if !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("PlanPrune with a tip that is missing: %v", err)
	}
}

// TestPruneIsNeeded has another writer build on objects that are about to be pruned.
func TestPruneIsNeeded(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *odbtest.World, old object.ID) (moved []object.ID){
		"a ref": func(_ *odbtest.World, old object.ID) []object.ID { return []object.ID{old} },
		"a commit": func(w *odbtest.World, old object.ID) []object.ID {
			d := w.Draft()
			tree := d.Write(object.TypeTree, nil, object.ZeroID)
			d.Write(object.TypeCommit, odbtest.CommitOf(tree, 2_000_000, old), object.ZeroID)
			d.Commit()
			return nil
		},
		"a segment": func(w *odbtest.World, old object.ID) []object.ID {
			d := w.Draft()
			d.WriteFrom(odbtest.Noise(rand.New(rand.NewPCG(9, 9)), 2<<20))
			tree := d.Write(object.TypeTree, nil, object.ZeroID)
			d.Write(object.TypeCommit, odbtest.CommitOf(tree, 2_000_000, old), object.ZeroID)
			d.Commit()
			return nil
		},
		"a delta": func(w *odbtest.World, _ object.ID) []object.ID {
			random := rand.New(rand.NewPCG(9, 9))
			d := w.Draft()
			for id, o := range w.Objects {
				if o.Type == object.TypeBlob {
					d.Write(object.TypeBlob, odbtest.Edited(random, o.Data), id)
				}
			}
			d.Commit()
			return nil
		},
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := odbtest.NewWorld(t, odb.Options{})
			tip, other, _ := twoHistories(w, rand.New(rand.NewPCG(1, 2)))
			d, err := repack.PlanPrune(t.Context(), w.Store, w.Pool, odbtest.PruneTo(0, tip))
			w.Must(err)
			w.Must(d.Look(t.Context())) // nothing has come yet
			moved := use(w, other)
			if err := d.Look(t.Context()); len(moved) == 0 && !errors.Is(err, odb.ErrNeeded) {
				t.Errorf("Look: %v, want ErrNeeded", err)
			}
			if err := d.Stage(t.Context(), kv.NewBatch(), moved); !errors.Is(err, odb.ErrNeeded) {
				t.Errorf("Stage: %v, want ErrNeeded", err)
			}
			w.Must(d.Close())
			w.Sound(tip, other)
			w.Reopen()
			w.Sound(tip, other)
		})
	}
}

// TestPruneUnderAQuarantine prunes objects that a quarantine builds on: it names them, is based on
// them with deltas, or left them out because they were stored.
func TestPruneUnderAQuarantine(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]bool{"hot": false, "a segment": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := odbtest.NewWorld(t, odb.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			tip, other, kept := twoHistories(w, random)
			var tree object.ID
			for id, o := range w.Objects {
				if _, is := kept[id]; !is && o.Type == object.TypeTree {
					tree = id
				}
			}
			d := w.Draft()
			if large {
				d.WriteFrom(odbtest.Noise(random, 2<<20))
			}
			again := d.Write(object.TypeTree, w.Objects[tree].Data, object.ZeroID)
			revived := d.Write(object.TypeCommit, odbtest.CommitOf(again, 2_000_000, other), other)
			all := maps.Clone(w.Objects)
			w.Prune(kept, odbtest.PruneTo(0, tip))
			d.Commit()
			w.Objects = all
			maps.Copy(w.Objects, d.Objects)
			w.Sound(tip, revived)
			w.Reopen()
			w.Sound(tip, revived)
		})
	}
}
