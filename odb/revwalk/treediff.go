package revwalk

import (
	"bytes"

	"packhorse/pack/object"
)

// TreeDiff gives the entries of a tree that another version of it does not have, links to
// submodules apart. What both versions have in common is passed over without looking at entries
// where that is possible: nearly all of two trees that follow each other is the same.
type TreeDiff struct {
	object.TreeIter
	old     object.TreeIter
	haveOld bool
}

// NewTreeDiff returns the difference of a tree, data, from a previous version.
func NewTreeDiff(data, previous []byte) TreeDiff {
	same := object.CommonEntries(data, previous)
	d := TreeDiff{TreeIter: object.IterTree(data[same:]), old: object.IterTree(previous[same:])}
	d.haveOld = d.old.Next()
	return d
}

// Next moves to the next entry and reports whether there is one.
func (d *TreeDiff) Next() bool {
	for d.TreeIter.Next() {
		// In a version that is out of order, which old tools wrote, entries may be given that are not
		// new: no harm, only work.
		for d.haveOld && bytes.Compare(d.old.Name, d.Name) < 0 {
			d.haveOld = d.old.Next()
		}
		sameName := d.haveOld && bytes.Equal(d.old.Name, d.Name)
		same := sameName && d.old.ID == d.ID && d.old.Mode == d.Mode
		if !same && !d.Mode.IsGitlink() {
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

// end makes the current entry the last one that Next gives: behind it both versions are the same.
func (d *TreeDiff) end() {
	mode, name, id := d.Mode, d.Name, d.ID
	d.TreeIter = object.IterTree(nil)
	d.Mode, d.Name, d.ID = mode, name, id
}
