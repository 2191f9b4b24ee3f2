package odb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/bloom"
	"packhorse/odb/segment"
)

// BuildAuxiliary makes the bitmaps and path filters of a pool, and rests while requests are served: pause is the rest as a share of the work.
// It may run beside everything else. Errors: [ErrNoPool] and those of reading; what could be made is there.
func (s *Store) BuildAuxiliary(ctx context.Context, pool PoolID, pause float64) error {
	pace := s.newPacer(pause)
	return errors.Join(s.buildBitmaps(ctx, pool, nil, pace), s.buildFilters(ctx, pool, &pathFilters{}, pace))
}

// BuildFilters makes changed-path filters of the commits of every segment of a pool that has none yet. Walks that are limited to a path are
// quicker with them, and right without.
//
// Memory is 16 MiB for objects and about 60 bytes a commit of the segment that is worked on. It may run beside everything else; a segment that leaves the pool
// meanwhile is passed over.
func (s *Store) BuildFilters(ctx context.Context, pool PoolID) error {
	return s.buildFilters(ctx, pool, &pathFilters{}, nil)
}

// buildFilters is [Store.BuildFilters], which takes what is known already as it is, and rests when pace says so.
func (s *Store) buildFilters(ctx context.Context, pool PoolID, known *pathFilters, pace *pacer) error {
	v, err := s.View(ctx, pool)
	if err != nil {
		return err
	}
	defer v.Close()
	v.aside()
	for _, l := range v.segments() {
		if l.rows == nil || l.filters != nil {
			continue
		}
		id, err := v.writeFilters(ctx, l, known, pace)
		if err == nil {
			err = s.AttachFilters(ctx, pool, l.id, id)
		}
		if err != nil {
			return fmt.Errorf("path filters of segment %s: %w", l.id, err)
		}
	}
	return nil
}

// segment.WriteFilters writes the filter companion of a segment.
func (v *View) writeFilters(ctx context.Context, l *segmentLayer, known *pathFilters, pace *pacer) (segment.LayerID, error) {
	rows, err := l.rows.Acquire(ctx)
	if err != nil {
		return segment.LayerID{}, err
	}
	defer l.rows.Release()
	// By generation the trees of one commit are near those of the next; by ID they lie anywhere.
	type place struct{ index, generation uint32 }
	order := make([]place, rows.Count)
	for i := range order {
		row, err := rows.GraphRowAt(ctx, uint32(i))
		if err != nil {
			return segment.LayerID{}, err
		}
		order[i] = place{uint32(i), row.Generation}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(b.generation, a.generation) })
	filters := make([]bloom.Filter, rows.Count)
	for _, p := range order {
		if err := pace.rest(ctx); err != nil {
			return segment.LayerID{}, err
		}
		id, err := rows.ID(ctx, p.index)
		if err != nil {
			return segment.LayerID{}, err
		}
		if filters[p.index], err = known.find(ctx, id); err == nil && filters[p.index] == nil {
			filters[p.index], err = v.filterOfRow(ctx, rows, p.index)
		}
		if err != nil {
			return segment.LayerID{}, err
		}
	}
	return segment.WriteAuxiliary(ctx, v.Store().Env().Files, segment.KindFilter, func(sections *segment.SectionWriter) (int, error) {
		return segment.WriteFilters(ctx, sections, rows, filters)
	})
}

// filterOfRow returns the path filter of a commit of a graph companion.
func (v *View) filterOfRow(ctx context.Context, rows *segment.File, index uint32) (bloom.Filter, error) {
	row, err := rows.GraphRowAt(ctx, index)
	if err != nil {
		return nil, err
	}
	old, err := v.firstParentTree(ctx, &row)
	if err != nil {
		return nil, err
	}
	return v.filterOf(ctx, old, row.Tree)
}
