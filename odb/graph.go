package odb

import (
	"context"

	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// GraphRow holds the fields of a commit that a walk over history needs.
type GraphRow = segment.GraphRow

// Graph returns the row of a commit: from the graph, or, if that lacks it or is damaged, from the
// commit itself, with Generation 0.
//
// Errors: [ErrNotFound], also for an object that is no commit; [ErrCorrupt].
func (v *View) Graph(ctx context.Context, id object.ID) (GraphRow, error) {
	if v.borrows() {
		if _, err := v.Find(ctx, id); err != nil {
			next, err := v.renewed(ctx, err)
			if next == nil {
				return GraphRow{}, err
			}
			return next.Graph(ctx, id)
		}
	}
	row, ok, err := v.findRow(ctx, id)
	if ok || err != nil {
		return row, err
	}
	t, data, err := v.Read(ctx, id)
	if err != nil {
		return GraphRow{}, err
	}
	if t != object.TypeCommit {
		return GraphRow{}, &NotFoundError{Object: id}
	}
	return segment.ParseGraphRow(data)
}

// FindGraph is Graph for an ID that may be no commit: ok is false if no row is at hand, and where
// only a lookup of the object tells whether it is readable. Errors: [ErrCorrupt].
func (v *View) FindGraph(ctx context.Context, id object.ID) (row GraphRow, ok bool, err error) {
	if v.borrows() {
		return GraphRow{}, false, nil
	}
	row, ok, _, err = v.findRowSoFar(ctx, id)
	return row, ok, err
}

// findRow returns the row of a commit from the graph, false if no layer has it. As in searchIn, the
// store is asked last for what was added since a layer was copied.
func (v *View) findRow(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	row, ok, open, err := v.findRowSoFar(ctx, id)
	if ok || err != nil || open == nil {
		return row, ok, err
	}
	row, ok, err = open.storedGraph(ctx, id)
	if segment.Unreadable(err) {
		return GraphRow{}, false, nil
	}
	return row, ok, err
}

// findRowSoFar is findRow without what was added since layers were copied. open is the layer that
// may have more, nil for none.
func (v *View) findRowSoFar(ctx context.Context, id object.ID) (row GraphRow, ok bool, open *hotLayer, err error) {
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			var state hot.State
			if h, isHot := l.(*hotLayer); isHot {
				if row, state, err = h.graphSoFar(ctx, id); state == hot.AbsentSoFar {
					open = h
				}
			} else if row, ok, err = l.graph(ctx, id); ok {
				state = hot.Held
			}
			if segment.Unreadable(err) {
				continue
			}
			if err != nil || state == hot.Held {
				return row, err == nil, open, err
			}
		}
	}
	return GraphRow{}, false, open, nil
}
