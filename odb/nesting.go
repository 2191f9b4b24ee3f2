package odb

import (
	"fmt"
	"slices"

	"packhorse/pack"
	"packhorse/pack/object"
)

// treeNesting notes how the trees of a pack lie in each other, to refuse trees that nest too deeply and paths that are too long. It ends
// its notes, and the check is not made, when they outgrow their bound; a tree may also hold stored trees, whose depth is not known here.
// So whoever walks trees bounds the depth once more.
type treeNesting struct {
	trees []nestedTree
	links []nestedLink
	over  bool
}

type nestedTree struct {
	id      object.ID
	nameMax uint16 // longest name in it, in bytes
	end     uint32 // its links end here in links, and begin where those of the tree before end
}

type nestedLink struct {
	id   object.ID
	name uint16 // length of the name
}

const (
	// nestedMax bounds trees and links together, at 24 to 28 bytes each.
	nestedMax = 2_000_000
	// pathBytesMax and pathComponentBytesMax are the longest path, and the longest name in a tree.
	pathBytesMax          = 4096
	pathComponentBytesMax = 255
)

func (n *treeNesting) full() bool {
	if len(n.trees)+len(n.links) > nestedMax {
		*n = treeNesting{over: true}
	}
	return n.over
}

// link notes a tree in the tree that tree ends.
func (n *treeNesting) link(id object.ID, nameLength int) {
	if !n.full() {
		n.links = append(n.links, nestedLink{id: id, name: uint16(min(nameLength, pathComponentBytesMax+1))})
	}
}

// tree ends a tree, all its links having been noted.
func (n *treeNesting) tree(id object.ID, nameMax int) {
	if !n.full() {
		n.trees = append(n.trees, nestedTree{id: id, nameMax: uint16(nameMax), end: uint32(len(n.links))})
	}
}

// join adds what another has noted.
func (n *treeNesting) join(other *treeNesting) {
	if n.over || other.over {
		*n = treeNesting{over: true}
		return
	}
	shift := uint32(len(n.links))
	for _, tree := range other.trees {
		tree.end += shift
		n.trees = append(n.trees, tree)
	}
	n.links = append(n.links, other.links...)
	*other = treeNesting{}
	n.full()
}

// nestedSpan is how deep a tree reaches: in trees, itself included, and in bytes of the longest path in it.
type nestedSpan struct{ depth, path int }

// check returns a [pack.LimitError] when a tree is too deep, or a path in it too long. The stack is as deep as the trees are, at most
// depthMax.
func (n *treeNesting) check(depthMax int) error {
	w := nestingWalk{nesting: n, depthMax: depthMax, byID: make([]uint32, len(n.trees)), spans: make([]nestedSpan, len(n.trees))}
	for i := range w.byID {
		w.byID[i] = uint32(i)
	}
	slices.SortFunc(w.byID, func(a, b uint32) int { return n.trees[a].id.Compare(n.trees[b].id) })
	for i := range n.trees {
		if _, err := w.span(uint32(i), 1); err != nil {
			return err
		}
	}
	return nil
}

type nestingWalk struct {
	nesting  *treeNesting
	depthMax int
	byID     []uint32     // indexes of trees, sorted by ID
	spans    []nestedSpan // known ones are not zero
}

func (w *nestingWalk) span(tree uint32, depth int) (nestedSpan, error) {
	if known := w.spans[tree]; known.depth > 0 {
		return known, w.judge(tree, nestedSpan{depth: depth - 1 + known.depth, path: known.path})
	}
	if err := w.judge(tree, nestedSpan{depth: depth}); err != nil {
		return nestedSpan{}, err
	}
	span := nestedSpan{depth: 1, path: int(w.nesting.trees[tree].nameMax)}
	for _, link := range w.nesting.linksOf(tree) {
		at, ok := slices.BinarySearchFunc(w.byID, link.id, func(i uint32, id object.ID) int { return w.nesting.trees[i].id.Compare(id) })
		if !ok {
			continue
		}
		below, err := w.span(w.byID[at], depth+1)
		if err != nil {
			return nestedSpan{}, err
		}
		span.depth = max(span.depth, 1+below.depth)
		span.path = max(span.path, int(link.name)+1+below.path)
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
	return fmt.Errorf("tree %s: %w", w.nesting.trees[tree].id, &limit)
}

func (n *treeNesting) linksOf(tree uint32) []nestedLink {
	start := uint32(0)
	if tree > 0 {
		start = n.trees[tree-1].end
	}
	return n.links[start:n.trees[tree].end]
}
