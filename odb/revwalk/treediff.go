package revwalk

import (
	"bytes"

	"packhorse/pack/object"
)

// TreeDiff gives the entries of a tree that another version of it lacks, except links to
// submodules. Successive versions of a tree are nearly equal, so it skips equal runs of bytes
// without parsing their entries where it can.
type TreeDiff struct {
	object.TreeIter
	NoFiles bool // regular files are not asked for; some may be given

	old     object.TreeIter
	haveOld bool
}

// NewTreeDiff returns the difference of a tree with the content data from a previous version. It
// reads both while it is in use.
func NewTreeDiff(data, previous []byte) TreeDiff {
	same := object.CommonEntries(data, previous)
	d := TreeDiff{TreeIter: object.IterTree(data[same:]), old: object.IterTree(previous[same:])}
	d.haveOld = d.old.Next()
	return d
}

// Next moves to the next entry and reports whether there is one.
func (d *TreeDiff) Next() bool {
	for d.next() {
		// Old tools wrote versions that are out of order. Entries of those may be given that are not new:
		// this costs work and does no harm.
		for d.haveOld && bytes.Compare(d.old.Name, d.Name) < 0 {
			d.haveOld = d.old.Next()
		}
		sameName := d.haveOld && bytes.Equal(d.old.Name, d.Name)
		same := sameName && d.old.ID == d.ID && d.old.Mode == d.Mode
		if !same && d.Mode.Type() != object.TypeCommit {
			if sameName && bytes.Equal(d.Rest(), d.old.Rest()) {
				d.end()
			}
			return true
		}
		if sameName {
			d.haveOld = d.old.Next()
		}
	}
	return false
}

func (d *TreeDiff) next() bool {
	if d.NoFiles {
		d.SkipFiles()
	}
	return d.TreeIter.Next()
}

// Former returns the tree that the previous version has under the current entry's name, if any.
func (d *TreeDiff) Former() (tree object.ID, ok bool) {
	if d.haveOld && d.old.Mode.IsTree() && bytes.Equal(d.old.Name, d.Name) {
		return d.old.ID, true
	}
	return object.ZeroID, false
}

// end makes the current entry the last one that Next gives: the rest of both versions is equal.
func (d *TreeDiff) end() {
	mode, name, id := d.Mode, d.Name, d.ID
	d.TreeIter = object.IterTree(nil)
	d.Mode, d.Name, d.ID = mode, name, id
}
