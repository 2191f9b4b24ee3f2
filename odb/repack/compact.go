// Package repack is the maintenance of one pool: it merges layers into one segment, removes
// unreachable objects, and builds auxiliary files. Everything here may run beside reads and writes.
//
// Start at [Compact], [PlanPrune] and [BuildAuxiliary]. The map, by file:
//
//	compact              layers become one segment, with the auxiliary files of the former ones
//	prune                unreachable objects
//	auxiliary            bitmaps and path filters
//	trigrams             trigrams of the newest files
//	histories, former    path histories; the rows of a former segment
//	pathchanges          what commits changed, sorted by path
package repack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/odb/traffic"
)

// CompactOptions say how far [Compact] goes. The zero value does the work that is due.
type CompactOptions struct {
	packgen.RepackOptions
	// All makes one segment of all layers that no other pool uses, unless they are one segment
	// already that is not delta-incomplete.
	All bool
	// Settle does the same when more than a quarter of the objects are in delta-incomplete segments.
	Settle bool
}

// Compacted is the result of [Compact].
type Compacted struct {
	// LayerCount layers with ObjectCount objects became one segment whose data region has PackedBytes;
	// 0 when nothing was due.
	LayerCount, ObjectCount int
	PackedBytes             int64
}

// Compact freezes the pool's hot layer, flushes hot objects to a segment, and merges segments so
// that each has at least twice as many objects as all smaller ones, as git repack --geometric=2
// does. Reads and writes go on meanwhile. Compact removes no object. Only the pool that a layer was
// made for rewrites a layer that other pools use, too; the others keep the old one. Borrowed layers
// stay.
//
// Segments without path filters, path histories or trigrams get them. [odb.Store.Sweep] removes the
// former layers. Errors: [odb.ErrNoPool], [odb.ErrCorrupt].
func Compact(ctx context.Context, s *odb.Store, pool odb.PoolID, options CompactOptions) (done Compacted, err error) {
	rewrite, err := s.BeginRewrite(ctx, pool, nil)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, rewrite.Close()) }()
	rewrite.ClaimBorrowed(ctx)
	v := rewrite.View()
	full, err := due(ctx, s, rewrite, &options)
	chosen := len(rewrite.Chosen()) > 0
	if err == nil && chosen {
		done, err = merge(ctx, rewrite, full, options.RepackOptions)
	}
	if errors.Is(err, odb.ErrMoved) {
		return Compacted{}, nil // another server was here
	}
	if err != nil {
		return done, fmt.Errorf("compact pool %s: %w", pool, err)
	}
	if !chosen && !lacksAuxiliary(ctx, v) {
		return done, nil
	}
	if err := keepAuxiliary(ctx, s, v, options.Anew, s.NewPacer(options.Pause)); err != nil {
		if ctx.Err() != nil {
			return done, err
		}
		s.Env().Log.WarnContext(ctx, "failed to build auxiliary files", "pool", pool.String(), "error", err)
	}
	return done, nil
}

// lacksAuxiliary reports whether a segment has commits but no path filters, or so much that it may
// have path histories or trigrams and has none.
func lacksAuxiliary(ctx context.Context, v *odb.View) bool {
	return slices.ContainsFunc(v.Segments(), func(l *odb.SegmentLayer) bool {
		histories, errHistories := lacksHistories(ctx, v, l)
		trigrams, errTrigrams := lacksTrigrams(ctx, v, l)
		return errHistories == nil && histories || errTrigrams == nil && trigrams || l.Rows != nil && l.Filters == nil
	})
}

// keepAuxiliary gives the segments of a pool the path filters of their commits, the path histories
// and the trigrams that v holds, and builds the missing ones. v pins those of the merged segments,
// which have left the manifest with their layers. anew builds trigrams and histories from the
// objects alone.
func keepAuxiliary(ctx context.Context, s *odb.Store, v *odb.View, anew bool, pace *traffic.Pacer) error {
	known, err := v.OpenFilters(ctx)
	if err != nil {
		return err
	}
	defer known.Close()
	return besideRequests(ctx, s, v.Pool(), func(now *odb.View) error {
		former := v
		if anew {
			former = now
		}
		return errors.Join(buildFilters(ctx, now, known, pace),
			buildTrigrams(ctx, now, former, pace), buildHistories(ctx, now, former, pace))
	})
}

