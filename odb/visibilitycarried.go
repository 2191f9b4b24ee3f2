package odb

import (
	"context"
	"maps"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// carryVisibility keeps the latest visibility set of a fork from the replaced layers in the cache,
// over the layers of the view after the rewrite. The set of the next fork grows from it. Otherwise
// that fork's first request by ID would walk the whole history, since the layers that the latest
// set is about are none of its own. So a rewrite that keeps every object carries the set before the
// pool gets the new segment. A failure is logged.
func (r *Rewrite) carryVisibility(ctx context.Context, after *View) {
	for _, of := range r.store.visibility.relatives(maps.Keys(r.chosen)) {
		set, err := r.carried(ctx, of.ready(), after)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				r.store.log.WarnContext(ctx, "failed to keep the visibility set of a fork", "pool", r.view.pool, "error", err)
			}
			return
		case set != nil:
			r.store.visibility.addCarried(of, set)
			return
		}
	}
}

// carried returns a set of objects of the view before the rewrite as a set of those in the view
// after it, nil if the set is about other layers, too.
func (r *Rewrite) carried(ctx context.Context, before *visibilitySet, after *View) (*visibilitySet, error) {
	if !r.view.hasSegmentsOf(before) {
		return nil, nil
	}
	set := &visibilitySet{known: true, segments: make(map[segment.LayerID]visibleSegment)}
	for id, known := range before.segments {
		if !r.chosen[id] {
			set.segments[id] = known.with(visibleSegment{})
		}
	}
	unpacked, err := after.addVisible(ctx, set, before.unpacked.ids())
	if err != nil {
		return nil, err
	}
	set.unpacked = newIDList(unpacked)
	for _, former := range r.view.Segments() {
		if !r.chosen[former.ID] {
			continue
		}
		err := former.eachVisible(ctx, before.segments[former.ID], func(ids []object.ID) error {
			_, err := after.addVisible(ctx, set, ids)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return set, nil
}

// addVisible adds those of the sorted ids to set that segments of v hold, and returns the others.
// It changes both in place.
func (v *View) addVisible(ctx context.Context, set *visibilitySet, ids []object.ID) (others []object.ID, err error) {
	others = ids
	for _, l := range v.Segments() {
		if set.segments[l.ID], others, err = l.addVisible(ctx, set.segments[l.ID], others); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// visibleRun is the number of IDs that eachVisible passes at once.
const visibleRun = 1 << 14

// eachVisible passes the IDs of the visible objects of a segment in order, some thousand at a time,
// in a slice that is reused.
func (l *SegmentLayer) eachVisible(
	ctx context.Context, visible visibleSegment, visit func(ids []object.ID) error,
) error {
	g, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer l.Release(g)
	ids := make([]object.ID, 0, min(visible.count, visibleRun))
	for ordinal := range uint32(visible.count) {
		if !visible.has(ordinal) {
			continue
		}
		id, err := g.ID(ctx, ordinal)
		if err != nil {
			return err
		}
		if ids = append(ids, id); len(ids) == visibleRun {
			if err := visit(ids); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return visit(ids)
}
