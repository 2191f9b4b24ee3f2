package odb_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

// grow commits versions of a few files in folders, one small write each.
func grow(w *world, random *rand.Rand, parent object.ID, versions int) object.ID {
	w.Helper()
	var files [6][]byte
	var blobs, folders, roots [6]object.ID
	for i := range files {
		files[i] = text(random, 3000)
	}
	for n := range versions {
		d := w.draft()
		i := n % len(files)
		files[i] = edited(random, files[i])
		blobs[i] = d.write(object.TypeBlob, files[i], blobs[i])
		folders[i] = d.write(object.TypeTree, treeOf(fileEntry("file.go", blobs[i])), folders[i])
		var entries []object.TreeEntry
		for j, folder := range folders {
			if !folder.IsZero() {
				entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: fmt.Sprintf("folder%d", j), ID: folder})
			}
		}
		roots[0] = d.write(object.TypeTree, treeOf(entries...), roots[0])
		var parents []object.ID
		if !parent.IsZero() {
			parents = append(parents, parent)
		}
		parent = d.write(object.TypeCommit, commitOf(roots[0], 1_000_000+n, parents...), parent)
		d.commit()
	}
	return parent
}

func (w *world) compact(options odb.CompactOptions) odb.Compacted {
	w.Helper()
	done, err := w.store.Compact(w.Context(), w.pool, options)
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
		done := w.compact(odb.CompactOptions{})
		if done.ObjectCount == 0 {
			t.Errorf("round %d: nothing was due", round)
		}
		w.sound(tip)
	}
	if done := w.compact(odb.CompactOptions{}); done != (odb.Compacted{}) {
		t.Errorf("nothing has changed, and yet %+v", done)
	}
	w.with(func(v *odb.View) {
		segments, outlines, err := odb.Outlines(t.Context(), v)
		if err != nil || segments > 3 || outlines != segments {
			t.Errorf("%d segments, %d outlines, %v", segments, outlines, err)
		}
	})
	w.compact(odb.CompactOptions{All: true, RepackOptions: odb.RepackOptions{Workers: 2}})
	w.reopen()
	w.sound(tip)
	if n := fileCount(t, w); n != 2 { // a segment and its graph rows
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
		if deltas < len(w.objects)/2 {
			t.Errorf("%d of %d objects are deltas", deltas, len(w.objects))
		}
	})
}

// TestCompactKeepsBlockStreams has large blobs go through a fold, and reads the middle of them afterwards.
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
	w.compact(odb.CompactOptions{All: true})
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
