package ingest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"packhorse/pack"
	"packhorse/pack/object"
)

// treeNesting notes which trees of a pack contain which, to refuse trees that nest too deeply and
// paths that are too long. If the notes outgrow their bound, it stops and makes no check. A tree
// may also hold stored trees, whose depth is unknown here. So every walk of trees bounds the depth
// again.
//
// It identifies trees by the first eight bytes of their IDs: among millions of trees two agree in
// those once in a million packs.
type treeNesting struct {
	trees []nestedTree
	ids   []uint64 // of links
	names []uint16 // lengths of the names of links, in bytes
	over  bool
}

type nestedTree struct {
	id      uint64
	end     uint32 // the end of its links; they begin at the end of the tree before
	nameMax uint16 // longest name in it, in bytes
}

const (
	// nestedMax bounds trees and links together, at 10 to 16 bytes each.
	nestedMax = 1_000_000
	// pathBytesMax is the length of the longest path in bytes.
	pathBytesMax = 4096
)

func nestedID(id object.ID) uint64 { return binary.BigEndian.Uint64(id[:]) }

func (n *treeNesting) full() bool {
	if len(n.trees)+len(n.ids) > nestedMax {
		*n = treeNesting{over: true}
	}
	return n.over
}

// link notes a tree in the tree that tree ends. Names have been checked to be no longer than
// odb.PathComponentBytesMax.
func (n *treeNesting) link(id object.ID, nameLength int) {
	if !n.full() {
		n.ids = append(n.ids, nestedID(id))
		n.names = append(n.names, uint16(nameLength))
	}
}

// tree ends a tree after all its links have been noted.
func (n *treeNesting) tree(id object.ID, nameMax int) {
	if !n.full() {
		n.trees = append(n.trees, nestedTree{id: nestedID(id), nameMax: uint16(nameMax), end: uint32(len(n.ids))})
	}
}

// join moves the notes of another examiner here.
func (n *treeNesting) join(other *treeNesting) {
	over := n.over || other.over
	shift := uint32(len(n.ids))
	for _, tree := range other.trees {
		tree.end += shift
		n.trees = append(n.trees, tree)
	}
	n.ids = append(n.ids, other.ids...)
	n.names = append(n.names, other.names...)
	*other = treeNesting{}
	if over {
		*n = treeNesting{over: true}
	}
	n.full()
}

// nestedSpan is the depth of a tree in trees, itself included, and the length in bytes of the
// longest path in it.
type nestedSpan struct{ depth, path int32 }

// check returns a [pack.LimitError] if a tree nests too deeply, or a path is too long. It recurses
// as deep as trees may nest, at most odb.DepthMax.
func (n *treeNesting) check(depthMax int) error {
	w := nestingWalk{nesting: n, depthMax: int32(depthMax), byID: make([]uint32, len(n.trees)), spans: make([]nestedSpan,
		len(n.trees))}
	for i := range w.byID {
		w.byID[i] = uint32(i)
	}
	slices.SortFunc(w.byID, func(a, b uint32) int { return cmp.Compare(n.trees[a].id, n.trees[b].id) })
	for i := range n.trees {
		if _, err := w.span(uint32(i), 1); err != nil {
			return err
		}
	}
	return nil
}

type nestingWalk struct {
	nesting  *treeNesting
	depthMax int32
	byID     []uint32     // indexes of trees, sorted by ID
	spans    []nestedSpan // known ones are not zero
}

// span returns the span of a tree that lies depth deep.
func (w *nestingWalk) span(tree uint32, depth int32) (nestedSpan, error) {
	if known := w.spans[tree]; known.depth > 0 {
		return known, w.judge(tree, nestedSpan{depth: depth - 1 + known.depth, path: known.path})
	}
	if err := w.judge(tree, nestedSpan{depth: depth}); err != nil {
		return nestedSpan{}, err
	}
	n := w.nesting
	first := uint32(0)
	if tree > 0 {
		first = n.trees[tree-1].end
	}
	span := nestedSpan{depth: 1, path: int32(n.trees[tree].nameMax)}
	for link := first; link < n.trees[tree].end; link++ {
		at, ok := slices.BinarySearchFunc(w.byID, n.ids[link], func(i uint32, id uint64) int {
			return cmp.Compare(n.trees[i].id, id)
		})
		if !ok {
			continue
		}
		below, err := w.span(w.byID[at], depth+1)
		if err != nil {
			return nestedSpan{}, err
		}
		span.depth = max(span.depth, 1+below.depth)
		span.path = max(span.path, int32(n.names[link])+1+below.path)
	}
	w.spans[tree] = span
	return span, w.judge(tree, span)
}

func (w *nestingWalk) judge(tree uint32, span nestedSpan) error {
	limit := pack.LimitError{Limit: "tree depth", Value: int64(span.depth), Max: int64(w.depthMax)}
	if span.depth <= w.depthMax {
		if span.path <= pathBytesMax {
			return nil
		}
		limit = pack.LimitError{Limit: "path length", Value: int64(span.path), Max: pathBytesMax}
	}
	return fmt.Errorf("tree %016x...: %w", w.nesting.trees[tree].id, &limit)
}
