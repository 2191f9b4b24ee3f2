package odb

import (
	"context"

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
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			row, ok, err := l.graph(ctx, id)
			if segment.Unreadable(err) {
				continue
			}
			if ok || err != nil {
				return row, err
			}
		}
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
