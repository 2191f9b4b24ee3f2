package odb

import (
	"context"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// An inflated object is cached under its place. When an object moves, its entry moves with it:
// otherwise the next request would build the object from its deltas again, and the next clone all
// trees.

// recache caches an object that has moved under its new place, if it is cached under the old one.
func (s *Store) recache(old, now segment.CacheKey) {
	if entry, ok := s.env.Cache.Peek(old); ok {
		s.env.Cache.Set(now, entry)
	}
}

func (s *Store) isCached(key segment.CacheKey) bool {
	_, ok := s.env.Cache.Peek(key)
	return ok
}

// carriedCountMax is the number of objects of a segment up to which a rewrite looks for those that
// are cached, for some milliseconds. Most trees that requests read lie in small, new layers.
const carriedCountMax = 1 << 16

// carryCached caches the objects of the replaced layers under their places in the new segment, if
// they are cached. A failure is logged.
func (r *Rewrite) carryCached(ctx context.Context, after *View) {
	if r.q == nil {
		return
	}
	for _, l := range after.Segments() {
		if l.ID != r.q.sealed[0].ID {
			continue
		}
		if err := r.carryCachedTo(ctx, l); err != nil && ctx.Err() == nil {
			r.store.log.WarnContext(ctx, "failed to keep cached objects", "pool", r.view.pool, "error", err)
		}
	}
}

func (r *Rewrite) carryCachedTo(ctx context.Context, now *SegmentLayer) error {
	g, err := now.Acquire(ctx)
	if err != nil {
		return err
	}
	defer now.Release(g)
	for _, former := range r.view.layers {
		if !r.chosen[former.layerID()] {
			continue
		}
		cached, err := r.cachedOf(ctx, former)
		if err != nil {
			return fmt.Errorf("layer %s: %w", former.layerID(), err)
		}
		ids := make([]object.ID, 0, len(cached))
		for id := range cached {
			ids = append(ids, id)
		}
		ids = segment.SortIDs(ids)
		err = g.LookupMany(ctx, ids, func(i int, ordinal uint32) error {
			r.store.recache(cached[ids[i]], segment.CacheKey{Layer: now.ID, Block: ordinal})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cachedOf returns the keys of the cached objects of a layer.
func (r *Rewrite) cachedOf(ctx context.Context, l layer) (map[object.ID]segment.CacheKey, error) {
	cached := make(map[object.ID]segment.CacheKey)
	packed, ok := l.(*SegmentLayer)
	if !ok {
		for id, err := range r.HotObjects(ctx, l.layerID()) {
			if err != nil {
				return nil, err
			}
			if key := hotCacheKey(l.layerID(), id); r.store.isCached(key) {
				cached[id] = key
			}
		}
		return cached, nil
	}
	g, err := packed.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer packed.Release(g)
	if g.Count > carriedCountMax {
		return cached, nil
	}
	for ordinal := range uint32(g.Count) {
		key := segment.CacheKey{Layer: packed.ID, Block: ordinal}
		if !r.store.isCached(key) {
			continue
		}
		id, err := g.ID(ctx, ordinal)
		if err != nil {
			return nil, err
		}
		cached[id] = key
	}
	return cached, nil
}
