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
	bitmaps := packgen.BuildBitmaps(ctx, s, pool, nil, pace)
	return errors.Join(bitmaps, besideRequests(ctx, s, pool, func(v *odb.View) error {
		return buildFilters(ctx, v, &odb.PathFilters{}, pace)
	}))
}

// attachMissing gives each segment that lacks an auxiliary file of a kind, by what, the one that
// build makes. It skips a segment that another call is at.
func attachMissing(
	ctx context.Context, v *odb.View, kind segment.LayerKind, what string,
	lacks func(ctx context.Context, v *odb.View, l *odb.SegmentLayer) (bool, error),
	build func(l *odb.SegmentLayer) (segment.Auxiliary, error),
) error {
	s := v.Store()
	attach := func(l *odb.SegmentLayer) error {
		if lacks, err := lacks(ctx, v, l); err != nil || !lacks {
			return err
		}
		release, ok := s.Claim(l.ID, kind)
		if !ok {
			return nil
		}
		defer release()
		built, err := build(l)
		if err != nil {
			return err
		}
		return s.AttachBeside(ctx, v.Pool(), l.ID, kind, built)
	}
	for _, l := range v.Segments() {
		if err := attach(l); err != nil {
			return fmt.Errorf("%s of segment %s: %w", what, l.ID, err)
		}
	}
	return nil
}

// besideRequests calls build with a view that takes nothing from the cache of requests.
func besideRequests(ctx context.Context, s *odb.Store, pool odb.PoolID, build func(v *odb.View) error) error {
	v, err := s.View(ctx, pool)
	if err != nil {
		return err
	}
	defer v.Close()
	return build(v.Aside())
}

// BuildFilters builds changed-path filters for the commits of every segment of a pool that lacks
// them. Walks that are limited to a path are faster with them, and correct without.
//
// It takes 16 MiB of memory for objects and about 60 bytes a commit of the current segment. It may
// run beside everything else; it skips a segment that leaves the pool meanwhile.
func BuildFilters(ctx context.Context, s *odb.Store, pool odb.PoolID) error {
	return besideRequests(ctx, s, pool, func(v *odb.View) error {
		return buildFilters(ctx, v, &odb.PathFilters{}, nil)
	})
}

// buildFilters is [BuildFilters] that copies the filters in known and rests when pace says so.
func buildFilters(ctx context.Context, v *odb.View, known *odb.PathFilters, pace *traffic.Pacer) error {
	for _, l := range v.Segments() {
		if l.Rows == nil || l.Filters != nil {
			continue
		}
		filters, err := writeFilterFile(ctx, v, l, known, pace)
		if err == nil {
			err = v.Store().AttachBeside(ctx, v.Pool(), l.ID, segment.KindFilter, filters)
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
	order, err := newestFirst(ctx, rows)
	if err != nil {
		return segment.Auxiliary{}, err
	}
	filters := make([]bloom.Filter, rows.Count)
	for _, index := range order {
		if err := pace.Rest(ctx); err != nil {
			return segment.Auxiliary{}, err
		}
		id, err := rows.ID(ctx, index)
		if err != nil {
			return segment.Auxiliary{}, err
		}
		if filters[index], err = known.Find(ctx, id); err == nil && filters[index] == nil {
			filters[index], err = filterOfRow(ctx, v, rows, index)
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

// newestFirst returns the ordinals of the commits of a graph file in the order of their
// generations, the highest first: the trees of one commit lie near those of the next.
func newestFirst(ctx context.Context, rows *segment.File) ([]uint32, error) {
	generations, order := make([]uint32, rows.Count), make([]uint32, rows.Count)
	for i := range order {
		row, err := rows.GraphRowAt(ctx, uint32(i))
		if err != nil {
			return nil, err
		}
		generations[i], order[i] = row.Generation, uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(generations[b], generations[a]) })
	return order, nil
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
