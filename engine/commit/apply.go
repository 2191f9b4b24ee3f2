package commit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// met is the entry at an operation's path in the base that was last located or applied to; the zero
// ID means none.
type met struct {
	mode     object.Mode
	id       object.ID
	from, to int // where the entry lies in its tree
}

// Existing returns mode and ID of the entry at the path of the operation at index, in the base tree
// of the last [Plan.Locate], or zeros without one.
func (p *Plan) Existing(index int) (object.Mode, object.ID) {
	m := p.nodes[index].met
	return m.mode, m.id
}

// Locate records the entry at each operation's path in the tree base, which may be the zero ID for
// none. It opens each folder on the way to an operation once.
func (p *Plan) Locate(ctx context.Context, v *odb.View, base object.ID) error {
	if p.located && p.base == base {
		return nil
	}
	p.located = false // until all is noted
	if err := p.root.locate(ctx, v, base); err != nil {
		return err
	}
	p.base, p.located = base, true
	return nil
}

func (n *node) locate(ctx context.Context, v *odb.View, tree object.ID) error {
	for _, child := range n.children {
		child.met = met{}
	}
	data, err := v.ReadTree(ctx, tree)
	if err != nil {
		return fmt.Errorf("read tree %s: %w", tree, err)
	}
	it := object.IterTree(data)
	for from, missing := 0, len(n.children); missing > 0 && it.Next(); {
		to := len(data) - len(it.Rest())
		if child := n.child(it.Name); child != nil {
			child.met = met{mode: it.Mode.Canonical(), id: it.ID, from: from, to: to}
			missing--
		}
		from = to
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read tree %s: %w", tree, err)
	}
	for _, child := range n.children {
		if len(child.children) == 0 {
			continue
		}
		var below object.ID
		if child.met.mode.IsTree() {
			below = child.met.id
		}
		if err := child.locate(ctx, v, below); err != nil {
			return err
		}
	}
	return nil
}

// Apply writes into q the trees that result from the operations over the tree base and returns the
// new root tree; the zero base stands for an empty one. Folders that end up empty are left out, as
// git does.
//
// It is an [InvalidError] when a path to delete does not exist, or when content that is to keep an
// existing mode does not fit it, an [odb.RefusedFileError] when git refuses a content under its
// name, or an error of [Plan.Prepare]. Deletions and moves apply to base, and writes are done after
// them. Trees of an earlier Apply of the same plan stay in q.
func (p *Plan) Apply(ctx context.Context, q *odb.Quarantine, base object.ID) (object.ID, error) {
	v := q.View().Linked()
	if err := p.Prepare(ctx, q, base); err != nil {
		return object.ZeroID, err
	}
	id, err := p.root.apply(ctx, q, v, base, false)
	if err != nil {
		return object.ZeroID, err
	}
	if id.IsZero() {
		return q.Write(ctx, object.TypeTree, nil, object.ZeroID)
	}
	return id, nil
}

// apply returns the tree of the folder n, or the zero id when it ends up empty. With cleared, what
// base holds is gone except that deletions below are still checked against it.
func (n *node) apply(
	ctx context.Context, q *odb.Quarantine, v *odb.View, base object.ID, cleared bool,
) (object.ID, error) {
	data, err := v.ReadTree(ctx, base)
	if err != nil {
		return object.ZeroID, fmt.Errorf("read tree %s: %w", base, err)
	}
	s := splice{data: data}
	if cleared {
		s.data = nil
	}
	for _, child := range n.children {
		if !child.changes { // it is where something comes from
			continue
		}
		entry, err := child.entry(ctx, q, v, cleared)
		if err != nil {
			return object.ZeroID, odb.InFolder(child.name, err)
		}
		there := child.met
		if cleared {
			there = met{}
		}
		s.change(there, entry)
	}
	spliced, err := s.tree()
	if err != nil {
		return object.ZeroID, fmt.Errorf("read tree %s: %w", base, err)
	}
	if len(spliced) == 0 {
		return object.ZeroID, nil
	}
	return q.Write(ctx, object.TypeTree, spliced, base)
}

// entry returns the entry at n after the operations; the zero ID means none.
func (n *node) entry(ctx context.Context, q *odb.Quarantine, v *odb.View, cleared bool) (object.TreeEntry, error) {
	nothing := object.TreeEntry{}
	if n.remove != nil && n.met.id.IsZero() {
		return nothing, &InvalidError{Path: n.remove.Path, Reason: "is to be deleted and does not exist"}
	}
	if n.write != nil {
		return n.written()
	}
	if !slices.ContainsFunc(n.children, func(child *node) bool { return child.changes }) {
		return nothing, nil
	}
	var base object.ID
	if n.met.mode.IsTree() {
		base = n.met.id
	}
	id, err := n.apply(ctx, q, v, base, cleared || n.remove != nil || n.taken != nil)
	if err != nil {
		return nothing, err
	}
	return object.TreeEntry{Name: n.name, Mode: object.ModeTree, ID: id}, nil
}

// written returns the entry that the operation writes.
func (n *node) written() (object.TreeEntry, error) {
	entry := object.TreeEntry{Name: n.name, Mode: n.write.Mode, ID: n.write.Content}
	switch {
	case n.origin != nil:
		entry.Mode, entry.ID = cmp.Or(n.write.Mode, n.origin.mode), n.origin.id
	case entry.Mode == 0 && n.met.mode.IsGitlink():
		return object.TreeEntry{}, &InvalidError{
			Path: n.write.Path, Reason: "is a submodule: state its mode 160000, or the mode of the file that replaces it",
		}
	case entry.Mode == 0:
		entry.Mode = n.keptMode()
	}
	return entry, nil
}

// keptMode is the mode of content that was written without one.
func (n *node) keptMode() object.Mode {
	if n.met.id.IsZero() || n.met.mode.IsTree() {
		return object.ModeBlob
	}
	return n.met.mode
}
