package odb

import (
	"context"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// historyFile checks a history file: its blocks, and that each row is the change of its commit.
func (f *fsck) historyFile(ctx context.Context, l *SegmentLayer) error {
	return f.besideCommits(ctx, l, l.Histories, "path histories", func(g, rows *segment.File) error {
		histories, count, err := f.pathHistories(ctx, g)
		if err != nil {
			return f.noted(g.Layer, object.ZeroID, err)
		}
		for i := range uint32(rows.Count) {
			id, err := rows.ID(ctx, i)
			if err == nil {
				err = f.historyOf(ctx, histories, rows, i, id, &count)
			}
			if err := f.noted(g.Layer, id, err); err != nil {
				return err
			}
		}
		if count != 0 {
			f.problem(g.Layer, object.ZeroID, fmt.Errorf("%w: %d rows of path histories are of no change", ErrDisagree, count))
		}
		return nil
	})
}

// pathHistories returns the histories of a file by their paths, and the number of their rows.
func (f *fsck) pathHistories(
	ctx context.Context, g *segment.File,
) (all map[object.ID]*segment.PathHistory, count int, err error) {
	all = make(map[object.ID]*segment.PathHistory, g.Count)
	for i := range uint32(g.Count) {
		id, err := g.ID(ctx, i)
		if err != nil {
			return nil, 0, err
		}
		h, err := g.PathHistoryAt(ctx, i)
		if err != nil {
			return nil, 0, err
		}
		for row := range h.Count() {
			c := h.At(row)
			if before := h.At(max(row-1, 0)); row > 0 && c.Compare(&before) <= 0 {
				return nil, 0, fmt.Errorf("%w: the rows of path history %d are not sorted", ErrDisagree, i)
			}
			if _, err := g.Lines(ctx, c.Lines); err != nil {
				return nil, 0, err
			}
		}
		all[id] = h
		count += h.Count()
	}
	return all, count, nil
}

// historyOf compares the rows of a commit with the changes of its tree. It takes those that are met
// from left.
func (f *fsck) historyOf(
	ctx context.Context, histories map[object.ID]*segment.PathHistory, rows *segment.File, index uint32,
	commit object.ID, left *int,
) error {
	row, err := rows.GraphRowAt(ctx, index)
	if err != nil {
		return err
	}
	trees := make([]object.ID, max(len(row.Parents), 1))
	if trees[0], err = f.view.FirstParentTree(ctx, &row); err != nil {
		return err
	}
	for i := 1; i < len(trees); i++ {
		parent, err := f.view.Graph(ctx, row.Parents[i])
		if err != nil {
			return err
		}
		trees[i] = parent.Tree
	}
	met := make(map[string]bool) // changed against the first parent
	for i, tree := range trees {
		err := f.view.TreeChanges(ctx, tree, row.Tree, func(path string, old, now segment.Version) (bool, error) {
			if i == 0 {
				met[path] = true
			} else if !met[path] {
				return false, nil
			}
			h := histories[segment.PathID(path)]
			if h == nil {
				return true, nil
			}
			if c, ok := h.Find(commit, i); !ok || c.Old != old || c.New != now {
				return false, fmt.Errorf("%w: a path history differs from the changes of a commit", ErrDisagree)
			}
			*left--
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
