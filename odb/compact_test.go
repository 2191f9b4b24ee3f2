package odb_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// grow commits versions of a few new files in folders, one small write each.
func grow(w *world, random *rand.Rand, parent object.ID, versions int) object.ID {
	w.Helper()
	g := newGrowing(w, random, 6)
	g.tip = parent
	g.grow(versions)
	return g.tip
}

// growing is a history of a few files in folders.
type growing struct {
	*world
	random         *rand.Rand
	files          [][]byte
	blobs, folders []object.ID
	root, tip      object.ID
	count          int
}

func newGrowing(w *world, random *rand.Rand, files int) *growing {
	g := &growing{
		world: w, random: random, files: make([][]byte, files), blobs: make([]object.ID, files),
		folders: make([]object.ID, files),
	}
	for i := range g.files {
		g.files[i] = text(random, 3000)
	}
	return g
}

// grow commits versions of one file after the other.
func (g *growing) grow(versions int) {
	g.Helper()
	for range versions {
		d := g.draft()
		i := g.count % len(g.files)
		g.files[i] = edited(g.random, g.files[i])
		g.blobs[i] = d.write(object.TypeBlob, g.files[i], g.blobs[i])
		g.folders[i] = d.write(object.TypeTree, treeOf(fileEntry("file.go", g.blobs[i])), g.folders[i])
		var entries []object.TreeEntry
		for j, folder := range g.folders {
			if !folder.IsZero() {
				entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: fmt.Sprintf("folder%d", j), ID: folder})
			}
		}
		g.root = d.write(object.TypeTree, treeOf(entries...), g.root)
		var parents []object.ID
		if !g.tip.IsZero() {
			parents = append(parents, g.tip)
		}
		g.tip = d.write(object.TypeCommit, commitOf(g.root, 1_000_000+g.count, parents...), g.tip)
		d.commit()
		g.count++
	}
}

func (w *world) compact(options repack.CompactOptions) repack.Compacted {
	w.Helper()
	done, err := repack.Compact(w.Context(), w.store, w.pool, options)
	w.must(err)
	_, err = w.store.Sweep(w.Context(), 0)
	w.must(err)
	return done
}

// sound checks the pool with fsck, and every object.
func (w *world) sound(tips ...object.ID) {
	w.Helper()
	report, err := w.store.Fsck(w.Context(), w.pool, odb.FsckOptions{Tips: tips})
	w.must(err)
	if report.ProblemCount > 0 {
		w.Fatalf("fsck: %v", report.Problems)
	}
	w.checkAll()
}

func TestCompactFoldsAndMerges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(3, 4))
	var tip object.ID
	for round := range 6 {
		tip = grow(w, random, tip, 20+round)
		done := w.compact(repack.CompactOptions{})
		if done.ObjectCount == 0 {
			t.Errorf("round %d: nothing was due", round)
		}
		w.sound(tip)
	}
	if done := w.compact(repack.CompactOptions{}); done != (repack.Compacted{}) {
		t.Errorf("nothing has changed, and yet %+v", done)
	}
	w.with(func(v *odb.View) {
		segments, outlines, err := odb.Outlines(t.Context(), v)
		if err != nil || segments > 3 || outlines != segments {
			t.Errorf("%d segments, %d outlines, %v", segments, outlines, err)
		}
	})
	w.compact(repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Workers: 2}})
	w.reopen()
	w.sound(tip)
	if n := fileCount(t, w); n != 3 { // a segment, its graph rows and its path filters
		t.Errorf("%d files", n)
	}
	w.with(func(v *odb.View) {
		deltas := 0
		for id := range w.objects {
			e, err := v.Entry(t.Context(), id)
			w.must(err)
			if e.Delta() {
				deltas++
			}
		}
		if deltas < len(w.objects)/3 { // commits and the smallest trees hardly ever gain
			t.Errorf("%d of %d objects are deltas", deltas, len(w.objects))
		}
	})
}

// TestCompactSearchesAgain folds and merges many versions of few files, and holds what is stored
// against what a search among all of them finds: the chains of deltas stay short, and merges leave
// little to be gained.
func TestCompactSearchesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	g := newGrowing(w, rand.New(rand.NewPCG(8, 9)), 2)
	stored := func() (size int64) {
		t.Helper()
		w.with(func(v *odb.View) {
			for id := range w.objects {
				depth, err := odb.Depth(t.Context(), v, id)
				w.must(err)
				if depth > 50 {
					t.Fatalf("%s is %d deltas deep", id, depth)
				}
				e, err := v.Entry(t.Context(), id)
				w.must(err)
				size += e.PayloadSize
			}
		})
		return size
	}
	for range 7 {
		g.grow(25)
		w.compact(repack.CompactOptions{})
		stored()
	}
	again := repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Workers: 2}}
	w.compact(again)
	settled := stored()
	if done := w.compact(again); done != (repack.Compacted{}) {
		t.Errorf("everything has been searched, and yet %+v", done)
	}
	again.Anew = true
	if done := w.compact(again); done.ObjectCount != len(w.objects) {
		t.Errorf("%d of %d objects were rewritten anew", done.ObjectCount, len(w.objects))
	}
	if best := stored(); settled > best*6/5 {
		t.Errorf("%d bytes after merges, %d with every delta searched anew", settled, best)
	}
	w.sound(g.tip)
}

// TestCompactSettles lets what was folded a little at a time be searched again without anything
// that is due.
func TestCompactSettles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	g := newGrowing(w, rand.New(rand.NewPCG(10, 11)), 3)
	g.grow(40)
	w.compact(repack.CompactOptions{})
	settle := repack.CompactOptions{Settle: true}
	if done := w.compact(settle); done != (repack.Compacted{}) {
		t.Errorf("all was searched in the only fold, and yet %+v", done)
	}
	g.grow(15)
	if done := w.compact(repack.CompactOptions{}); done.ObjectCount >= len(w.objects) {
		t.Fatalf("%d of %d objects were rewritten", done.ObjectCount, len(w.objects))
	}
	if done := w.compact(settle); done.ObjectCount != len(w.objects) {
		t.Errorf("%d of %d objects were searched again", done.ObjectCount, len(w.objects))
	}
	w.sound(g.tip)
}

// TestCompactKeepsBlockStreams has large blobs go through a fold, and reads the middle of them
// afterwards.
func TestCompactKeepsBlockStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(5, 6))
	var large []object.ID
	for range 2 {
		d := w.draft()
		large = append(large, d.writeFrom(text(random, 3<<20)), d.writeFrom(noise(random, 2<<20)))
		d.commit()
	}
	tip := grow(w, random, object.ZeroID, 5)
	w.compact(repack.CompactOptions{All: true})
	w.sound(tip)
	w.with(func(v *odb.View) {
		for _, id := range large {
			if ok, err := v.IsBlockStream(t.Context(), id); err != nil || !ok {
				t.Errorf("%s is no block stream any more: %v", id, err)
			}
			o, err := v.Open(t.Context(), id)
			w.must(err)
			const off, size = 1<<20 - 10, 100
			part, err := o.Section(off, size)
			w.must(err)
			var got bytes.Buffer
			_, err = got.ReadFrom(part)
			w.must(err)
			if !bytes.Equal(got.Bytes(), w.objects[id].data[off:off+size]) {
				t.Errorf("%s: wrong bytes in the middle", id)
			}
			w.must(part.Close())
			w.must(o.Close())
		}
	})
}
