package odb

import (
	"context"
	"slices"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// bitmapFile checks a bitmap file: its blocks, the list of segments that it covers, and every
// bitmap against the objects that its commit reaches.
func (f *fsck) bitmapFile(ctx context.Context, l *SegmentLayer) error {
	return f.auxiliaryFile(ctx, l.Bitmaps, func(g *segment.File) error {
		if f.view.store.options.Reach == nil {
			return nil
		}
		at := slices.Index(f.view.manifest.segments(), l.ID)
		view, segments := f.view.oldestSegments(at + 1)
		defer view.Close()
		return f.noted(g.Layer, object.ZeroID, f.view.store.options.Reach.CheckBitmaps(ctx, view, segments, g))
	})
}
