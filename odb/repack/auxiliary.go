package repack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/bloom"
	"packhorse/odb/packgen"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
)

// BuildAuxiliary builds the bitmaps and path filters of a pool, and rests while requests are
// served: pause is the rest as a share of the work. It may run beside everything else. Errors:
// [odb.ErrNoPool] and those of reading. After an error the files that were built are kept.
func BuildAuxiliary(ctx context.Context, s *odb.Store, pool odb.PoolID, pause float64) error {
	pace := s.NewPacer(pause)
	return errors.Join(packgen.BuildBitmaps(ctx, s, pool, nil, pace), buildFilters(ctx, s, pool, &odb.PathFilters{}, pace))
}

// BuildFilters builds changed-path filters for the commits of every segment of a pool that lacks
// them. Walks that are limited to a path are faster with them, and correct without.
//
// It takes 16 MiB of memory for objects and about 60 bytes a commit of the current segment. It may
// run beside everything else; it skips a segment that leaves the pool meanwhile.
func BuildFilters(ctx context.Context, s *odb.Store, pool odb.PoolID) error {
	return buildFilters(ctx, s, pool, &odb.PathFilters{}, nil)
}

// buildFilters is [BuildFilters] that copies the filters in known and rests when pace says so.
func buildFilters(
	ctx context.Context, s *odb.Store, pool odb.PoolID, known *odb.PathFilters, pace *traffic.Pacer,
) error {
	v, err := s.View(ctx, pool)
	if err != nil {
		return err
	}
	defer v.Close()
	v.Aside()
	for _, l := range v.Segments() {
		if l.Rows == nil || l.Filters != nil {
			continue
		}
		filters, err := writeFilterFile(ctx, v, l, known, pace)
		if err == nil {
			err = s.AttachFilters(ctx, pool, l.ID, filters)
		}
		if err != nil {
			return fmt.Errorf("path filters of segment %s: %w", l.ID, err)
		}
	}
	return nil
}

// writeFilterFile writes the filter file of a segment.
func writeFilterFile(
	ctx context.Context, v *odb.View, l *odb.SegmentLayer, known *odb.PathFilters, pace *traffic.Pacer,
) (segment.Auxiliary, error) {
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		return segment.Auxiliary{}, err
	}
	defer l.Rows.Release()
	// In the order of generations, the trees of one commit lie near those of the next.
	type place struct{ index, generation uint32 }
	order := make([]place, rows.Count)
	for i := range order {
		row, err := rows.GraphRowAt(ctx, uint32(i))
		if err != nil {
			return segment.Auxiliary{}, err
		}
		order[i] = place{uint32(i), row.Generation}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(b.generation, a.generation) })
	filters := make([]bloom.Filter, rows.Count)
	for _, p := range order {
		if err := pace.Rest(ctx); err != nil {
			return segment.Auxiliary{}, err
		}
		id, err := rows.ID(ctx, p.index)
		if err != nil {
			return segment.Auxiliary{}, err
		}
		if filters[p.index], err = known.Find(ctx, id); err == nil && filters[p.index] == nil {
			filters[p.index], err = filterOfRow(ctx, v, rows, p.index)
		}
		if err != nil {
			return segment.Auxiliary{}, err
		}
	}
	return segment.WriteAuxiliary(ctx, v.Store().Env().Files, segment.KindFilter,
		func(sections *segment.SectionWriter) (int, error) {
			return segment.WriteFilters(ctx, sections, rows, filters)
		})
}

// filterOfRow returns the path filter of a commit of a graph file.
func filterOfRow(ctx context.Context, v *odb.View, rows *segment.File, index uint32) (bloom.Filter, error) {
	row, err := rows.GraphRowAt(ctx, index)
	if err != nil {
		return nil, err
	}
	old, err := v.FirstParentTree(ctx, &row)
	if err != nil {
		return nil, err
	}
	return v.FilterOf(ctx, old, row.Tree)
}
