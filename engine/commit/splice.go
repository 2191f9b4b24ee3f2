package commit

import (
	"cmp"
	"slices"

	"packhorse/pack/object"
)

// splice changes entries of a tree and leaves the bytes between them as they are.
type splice struct {
	data  []byte // the tree
	edits []edit
	added []object.TreeEntry // whose places are yet to be found
}

// edit puts an entry, or nothing, in the place of data[from:to] of a tree.
type edit struct {
	from, to int
	entry    object.TreeEntry // with the zero id: nothing
}

// change replaces the entry was, which the tree holds, by entry. Either may be absent, with the
// zero ID.
func (s *splice) change(was met, entry object.TreeEntry) {
	removed, adds := !was.id.IsZero(), !entry.ID.IsZero()
	switch {
	case removed && adds && was.mode.IsTree() == entry.Mode.IsTree(): // it sorts as before
		s.edits = append(s.edits, edit{was.from, was.to, entry})
	case removed:
		s.edits = append(s.edits, edit{from: was.from, to: was.to})
		fallthrough
	default:
		if adds {
			s.added = append(s.added, entry)
		}
	}
}

// tree returns the changed tree. It is an error that the tree is malformed, where that was seen.
func (s *splice) tree() ([]byte, error) {
	if err := s.placeAdded(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	const entrySizeTypical = 64
	changed, at := make([]byte, 0, len(s.data)+entrySizeTypical*len(s.edits)), 0
	for i := range s.edits {
		e := &s.edits[i]
		changed = append(changed, s.data[at:e.from]...)
		if !e.entry.ID.IsZero() {
			changed = object.AppendTreeEntry(changed, &e.entry)
		}
		at = e.to
	}
	return append(changed, s.data[at:]...), nil
}

// placeAdded turns the added entries into edits, each before the first entry that it precedes.
func (s *splice) placeAdded() error {
	object.SortTree(s.added)
	it, at := object.IterTree(s.data), 0 // the current entry and where it begins
	more := it.Next()
	for i := range s.added {
		e := &s.added[i]
		name, tree := []byte(e.Name), e.Mode.IsTree()
		for more && object.CompareNames(name, tree, it.Name, it.Mode.IsTree()) > 0 {
			at = len(s.data) - len(it.Rest())
			more = it.Next()
		}
		s.edits = append(s.edits, edit{at, at, *e})
	}
	return it.Err()
}
