package odb

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// eachNamed calls visit with the links of the objects of a layer that may lead outside of it, delta
// bases included. It skips hot objects in known, and adds the others to known if that is not nil.
func (v *View) eachNamed(
	ctx context.Context, l manifestLayer, known map[object.ID]struct{}, visit func(id object.ID) error,
) error {
	if l.kind == segment.KindHot {
		return v.eachNamedHot(ctx, newHotLayer(v.store, l.id, false, v.Asking().epoch), known, visit)
	}
	for _, segment := range v.Segments() {
		if segment.ID == l.id {
			return v.eachNamedSegment(ctx, segment, visit)
		}
	}
	return fmt.Errorf("odb: layer %s is not in its view", l.id)
}

func (v *View) eachNamedHot(
	ctx context.Context, l *hotLayer, known map[object.ID]struct{}, visit func(id object.ID) error,
) error {
	for pair, err := range v.store.keys.Scan(ctx, hot.Range(hot.TableObject, l.id)) {
		if err != nil {
			return err
		}
		id, ok := hot.IDOfKey(pair.Key)
		if !ok {
			continue
		}
		if _, ok := known[id]; ok {
			continue
		}
		at := l.at(id, bytes.Clone(pair.Value))
		e, err := l.entry(ctx, at)
		if err == nil && e.Delta() {
			err = visit(e.Base)
		}
		if err == nil && e.Type != object.TypeBlob {
			err = v.eachLink(ctx, at, visit)
		}
		if err != nil {
			return err
		}
		if known != nil {
			known[id] = struct{}{}
		}
	}
	return l.stands(ctx)
}

func (v *View) eachNamedSegment(ctx context.Context, l *SegmentLayer, visit func(id object.ID) error) error {
	g, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer l.Release(g)
	s, ok, err := g.Summary(ctx)
	if err != nil {
		return err
	}
	if ok {
		for _, id := range s.External {
			if err := visit(id); err != nil {
				return err
			}
		}
		for _, id := range s.ThinBases { // their links do not count as external
			ordinal, there, err := g.Lookup(ctx, id)
			if err == nil && there {
				err = v.eachLink(ctx, Location{layer: l, id: id, ordinal: ordinal}, visit)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for ordinal, err := range g.InPackOrder(ctx, 0, uint32(g.Count)) {
		if err == nil {
			err = v.eachLink(ctx, Location{layer: l, ordinal: ordinal}, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachLink calls visit with the links of the object at a location.
func (v *View) eachLink(ctx context.Context, at Location, visit func(id object.ID) error) error {
	info, err := at.layer.stat(ctx, at)
	if err != nil || info.Type == object.TypeBlob {
		return err
	}
	t, data, err := v.ReadAt(ctx, at)
	if err != nil {
		return err
	}
	return object.Links(t, data, func(id object.ID, _ object.Type) error { return visit(id) })
}
