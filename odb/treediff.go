package odb

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"packhorse/pack/object"
)

// treeDiff gives the entries of a tree that another version of it does not have, links to submodules apart. What both versions have in
// common is passed over without looking at entries where that is possible: nearly all of two trees that follow each other is the same.
type treeDiff struct {
	object.TreeIter
	old     object.TreeIter
	haveOld bool
}

func newTreeDiff(data, previous []byte) treeDiff {
	same := commonEntries(data, previous)
	d := treeDiff{TreeIter: object.IterTree(data[same:]), old: object.IterTree(previous[same:])}
	d.haveOld = d.old.Next()
	return d
}

// next moves to the next entry and reports whether there is one.
func (d *treeDiff) next() bool {
	for d.Next() {
		// In a version that is out of order, which old tools wrote, entries may be given that are not new: no harm, only work.
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

// end makes the current entry the last one that next gives: behind it both versions are the same.
func (d *treeDiff) end() {
	mode, name, id := d.Mode, d.Name, d.ID
	d.TreeIter = object.IterTree(nil)
	d.Mode, d.Name, d.ID = mode, name, id
}

// commonEntries returns the length of the whole entries at the front that two trees have in common.
func commonEntries(a, b []byte) int {
	same, whole := commonPrefix(a, b), 0
	for {
		const modeMin = len("40000 ")
		if whole+modeMin > len(a) {
			return whole
		}
		name := bytes.IndexByte(a[whole+modeMin:], 0)
		next := whole + modeMin + name + 1 + object.IDSize
		if name < 0 || next > same {
			return whole
		}
		whole = next
	}
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
