package odb

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/pack/object"
)

// filterFile checks a filter companion: its blocks, and that its commits and their filters are those of the segment.
func (f *fsck) filterFile(ctx context.Context, l *segmentLayer) error {
	g, err := l.filters.acquire(ctx)
	if err != nil {
		return f.noted(l.filters.layer, object.ZeroID, err)
	}
	defer l.filters.release()
	if ok, err := f.sections(ctx, g); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, g); err != nil {
		return err
	}
	if l.rows == nil {
		f.problem(g.layer, object.ZeroID, fmt.Errorf("%w: path filters beside a segment without commits", ErrDisagree))
		return nil
	}
	rows, err := l.rows.acquire(ctx)
	if err != nil {
		return f.noted(l.rows.layer, object.ZeroID, err)
	}
	defer l.rows.release()
	if rows.count != g.count {
		f.problem(g.layer, object.ZeroID, fmt.Errorf("%w: %d path filters of %d commits", ErrDisagree, g.count, rows.count))
		return nil
	}
	for i := range uint32(g.count) {
		id, err := g.id(ctx, i)
		if err == nil {
			err = f.pathFilter(ctx, g, rows, i)
		}
		if err := f.noted(g.layer, id, err); err != nil {
			return err
		}
	}
	return nil
}

// pathFilter compares the filter of a commit with one that is made again.
func (f *fsck) pathFilter(ctx context.Context, g, rows *sectionFile, index uint32) error {
	stored, err := g.pathFilterAt(ctx, index)
	if err != nil {
		return err
	}
	want, err := f.view.filterOfRow(ctx, rows, index)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, want) {
		return fmt.Errorf("%w: its path filter is not that of its changes", ErrDisagree)
	}
	return nil
}
