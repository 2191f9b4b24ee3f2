package odb

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/odb/bloom"
	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// filterFile checks a filter file: its blocks, and that its commits and their filters are
// those of the segment.
func (f *fsck) filterFile(ctx context.Context, l *SegmentLayer) error {
	return f.besideCommits(ctx, l, l.Filters, "path filters", func(g, rows *segment.File) error {
		if rows.Count != g.Count {
			f.problem(g.Layer, object.ZeroID, fmt.Errorf("%w: %d path filters of %d commits", ErrDisagree, g.Count, rows.Count))
			return nil
		}
		for i := range uint32(g.Count) {
			id, err := g.ID(ctx, i)
			if err == nil {
				err = f.pathFilter(ctx, g, rows, i)
			}
			if err := f.noted(g.Layer, id, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// hotFilter compares the path filter of a hot commit with a newly built one.
func (f *fsck) hotFilter(ctx context.Context, l *hotLayer, id object.ID, value []byte) error {
	stored, err := hot.DecodeFilter(id, value)
	if err != nil {
		return l.store.damaged(l.id, id, err)
	}
	row, ok, err := l.graph(ctx, id)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: a path filter without the graph row of its commit", ErrDisagree)
	}
	return f.isFilterOf(ctx, stored, &row)
}

// isFilterOf compares the filter of a commit with a newly built one.
func (f *fsck) isFilterOf(ctx context.Context, stored bloom.Filter, row *GraphRow) error {
	old, err := f.view.FirstParentTree(ctx, row)
	if err != nil {
		return err
	}
	want, err := f.view.FilterOf(ctx, old, row.Tree)
	if err == nil && !bytes.Equal(stored, want) {
		err = fmt.Errorf("%w: its path filter differs from its changes", ErrDisagree)
	}
	return err
}

// pathFilter compares the filter of a commit in a filter file with a newly built one.
func (f *fsck) pathFilter(ctx context.Context, g, rows *segment.File, index uint32) error {
	stored, err := g.PathFilterAt(ctx, index)
	if err != nil {
		return err
	}
	row, err := rows.GraphRowAt(ctx, index)
	if err != nil {
		return err
	}
	return f.isFilterOf(ctx, stored, &row)
}
