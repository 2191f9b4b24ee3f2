package odb

import (
	"context"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// auxiliaryFile checks the blocks and the IDs of an auxiliary file, and then calls check.
func (f *fsck) auxiliaryFile(
	ctx context.Context, file *segment.SharedFile, check func(g *segment.File) error,
) error {
	g, err := file.Acquire(ctx)
	if err != nil {
		return f.noted(file.Layer, object.ZeroID, err)
	}
	defer file.Release()
	if ok, err := f.sections(ctx, g); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, g); err != nil {
		return err
	}
	return check(g)
}

// besideCommits is auxiliaryFile of a file of what about the commits of a segment, with its graph
// file.
func (f *fsck) besideCommits(
	ctx context.Context, l *SegmentLayer, file *segment.SharedFile, what string,
	check func(g, rows *segment.File) error,
) error {
	return f.auxiliaryFile(ctx, file, func(g *segment.File) error {
		if l.Rows == nil {
			f.problem(g.Layer, object.ZeroID, fmt.Errorf("%w: %s beside a segment without commits", ErrDisagree, what))
			return nil
		}
		rows, err := l.Rows.Acquire(ctx)
		if err != nil {
			return f.noted(l.Rows.Layer, object.ZeroID, err)
		}
		defer l.Rows.Release()
		return check(g, rows)
	})
}
