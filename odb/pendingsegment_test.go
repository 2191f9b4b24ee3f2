package odb_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestFolderVersionsInSegment writes versions of several folders in turns, too many for the hot
// tier. Most are deltas, in chains that are bounded, and all can be read before and after the
// commit.
func TestFolderVersionsInSegment(t *testing.T) {
	t.Parallel()
	const folders, versions, entries, depthMax = 3, 60, 80, 8
	w := newWorld(t, odb.Options{Limits: odb.Limits{HotCount: 10}})
	random := rand.New(rand.NewPCG(3, 4))
	d := w.Draft()
	blob := func() object.ID { return d.Write(object.TypeBlob, odbtest.Text(random, 200), object.ZeroID) }
	var trees [folders][]object.TreeEntry
	var newest [folders]object.ID
	for k := range trees {
		for i := range entries {
			trees[k] = append(trees[k], object.TreeEntry{
				Mode: object.ModeBlob, Name: fmt.Sprintf("f%d-%04d", k, i), ID: blob(),
			})
		}
	}
	write := func(k int, predecessor object.ID) object.ID {
		return d.Write(object.TypeTree, object.AppendTree(nil, trees[k]), predecessor)
	}
	for n := range versions {
		for k := range trees {
			trees[k][random.IntN(len(trees[k]))].ID = blob()
			if random.IntN(4) == 0 {
				at := random.IntN(len(trees[k]))
				trees[k] = append(trees[k][:at:at], trees[k][at+1:]...)
			}
			newest[k] = write(k, newest[k])
		}
		if n%20 == 10 { // a predecessor that has another successor already, and one that is a blob
			trees[0][0].ID = blob()
			write(0, newest[1])
			write(0, trees[0][0].ID)
		}
	}
	deltas := func(v *odb.View) (count int) {
		for id, want := range d.Objects {
			w.Check(v, id, want)
			depth := odbtest.Depth(t, v, id)
			if depth > depthMax || depth > 0 && want.Type != object.TypeTree {
				t.Errorf("%s %s has a chain of %d deltas", want.Type, id, depth)
			}
			count += min(depth, 1)
		}
		return count
	}
	before := deltas(d.Quarantine.View())
	if before < folders*versions*3/4 {
		t.Errorf("%d of the versions are deltas", before)
	}
	d.Commit()
	w.Reopen()
	w.With(func(v *odb.View) {
		if after := deltas(v); after != before {
			t.Errorf("%d of the versions are deltas, %d were before the commit", after, before)
		}
	})
	w.Sound()
}

// TestExpectedObjects expects few objects and many.
func TestExpectedObjects(t *testing.T) {
	t.Parallel()
	for count, files := range map[int]int{10: 0, 11: 1} {
		w := newWorld(t, odb.Options{Limits: odb.Limits{HotCount: 10}})
		for _, written := range []int{0, 1, 11} {
			before := w.FileCount()
			d := w.Draft()
			w.Must(d.Quarantine.Expect(t.Context(), count))
			for n := range written {
				d.Write(object.TypeBlob, fmt.Appendf(nil, "%d of %d\n", n, written), object.ZeroID)
			}
			d.Commit()
			want := files
			switch written {
			case 0:
				want = 0
			case 11:
				want = 1
			default:
			}
			if made := w.FileCount() - before; made != want {
				t.Errorf("%d objects where %d were expected: %d files", written, count, made)
			}
		}
		w.Sound()
	}
}
