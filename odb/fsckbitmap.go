package odb

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

// bitmapFile checks a bitmap file: its blocks, the list of segments that it covers, and every
// bitmap against the objects that its commit reaches.
func (f *fsck) bitmapFile(ctx context.Context, l *SegmentLayer) error {
	c := l.Bitmaps
	g, err := c.Acquire(ctx)
	if err != nil {
		return f.noted(c.Layer, object.ZeroID, err)
	}
	defer c.Release()
	if ok, err := f.sections(ctx, g); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, g); err != nil {
		return err
	}
	if f.view.store.options.Reach == nil {
		return nil
	}
	at := slices.Index(f.view.manifest.segments(), l.ID)
	view, segments := f.view.oldestSegments(at + 1)
	defer view.Close()
	return f.noted(c.Layer, object.ZeroID, f.view.store.options.Reach.CheckBitmaps(ctx, view, segments, g))
}
