package odb

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// visibility checks the visibility set of borrowed layers: that it can be read and fits the layers,
// and that its objects exist.
func (f *fsck) visibility(ctx context.Context, l *borrowing) error {
	if l == nil {
		return nil
	}
	s := f.view.store
	id := l.auxiliary.id
	if err := f.partKeys(ctx, l.auxiliary); err != nil {
		return err
	}
	set, err := s.readVisibility(ctx, f.view.pool, l.auxiliary)
	if err != nil {
		return f.noted(id, object.ZeroID, err)
	}
	for i := range set.tips.count() {
		if err := f.visibleTip(ctx, id, set.tips.at(i)); err != nil {
			return err
		}
	}
	for _, segment := range f.view.Segments() {
		if err := f.visibleSegment(ctx, l, segment, set); err != nil {
			return err
		}
	}
	return nil
}

func (f *fsck) visibleTip(ctx context.Context, auxiliary segment.LayerID, tip object.ID) error {
	_, ok, err := f.view.locate(ctx, tip)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the fork took it", ErrMissing)
	}
	return f.noted(auxiliary, tip, err)
}

// visibleSegment checks that the visibility set covers as many objects as the segment has.
func (f *fsck) visibleSegment(ctx context.Context, l *borrowing, segment *SegmentLayer, set *visibilitySet) error {
	if !slices.Contains(l.layers, segment.ID) || !set.known || set.all {
		return nil
	}
	g, err := segment.Acquire(ctx)
	if err != nil {
		return f.noted(segment.ID, object.ZeroID, err)
	}
	defer segment.Release(g)
	if said, ok := set.segments[segment.ID]; !ok || said.count != g.Count {
		f.problem(l.auxiliary.id, object.ZeroID, fmt.Errorf("%w: it is about %d objects of segment %s, which has %d",
			ErrDisagree, said.count, segment.ID, g.Count))
	}
	return nil
}
