package blame

import (
	"context"

	"packhorse/engine/diff"
	"packhorse/engine/diff/lines"
	"packhorse/pack/object"
)

// lineDiff is how git blame compares files.
var lineDiff = lines.Options{NoContext: true}

// pass passes the entries of an origin to the parents of its commit, as far as these have the
// lines. The remaining lines are the commit's own.
func (b *blamer) pass(ctx context.Context, o *origin) error {
	parents, whole, err := b.parents(ctx, o)
	if err != nil {
		return err
	}
	if whole != nil {
		if !whole.hasText {
			whole.text, whole.hasText = o.text, o.hasText
		}
		b.blame(whole, o.entries)
		o.entries = nil
		return nil
	}
	for _, parent := range parents {
		if o.previous == object.ZeroID {
			o.previous = parent.node.id
		}
		if err := b.passTo(ctx, o, parent); err != nil {
			return err
		}
		if len(o.entries) == 0 {
			return nil
		}
	}
	if b.moves {
		return b.passMoves(ctx, o, parents)
	}
	return nil
}

// parents finds the file in the parents: under its path in all of them first, then under the name
// that it was renamed from. A parent whose file is the same takes it whole; of parents with equal
// files there is only the first.
func (b *blamer) parents(ctx context.Context, o *origin) (all []*origin, whole *origin, err error) {
	found := make([]*origin, len(o.node.row.Parents))
	added := make([]bool, len(found)) // the file does not exist under this name
	for _, renames := range [2]bool{false, true} {
		for i, id := range o.node.row.Parents {
			if found[i] != nil || renames && !added[i] {
				continue
			}
			n, err := b.node(ctx, id)
			if err != nil {
				return nil, nil, err
			}
			var parent *origin
			if renames {
				parent, err = b.renamed(ctx, o, n)
			} else {
				parent, added[i], err = b.unrenamed(ctx, o, n, i)
			}
			switch {
			case err != nil:
				return nil, nil, err
			case parent == nil || hasBlob(found[:i], parent.blob):
			case parent.blob == o.blob:
				return nil, parent, nil
			default:
				found[i] = parent
			}
		}
	}
	for _, parent := range found {
		if parent != nil {
			all = append(all, parent)
		}
	}
	return all, nil, nil
}

func hasBlob(origins []*origin, blob object.ID) bool {
	for _, o := range origins {
		if o != nil && o.blob == blob {
			return true
		}
	}
	return false
}

// unrenamed finds the file of the parent with an index at the same path, nil if there is none;
// added says that there is no file there at all.
func (b *blamer) unrenamed(
	ctx context.Context, o *origin, parent *node, index int,
) (_ *origin, added bool, err error) {
	if known := parent.find(o.path); known != nil {
		return known, false, nil
	}
	reader, err := b.reader(ctx, o.path)
	if err != nil {
		return nil, false, err
	}
	same, change, err := reader.Look(ctx, o.node.id, index)
	switch {
	case err != nil:
		return nil, false, err
	case same:
		return parent.origin(o.path, o.mode, o.blob), false, nil
	case change != nil:
		return o.before(parent, change.Old.Mode, change.Old.ID)
	}
	mode, id, err := reader.Entry(ctx, parent.row.Tree)
	if err != nil {
		return nil, false, err
	}
	return o.before(parent, mode, id)
}

// before is the file of a parent that has an entry at the same path, as of [blamer.unrenamed].
func (o *origin) before(parent *node, mode object.Mode, id object.ID) (_ *origin, added bool, err error) {
	switch {
	case mode == 0 || mode.IsTree():
		return nil, true, nil
	case (mode^o.mode)&object.ModeMask != 0: // say a symbolic link, which has no lines in common with a file
		return nil, false, nil
	}
	return parent.origin(o.path, mode, id), false, nil
}

// renamed finds the file of a parent that the file was renamed from, nil if there is none.
func (b *blamer) renamed(ctx context.Context, o *origin, parent *node) (*origin, error) {
	var deleted []diff.Entry
	for c, err := range diff.Trees(ctx, b.view, parent.row.Tree, o.node.row.Tree, nil) {
		if err != nil {
			return nil, err
		}
		if c.Status == diff.Deleted {
			deleted = append(deleted, c.Old)
		}
	}
	pairs, err := diff.Renames(ctx, b.view, deleted, []diff.Entry{{Path: o.path, Mode: o.mode, ID: o.blob}})
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	from := deleted[pairs[0].Old]
	return parent.origin(from.Path, from.Mode, from.ID), nil
}

// passTo hands to a parent the lines that its file has in common with the origin's.
func (b *blamer) passTo(ctx context.Context, o, parent *origin) error {
	changes, err := b.changes(ctx, parent, o)
	if err != nil {
		return err
	}
	// Entries may overlap, since several lines of the blamed file may come from the same one, so
	// each searches its changes from the start.
	passed, at := make([]entry, 0, len(o.entries)), 0
	var kept []entry
	for _, e := range o.entries {
		for at > 0 && newEnd(changes[at-1]) > e.source {
			at--
		}
		for at < len(changes) && newEnd(changes[at]) <= e.source {
			at++
		}
		passed, kept = divide(e, changes, at, passed, kept)
	}
	o.entries = kept
	b.blame(parent, passed)
	if !b.moves {
		parent.forget()
	}
	return nil
}

func newEnd(c lines.Change) int { return c.NewStart + c.NewCount }

// divide cuts an entry where changes begin and end: the lines between them go to passed, with their
// numbers in the old file, those inside them to kept. The change with the index at is the first
// that ends behind the beginning of the entry.
func divide(e entry, changes []lines.Change, at int, passed, kept []entry) (_, _ []entry) {
	shift := 0 // from a line of the new file to the same one of the old file
	if at > 0 {
		c := changes[at-1]
		shift = c.OldStart + c.OldCount - newEnd(c)
	}
	for ; e.count > 0; at++ {
		common := e.count
		if at < len(changes) {
			common = min(common, changes[at].NewStart-e.source)
		}
		if common > 0 {
			passed = append(passed, entry{e.line, e.source + shift, common})
			e = e.from(common)
		}
		if at == len(changes) || e.count == 0 {
			break
		}
		c := changes[at]
		if own := min(e.count, newEnd(c)-e.source); own > 0 {
			kept = append(kept, entry{e.line, e.source, own})
			e = e.from(own)
		}
		shift = c.OldStart + c.OldCount - newEnd(c)
	}
	return passed, kept
}

// from returns an entry without its first lines.
func (e entry) from(count int) entry { return entry{e.line + count, e.source + count, e.count - count} }
