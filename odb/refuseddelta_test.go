package odb_test

import (
	"bytes"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack"
	"packhorse/pack/object"
)

// poisoned returns a pool in which the empty blob is stored as a delta that git does not read, as
// packs of former times could bring it in, and the commit that reaches everything there.
func poisoned(t *testing.T, hot bool) (*world, object.ID) {
	t.Helper()
	w := newWorld(t, odb.Options{})
	base := bytes.Repeat([]byte("a line of a file\n"), 20)
	changed := append(bytes.Clone(base), "one more\n"...)
	short := []byte{0xd4, 2, 0} // 340 bytes become none
	entries := []testEntry{whole(object.TypeBlob, base), {kind: pack.KindOFSDelta, data: short}}
	baseID, changedID := mustHash(t, object.TypeBlob, base), mustHash(t, object.TypeBlob, changed)
	tree := treeOf(fileEntry("a", baseID), fileEntry("b", object.EmptyBlobID), fileEntry("c", changedID))
	commit := commitOf(mustHash(t, object.TypeTree, tree), 1)
	tip := mustHash(t, object.TypeCommit, commit)
	for _, o := range []content{
		{object.TypeBlob, base},
		{object.TypeBlob, nil},
		{object.TypeBlob, changed},
		{object.TypeTree, tree},
		{object.TypeCommit, commit},
	} {
		w.objects[mustHash(t, o.kind, o.data)] = o
	}
	if !hot {
		// What follows lies behind the delta, so that it moves when the empty blob goes out whole.
		entries = append(entries, testEntry{kind: pack.KindOFSDelta, data: deltaOf(t, base, changed)},
			whole(object.TypeTree, tree), whole(object.TypeCommit, commit))
		d := w.draft()
		must(t, d.q.AddPack(t.Context(), encodePack(entries...), []object.ID{tip}, nil))
		d.commit()
		return w, tip
	}
	d := w.draft()
	must(t, d.q.AddHot(t.Context(), baseID, object.TypeBlob, int64(len(base)), object.ZeroID, base))
	must(t, d.q.AddHot(t.Context(), object.EmptyBlobID, object.TypeBlob, 0, baseID, short))
	must(t, d.q.AddHot(t.Context(), changedID, object.TypeBlob, int64(len(changed)), baseID, deltaOf(t, base, changed)))
	must(t, d.q.AddHot(t.Context(), mustHash(t, object.TypeTree, tree), object.TypeTree, int64(len(tree)), object.ZeroID,
		tree))
	d.write(object.TypeCommit, commit, object.ZeroID)
	d.commit()
	return w, tip
}

// clonable has git take the pack of each kind of request, strictly.
func clonable(t *testing.T, w *world, tip object.ID) {
	t.Helper()
	requests := map[string]packgen.Request{
		"whole":      {Wants: []object.ID{tip}, OFSDelta: true},
		"ref deltas": {Wants: []object.ID{tip}},
		"thin":       {Wants: []object.ID{tip}, OFSDelta: true, Thin: true},
		"a part":     {Wants: []object.ID{object.EmptyBlobID}, OFSDelta: true},
	}
	for name, request := range requests {
		w.with(func(v *odb.View) {
			if _, err := oracle.New(t).Try(
				packed(t, v, request), "index-pack", "--strict", "--fsck-objects", "--stdin",
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
			name + ", folded": {}, name + ", all": {All: true}, name +
				", anew": {All: true, RepackOptions: packgen.RepackOptions{Anew: true}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, tip := poisoned(t, hot)
				clonable(t, w, tip)
				if lines := warnings(t, w); len(lines) != 1 || !strings.Contains(lines[0], object.EmptyBlobID.String()) {
					t.Errorf("fsck warns of %q", lines)
				}
				w.sound(tip)
				if done := w.compact(options); done.ObjectCount != len(w.objects) {
					t.Errorf("maintenance: %+v", done)
				}
				if lines := warnings(t, w); len(lines) > 0 {
					t.Errorf("afterwards fsck warns of %q", lines)
				}
				w.sound(tip)
				clonable(t, w, tip)
				w.with(func(v *odb.View) {
					if e, err := v.Entry(t.Context(), object.EmptyBlobID); err != nil || e.Delta() {
						t.Errorf("the empty blob is a delta: %v, %v", e.Delta(), err)
					}
				})
				if done := w.compact(repack.CompactOptions{}); done != (repack.Compacted{}) {
					t.Errorf("maintenance finds work again: %+v", done)
				}
			})
		}
	}
}
