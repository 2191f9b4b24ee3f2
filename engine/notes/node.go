package notes

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"

	"packhorse/pack/object"
)

// node has a child for each value of one hexadecimal digit: the digit of an id at the node's level,
// which counts from 0 at the root. A child is nil, a *node, or a *leaf.
type node [16]any

// leaf is a note, or a folder that has not been opened. It is at the highest level where no other
// entry begins with the same digits.
type leaf struct {
	// key is the id that the note is about; of a folder, the ids in it begin with its first size bytes
	// and the rest is zero.
	key      object.ID
	isFolder bool
	size     int
	// values are the blobs of the note, one as a rule, or the folder's tree.
	values []object.ID
}

// newLeaf returns the leaf for an entry of the folder of IDs that begin with prefix, or nil if it
// is not a note.
func newLeaf(prefix []byte, it *object.TreeIter) *leaf {
	l := &leaf{values: []object.ID{it.ID}}
	copy(l.key[:], prefix)
	switch {
	case len(it.Name) == object.HexSize-2*len(prefix):
		if !it.Mode.IsRegular() {
			return nil
		}
	case len(it.Name) == 2:
		if !it.Mode.IsTree() {
			return nil
		}
		l.isFolder, l.size = true, len(prefix)+1
	default:
		return nil
	}
	if _, err := hex.Decode(l.key[len(prefix):], it.Name); err != nil {
		return nil
	}
	return l
}

// holds reports whether id belongs to the folder l.
func (l *leaf) holds(id object.ID) bool { return bytes.Equal(id[:l.size], l.key[:l.size]) }

// only returns the one note in n, or nil when n is empty. A node with more, or with anything else,
// has to stay.
func (n *node) only() (any, bool) {
	var only any
	for _, child := range n {
		if child == nil {
			continue
		}
		if only != nil {
			return nil, false
		}
		only = child
	}
	l, ok := only.(*leaf)
	return only, only == nil || ok && !l.isFolder
}

// place is where an id belongs: a child of a node at a level.
type place struct {
	node  *node
	level int
	slot  *any
}

// search finds the place of id below n, and opens the folders on the way. The place is empty, or
// holds a note of this or another ID, or a folder that id does not belong to.
func (t *Tree) search(ctx context.Context, n *node, level int, id object.ID) (place, error) {
	for {
		// The first child too may be a folder that holds id: one whose key has ended above this
		// level continues with zeros.
		opened := false
		for _, slot := range []*any{&n[0], &n[nibble(id, level)]} {
			if f, ok := (*slot).(*leaf); ok && f.isFolder && f.holds(id) {
				*slot = nil
				if err := t.load(ctx, f, n, level); err != nil {
					return place{}, err
				}
				opened = true
				break
			}
		}
		if opened {
			continue
		}
		slot := &n[nibble(id, level)]
		below, ok := (*slot).(*node)
		if !ok {
			return place{node: n, level: level, slot: slot}, nil
		}
		n, level = below, level+1
	}
}

// insert puts l below n. A note that is there already is replaced, or joined with l.
func (t *Tree) insert(ctx context.Context, n *node, level int, l *leaf, replace bool) error {
	at, err := t.search(ctx, n, level, l.key)
	if err != nil {
		return err
	}
	there, ok := (*at.slot).(*leaf)
	switch {
	case !ok:
		*at.slot = l
		return nil
	case !there.isFolder && !l.isFolder && there.key == l.key:
		there.join(l, replace)
		return nil
	case !there.isFolder && l.isFolder && l.holds(there.key):
		return t.load(ctx, l, at.node, at.level)
	}
	below := &node{}
	if err := t.insert(ctx, below, at.level+1, there, false); err != nil {
		return err
	}
	*at.slot = below
	return t.insert(ctx, below, at.level+1, l, replace)
}

// join adds to the note l the blob of other, unless it has it, or takes that in place of its own.
func (l *leaf) join(other *leaf, replace bool) {
	switch {
	case replace:
		l.values = other.values
	case len(l.values) == 1 && l.values[0] == other.values[0]:
	default:
		l.values = append(l.values, other.values...)
	}
}

func nibble(id object.ID, level int) byte {
	b := id[level/2]
	if level%2 == 0 {
		return b >> 4
	}
	return b & 15
}

// pathOf is the folder of the ids that begin with prefix: two digits and a slash for each byte.
func pathOf(prefix []byte) string {
	var path strings.Builder
	for _, b := range prefix {
		path.WriteString(hex.EncodeToString([]byte{b}))
		path.WriteByte('/')
	}
	return path.String()
}
