package repack_test

import (
	"bytes"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// poisoned returns a pool in which the empty blob is stored as a delta that git does not read, as
// older versions accepted it, and the commit that reaches all objects.
func poisoned(t *testing.T, hot bool) (*odbtest.World, object.ID) {
	t.Helper()
	w := odbtest.NewWorld(t, odb.Options{})
	base := bytes.Repeat([]byte("a line of a file\n"), 20)
	changed := append(bytes.Clone(base), "one more\n"...)
	short := []byte{0xd4, 2, 0} // 340 bytes become none
	entries := []packtest.Entry{packtest.Whole(object.TypeBlob, base), {Kind: pack.KindOFSDelta, Data: short}}
	baseID, changedID := packtest.Hash(t, object.TypeBlob, base), packtest.Hash(t, object.TypeBlob, changed)
	tree := odbtest.TreeOf(odbtest.FileEntry("a", baseID), odbtest.FileEntry("b", object.EmptyBlobID),
		odbtest.FileEntry("c", changedID))
	commit := odbtest.CommitOf(packtest.Hash(t, object.TypeTree, tree), 1)
	tip := packtest.Hash(t, object.TypeCommit, commit)
	for _, o := range []odbtest.Content{
		{Type: object.TypeBlob, Data: base},
		{Type: object.TypeBlob},
		{Type: object.TypeBlob, Data: changed},
		{Type: object.TypeTree, Data: tree},
		{Type: object.TypeCommit, Data: commit},
	} {
		w.Objects[packtest.Hash(t, o.Type, o.Data)] = o
	}
	if !hot {
		// These entries lie behind the delta, so that they move when the empty blob is sent whole.
		entries = append(entries, packtest.Entry{Kind: pack.KindOFSDelta, Data: packtest.DeltaOf(t, base, changed)},
			packtest.Whole(object.TypeTree, tree), packtest.Whole(object.TypeCommit, commit))
		d := w.Draft()
		d.AddPack(packtest.Encode(entries...), []object.ID{tip}, nil)
		d.Commit()
		return w, tip
	}
	d := w.Draft()
	d.AddHot(baseID, object.TypeBlob, int64(len(base)), object.ZeroID, base)
	d.AddHot(object.EmptyBlobID, object.TypeBlob, 0, baseID, short)
	d.AddHot(changedID, object.TypeBlob, int64(len(changed)), baseID, packtest.DeltaOf(t, base, changed))
	d.AddHot(packtest.Hash(t, object.TypeTree, tree), object.TypeTree, int64(len(tree)), object.ZeroID, tree)
	d.Write(object.TypeCommit, commit, object.ZeroID)
	d.Commit()
	return w, tip
}

// clonable checks that git accepts the pack of each kind of request with --strict.
func clonable(t *testing.T, w *odbtest.World, tip object.ID) {
	t.Helper()
	requests := map[string]packgen.Request{
		"whole":      {Wants: []object.ID{tip}, OFSDelta: true},
		"ref deltas": {Wants: []object.ID{tip}},
		"thin":       {Wants: []object.ID{tip}, OFSDelta: true, Thin: true},
		"a part":     {Wants: []object.ID{object.EmptyBlobID}, OFSDelta: true},
	}
	for name, request := range requests {
		w.With(func(v *odb.View) {
			if _, err := oracle.New(t).Try(
				odbtest.Pack(t, v, request), "index-pack", "--strict", "--fsck-objects", "--stdin",
			); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestRefusedDeltaIsServedWholeAndHealed(t *testing.T) {
	t.Parallel()
	for name, hot := range map[string]bool{"hot": true, "segment": false} {
		for name, options := range map[string]repack.CompactOptions{
			name + ", flushed": {}, name + ", all": {All: true}, name +
				", anew": {All: true, RepackOptions: packgen.RepackOptions{Anew: true}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, tip := poisoned(t, hot)
				clonable(t, w, tip)
				if lines := w.Warnings(); len(lines) != 1 || !strings.Contains(lines[0], object.EmptyBlobID.String()) {
					t.Errorf("fsck warns of %q", lines)
				}
				w.Sound(tip)
				if done := w.Compact(options); done.ObjectCount != len(w.Objects) {
					t.Errorf("maintenance: %+v", done)
				}
				if lines := w.Warnings(); len(lines) > 0 {
					t.Errorf("afterwards fsck warns of %q", lines)
				}
				w.Sound(tip)
				clonable(t, w, tip)
				w.With(func(v *odb.View) {
					if e, err := v.Entry(t.Context(), object.EmptyBlobID); err != nil || e.Delta() {
						t.Errorf("the empty blob is a delta: %v, %v", e.Delta(), err)
					}
				})
				if done := w.Compact(repack.CompactOptions{}); done != (repack.Compacted{}) {
					t.Errorf("maintenance finds work again: %+v", done)
				}
			})
		}
	}
}
