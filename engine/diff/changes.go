package diff

import (
	"context"
	"iter"

	"packhorse/pack/object"
)

const (
	// changesHeldMax bounds the changes in memory while renames are not known yet; beyond, only the
	// candidates are kept, and the trees are walked twice.
	changesHeldMax = 20_000
	// candidatesHeldMax bounds the candidates: in a diff with more deleted and added files no
	// renames are searched.
	candidatesHeldMax = 500_000
)

// Changes is [Trees] with renames: the deleted file of each pair is gone and the added one has
// become [Renamed]. Nothing can be yielded before both trees have been walked, unless one of them
// is empty. It holds 100 bytes and a path for each file that was added or deleted, up to 500,000 of
// them; beyond, nothing is a rename.
func Changes(ctx context.Context, objects Objects, before, after object.ID, paths []string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		c := changes{byPath: map[string]Rename{}, gone: map[string]bool{}}
		if err := c.gather(ctx, objects, before, after, paths); err != nil {
			yield(Change{}, err)
			return
		}
		if c.whole {
			for i := range c.held {
				if change, ok := c.resolve(c.held[i]); ok && !yield(change, nil) {
					return
				}
			}
			return
		}
		c.held = nil
		for change, err := range Trees(ctx, objects, before, after, paths) {
			ok := true
			if err == nil {
				change, ok = c.resolve(change)
			}
			if ok && !yield(change, err) {
				return
			}
		}
	}
}

// changes is the result of the first walk of Changes.
type changes struct {
	held           []Change
	whole          bool // held is all there is
	deleted, added []Entry
	byPath         map[string]Rename // by the path of the added file
	gone           map[string]bool   // paths of deleted files that have become the source of a rename
}

func (c *changes) gather(ctx context.Context, objects Objects, before, after object.ID, paths []string) error {
	if isEmpty(before) || isEmpty(after) {
		return nil
	}
	c.whole = true
	for change, err := range Trees(ctx, objects, before, after, paths) {
		if err != nil {
			return err
		}
		if len(c.held) < changesHeldMax {
			c.held = append(c.held, change)
		} else {
			c.whole = false
		}
		switch change.Status {
		case Added:
			c.added = append(c.added, change.New)
		case Deleted:
			c.deleted = append(c.deleted, change.Old)
		default:
		}
		if len(c.added)+len(c.deleted) > candidatesHeldMax {
			*c = changes{}
			return nil
		}
	}
	renames, err := Renames(ctx, objects, c.deleted, c.added)
	if err != nil {
		return err
	}
	for _, r := range renames {
		c.byPath[c.added[r.New].Path] = r
		c.gone[c.deleted[r.Old].Path] = true
	}
	return nil
}

func isEmpty(tree object.ID) bool { return tree == object.ZeroID || tree == object.EmptyTreeID }

// resolve returns a change with its rename, and false for one that is a part of another.
func (c *changes) resolve(change Change) (Change, bool) {
	switch change.Status {
	case Deleted:
		return change, !c.gone[change.Old.Path]
	case Added:
		if r, ok := c.byPath[change.New.Path]; ok {
			change.Status, change.Old, change.Score = Renamed, c.deleted[r.Old], r.Score
		}
	default:
	}
	return change, true
}
