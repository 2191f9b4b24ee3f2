// Package commit turns file operations into trees and commit objects.
//
// It implements API writes: which paths may be written, the effect of an operation on a tree, and
// the content of the new commit. Start at [NewPlan], which checks operations among themselves;
// [Plan.Apply] then builds the new root tree over a base, opening only the folders that an
// operation names; [Build] writes the commit. The package knows objects and IDs, but no refs: the
// caller chooses the base and moves the branch. The map, by file:
//
//	plan            operations arranged by folder
//	apply, splice   the trees that they make of a base
//	origin, edit    what paths get from the base; exact text that is replaced
//	build           commits
package commit

import (
	"errors"
	"fmt"
	"strings"

	"packhorse/pack/object"
)

// ErrInvalid matches every [InvalidError].
var ErrInvalid = errors.New("commit: invalid operation")

// InvalidError names the operation of a request that cannot be done, and the reason. Its Is method
// matches [ErrInvalid].
type InvalidError struct {
	// Path is the path as the request gave it.
	Path string
	// Reason completes the sentence "path P ...".
	Reason string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("path %q %s", e.Path, e.Reason) }

// Is reports whether target is [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Bounds of a path, in bytes.
const (
	pathMax      = 4096
	componentMax = 255
)

// Operation writes or deletes one path. All that it says of the base is said of the base as it is
// before the first operation.
type Operation struct {
	// Path is relative to the repository's root; leading slashes are ignored.
	Path string
	// Delete removes the file or the folder at Path; the other fields are ignored.
	Delete bool
	// Mode is the mode to write, or zero: an existing file then keeps its own, a new one is a plain
	// file, and what has a Source has the mode that it has there.
	Mode object.Mode
	// Content is the blob, or for a gitlink the commit, for Path.
	Content object.ID
	// Asked says that Content is an ID that a client has sent. It must be that of a blob that may be
	// read.
	Asked bool
	// Source is what Path gets from the base instead of Content; nil for nothing.
	Source *Source
}

// Source is what an operation takes from the base.
type Source struct {
	// From is the path of a file or a folder, "" for the file at the path of the operation itself.
	From string
	// Move says that it is gone from there, unless another operation writes From.
	Move bool
	// Edits change it on its way; it is a file then.
	Edits []Edit
}

// Plan is a set of operations that do not contradict each other, arranged by folder.
//
// A plan is not safe for concurrent use: [Plan.Apply] takes notes in it.
type Plan struct {
	root *node
	ops  []Operation
	// nodes holds the node of ops[i] at i.
	nodes []*node
	// base is the tree that the nodes' notes are of, once there are any.
	base    object.ID
	located bool
}

// node is a path component that operations name: a folder on the way, the place of an operation,
// or, where a deleted path gets new content below it, both.
type node struct {
	name     string
	children []*node
	byName   map[string]*node // the children, when they are many
	write    *Operation
	origin   *origin // of what is written, if the base has it; nil otherwise
	remove   *Operation
	taken    *Operation // moves away what the base has here
	changes  bool       // an operation changes this path or one below it
	met      met
}

// fewChildren are looked through one by one.
const fewChildren = 8

// child returns the child of that name, nil if there is none.
func (n *node) child(name []byte) *node {
	if n.byName != nil {
		return n.byName[string(name)]
	}
	for _, child := range n.children {
		if child.name == string(name) {
			return child
		}
	}
	return nil
}

// add gives n another child.
func (n *node) add(child *node) {
	n.children = append(n.children, child)
	switch {
	case n.byName != nil:
		n.byName[child.name] = child
	case len(n.children) > fewChildren:
		n.byName = make(map[string]*node)
		for _, child := range n.children {
			n.byName[child.name] = child
		}
	}
}

// NewPlan arranges operations. It is an [InvalidError] when a path cannot be stored in a git tree,
// is given twice, or is written both as a file and as a folder. Contents may still be filled in
// with [Plan.SetContent].
func NewPlan(operations []Operation) (*Plan, error) {
	p := &Plan{root: &node{}, ops: operations, nodes: make([]*node, len(operations))}
	for i := range operations {
		n, err := p.place(&operations[i])
		if err != nil {
			return nil, err
		}
		p.nodes[i] = n
	}
	return p, nil
}

// SetContent gives the operation at index its blob, before [Plan.Apply].
func (p *Plan) SetContent(index int, id object.ID) { p.ops[index].Content = id }

func (p *Plan) place(op *Operation) (*node, error) {
	invalid := func(reason string) error { return &InvalidError{Path: op.Path, Reason: reason} }
	last := object.ModeTree
	if !op.Delete {
		last = op.Mode
	}
	n, err := p.walk(op.Path, last, func(n *node) error {
		n.changes = true
		if n.write != nil {
			return invalid(fmt.Sprintf("lies below %q, which is written as a file", n.write.Path))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n.changes = true
	if n.write != nil || n.remove != nil || op.Delete && n.taken != nil {
		return nil, invalid("is given twice")
	}
	if op.Delete {
		n.remove = op
		return n, nil
	}
	if below := n.writtenBelow(); below != "" {
		return nil, invalid(fmt.Sprintf("is written as a file, and %q lies below it", below))
	}
	n.write = op
	n.origin, err = p.originOf(op, n)
	return n, err
}

// walk returns the node of a path, whose last component gets a mode, and calls through with the
// folders on the way.
func (p *Plan) walk(given string, last object.Mode, through func(n *node) error) (*node, error) {
	invalid := func(reason string) error { return &InvalidError{Path: given, Reason: reason} }
	path := strings.TrimLeft(given, "/")
	switch {
	case path == "":
		return nil, invalid("is empty")
	case len(path) > pathMax:
		return nil, invalid(fmt.Sprintf("is longer than %d bytes", pathMax))
	}
	n := p.root
	for rest, more := path, true; more; {
		if err := through(n); err != nil {
			return nil, err
		}
		var name string
		name, rest, more = strings.Cut(rest, "/")
		mode := object.ModeTree
		if !more {
			mode = last
		}
		if reason := checkComponent(name, mode); reason != "" {
			return nil, invalid(reason)
		}
		child := n.child([]byte(name))
		if child == nil {
			child = &node{name: name}
			n.add(child)
		}
		n = child
	}
	return n, nil
}

// writtenBelow returns a path written below n, or "".
func (n *node) writtenBelow() string {
	for _, child := range n.children {
		if child.write != nil {
			return child.write.Path
		}
		if path := child.writtenBelow(); path != "" {
			return path
		}
	}
	return ""
}

// checkComponent returns the reason why name is unsafe in a tree, or "". The rules are those of git
// fsck --strict for a tree entry, so that the API writes nothing that a push could not.
func checkComponent(name string, mode object.Mode) string {
	switch {
	case name == "":
		return "has an empty component"
	case len(name) > componentMax:
		return fmt.Sprintf("has a component longer than %d bytes", componentMax)
	case strings.IndexByte(name, 0) >= 0:
		return "has a NUL byte"
	}
	if mode == 0 {
		mode = object.ModeBlob
	}
	entry := []object.TreeEntry{{Mode: mode, Name: name, ID: object.EmptyTreeID}}
	if err := object.Check(object.TypeTree, object.AppendTree(nil, entry)); err != nil {
		reason := err.Error()
		if broken, ok := errors.AsType[*object.CheckError](err); ok {
			reason = broken.Name // the component says the rest
		}
		return fmt.Sprintf("has the component %q, which git refuses (%s)", name, reason)
	}
	return ""
}