// merge makes one segment of the chosen layers and commits it; full asks for a full delta search.
func merge(
	ctx context.Context, rewrite *odb.Rewrite, full bool, options packgen.RepackOptions,
) (done Compacted, err error) {
	r, err := packgen.NewRepack(ctx, rewrite, options)
	if err != nil {
		return done, err
	}
	r.Full = full
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.TakeAll(ctx); err != nil {
		return done, err
	}
	if err := r.Prepare(ctx); err != nil {
		return done, err
	}
	if r.Count() > 0 { // else other segments hold all of it
		if err := r.Write(ctx); err != nil {
			return done, err
		}
	}
	if err := rewrite.Commit(ctx); err != nil {
		return done, err
	}
	return Compacted{LayerCount: len(rewrite.Chosen()), ObjectCount: r.Count(), PackedBytes: rewrite.PackedBytes()}, nil
}

// settleShare is the reciprocal of the share of a pool's objects in delta-incomplete segments above
// which [CompactOptions.Settle] rewrites the pool.
const settleShare = 4

// due chooses the layers that are to become one, none if that would change nothing. full asks for a
// new delta search of delta-incomplete segments. That is so when everything becomes one segment,
// which geometry causes when the pool has grown by half or more: so each object is searched once or
// twice while the pool doubles.
func due(ctx context.Context, s *odb.Store, rewrite *odb.Rewrite, options *CompactOptions) (full bool, err error) {
	all := options.All
	own, err := rewrite.OwnLayers(ctx, true)
	if err != nil {
		return false, err
	}
	var hot, segments []odb.OwnLayer
	flushed, provisional, refused, total := 0, 0, 0, 0
	for _, l := range own {
		if l.Shared && !l.Hot && (all || options.Settle) {
			continue // a full rewrite would store a shared layer twice
		}
		total += l.Count
		if l.Hot {
			hot = append(hot, l)
			flushed += l.Count
			continue
		}
		segments = append(segments, l)
		if l.Provisional {
			provisional += l.Count
		}
		if l.Refused {
			refused++
		}
	}
	all = all || (options.Settle && settleShare*provisional > total)
	slices.SortStableFunc(segments, func(a, b odb.OwnLayer) int { return cmp.Compare(a.Count, b.Count) })
	n := len(segments)
	if !all {
		n = geometricSplit(segments, flushed)
	}
	if n < 2 && len(hot) == 0 && refused == 0 && (!all || provisional == 0 && !options.Anew) {
		return false, nil
	}
	for _, l := range hot {
		rewrite.Choose(l.ID)
	}
	for i, l := range segments {
		if i < n || l.Refused {
			rewrite.Choose(l.ID)
		}
	}
	if refused > 0 {
		s.Env().Log.WarnContext(ctx, "segments with deltas that git refuses are rewritten",
			"pool", rewrite.View().Pool().String(), "segments", refused)
	}
	return n == len(segments), nil
}

// geometricSplit returns how many of the segments, sorted by size, to merge with the flushed hot
// objects, so that each remaining one has at least twice the objects of all before it.
func geometricSplit(segments []odb.OwnLayer, flushed int) int {
	const factor = 2
	n := len(segments)
	for n > 1 && segments[n-1].Count >= factor*segments[n-2].Count {
		n--
	}
	if n == 1 {
		n = 0 // in order already, down to the smallest
	}
	total := flushed
	for _, l := range segments[:n] {
		total += l.Count
	}
	for n < len(segments) && total > 0 && segments[n].Count < factor*total {
		total += segments[n].Count
		n++
	}
	return n
}
