package odb

import (
	"context"
	"fmt"

	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// hotFilterBytes bounds the trees that one quarantine reads for the path filters of its hot
// commits; those beyond get none.
const hotFilterBytes = 32 * mebibyte

// filterHot builds the path filters of new hot commits. If one cannot be built, the commit has
// none: readers of the trees report their damage.
func (q *Quarantine) filterHot(ctx context.Context) error {
	v := q.view.Linked() // objects named by a commit are readable
	for _, id := range q.hot.order {
		row, ok := q.hot.rows[id]
		if _, looked := q.filters[id]; !ok || looked {
			continue
		}
		f, err := q.hotFilter(ctx, v, &row)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("path filter of commit %s: %w", id, err)
		}
		if q.filters == nil {
			q.filters = make(map[object.ID]bloom.Filter)
		}
		q.filters[id] = f
	}
	return nil
}

// hotFilter returns the path filter of a commit, or nil when the bytes of trees exceed the bound.
func (q *Quarantine) hotFilter(ctx context.Context, v *View, row *GraphRow) (bloom.Filter, error) {
	if q.filterBytes > hotFilterBytes {
		return nil, nil
	}
	old, err := v.FirstParentTree(ctx, row)
	if err != nil {
		return nil, err
	}
	return v.filterWithin(ctx, old, row.Tree, hotFilterBytes, &q.filterBytes)
}

// pathFilter returns the path filter of a commit, or false if the layer holds none. It may not know
// that of a commit which was added since the layer was copied.
func (l *hotLayer) pathFilter(ctx context.Context, id object.ID) (bloom.Filter, bool, error) {
	f, err := l.rows.Filter(ctx, id)
	if err != nil {
		return nil, false, l.store.damaged(l.id, id, err)
	}
	return f, f != nil, nil
}
