package odb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// CompactOptions say how far [Store.Compact] goes. The zero value does what is due.
type CompactOptions struct {
	RepackOptions
	// All makes one segment of everything that the pool alone uses, if that is not one segment already whose deltas were found among all of it.
	All bool
	// Settle does so when more than a quarter of the objects are in segments whose deltas were found among few of them.
	Settle bool
}

// Compacted is what [Store.Compact] did.
type Compacted struct {
	// LayerCount layers with ObjectCount objects became one segment of PackedBytes; 0 when nothing was due.
	LayerCount, ObjectCount int
	PackedBytes             int64
}

// Compact ends the writing to the pool's hot layer, folds what was hot into a segment, and merges segments so that each has at least twice
// as many objects as all smaller ones, as git repack --geometric=2 does. Reads and writes go on meanwhile. Every object stays. Layers that
// other pools use too are rewritten by the pool that they were made for alone, and stay with the others as they are; what is borrowed stays.
//
// Segments that have no path filters get them. The former layers are removed by [Store.Sweep]. Errors: [ErrNoPool], [ErrCorrupt].
func (s *Store) Compact(ctx context.Context, pool PoolID, options CompactOptions) (Compacted, error) {
	var done Compacted
	defer s.rewriting.begin(pool)()
	if err := s.freeze(ctx, pool); err != nil {
		return done, err
	}
	v, err := s.View(ctx, pool)
	if err != nil {
		return done, err
	}
	v.aside()
	defer v.Close()
	s.claimLent(ctx, v)
	chosen, full, err := s.due(ctx, v, &options)
	if err == nil && len(chosen) > 0 {
		err = s.merge(ctx, v, chosen, full, options.RepackOptions, &done)
	}
	if errors.Is(err, errMoved) {
		return Compacted{}, nil // another server was here
	}
	if err != nil {
		return done, fmt.Errorf("compact pool %s: %w", pool, err)
	}
	if len(chosen) == 0 && !v.lacksFilters() {
		return done, nil
	}
	// The filters of what was merged have left the manifest with their layers, which v pins.
	if err := s.keepFilters(ctx, v, s.newPacer(options.Pause)); err != nil {
		if ctx.Err() != nil {
			return done, err
		}
		s.log.WarnContext(ctx, "make path filters", "pool", pool.String(), "error", err)
	}
	return done, nil
}

// lacksFilters reports whether a segment has commits and no path filters of them.
func (v *View) lacksFilters() bool {
	return slices.ContainsFunc(v.segments(), func(l *segmentLayer) bool { return l.rows != nil && l.filters == nil })
}

// keepFilters gives the segments of a pool the path filters that v has of their commits, and makes those that it lacks.
func (s *Store) keepFilters(ctx context.Context, v *View, pace *pacer) error {
	known, err := v.openFilters(ctx)
	if err != nil {
		return err
	}
	defer known.close()
	return s.buildFilters(ctx, v.pool, known, pace)
}

// merge makes one segment of layers, with a full search of deltas or not, and swaps.
func (s *Store) merge(ctx context.Context, v *View, chosen []manifestLayer, full bool, options RepackOptions, done *Compacted) (err error) {
	r, err := newRepack(ctx, v, chosen, options)
	if err != nil {
		return err
	}
	r.full = full
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.takeAll(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var q *Quarantine
	if r.plan.count > 0 { // else other segments hold all of it
		if q, err = r.write(ctx); err != nil {
			return err
		}
		defer q.Close()
	}
	drops := v.manifest.drops
	err = s.changeManifest(ctx, v.pool, func(m *manifest, b *kv.Batch) error {
		if m.drops != drops { // what was left out because another segment holds it may be gone
			return errMoved
		}
		return r.replace(m, b, q)
	})
	if err != nil {
		return err
	}
	done.LayerCount, done.ObjectCount = len(chosen), r.plan.count
	if q != nil {
		done.PackedBytes = q.PackedBytes()
		q.Settled(ctx)
	}
	return nil
}

// sizedLayer is a layer with the number of its objects.
type sizedLayer struct {
	manifestLayer
	count       int
	provisional bool // see sectionProvisional
	shared      bool // another pool uses it too
	refused     bool // it has a delta that git refuses
}

// settleShare is the part of a pool's objects that has to be provisional for [CompactOptions.Settle] to rewrite it: one in so many.
const settleShare = 4

// due returns the layers that are to become one, none if that would change nothing, and whether deltas are to be searched again that were
// found among few objects. That is so when everything becomes one, which geometry brings about when the pool has grown by half or more: so each
// object is searched once or twice while the pool doubles.
func (s *Store) due(ctx context.Context, v *View, options *CompactOptions) (chosen []manifestLayer, full bool, err error) {
	all := options.All
	own, err := s.ownLayers(ctx, v, true)
	if err != nil {
		return nil, false, err
	}
	var segments []sizedLayer
	folded, provisional, refused, total := 0, 0, 0, 0
	for _, l := range own {
		if l.shared && l.kind != segment.KindHot && (all || options.Settle) {
			continue // what is rewritten as a whole is not stored twice as a whole
		}
		total += l.count
		if l.kind == segment.KindHot {
			chosen = append(chosen, l.manifestLayer)
			folded += l.count
			continue
		}
		segments = append(segments, l)
		if l.provisional {
			provisional += l.count
		}
		if l.refused {
			refused++
		}
	}
	all = all || (options.Settle && settleShare*provisional > total)
	slices.SortStableFunc(segments, func(a, b sizedLayer) int { return cmp.Compare(a.count, b.count) })
	n := len(segments)
	if !all {
		n = geometricSplit(segments, folded)
	}
	if n < 2 && len(chosen) == 0 && refused == 0 && (!all || provisional == 0 && !options.Anew) {
		return nil, false, nil
	}
	for i, l := range segments {
		if i < n || l.refused {
			chosen = append(chosen, l.manifestLayer)
		}
	}
	if refused > 0 {
		s.log.WarnContext(ctx, "segments with deltas that git refuses are written anew", "pool", v.pool.String(), "segments", refused)
	}
	return chosen, n == len(segments), nil
}

// geometricSplit returns how many of the segments, which are sorted by size, are to be merged with folded hot objects so that each that is
// left has at least twice the objects of all before it.
func geometricSplit(segments []sizedLayer, folded int) int {
	const factor = 2
	n := len(segments)
	for n > 1 && segments[n-1].count >= factor*segments[n-2].count {
		n--
	}
	if n == 1 {
		n = 0 // in order already, down to the smallest
	}
	total := folded
	for _, l := range segments[:n] {
		total += l.count
	}
	for n < len(segments) && total > 0 && segments[n].count < factor*total {
		total += segments[n].count
		n++
	}
	return n
}

// ownLayers returns the layers that may be rewritten: those that do not take writes, that no other pool uses, and that are not borrowed. With
// shared they are also those that others use and that were made for this pool: IDs sort by creation, and what a fork takes is older than it.
func (s *Store) ownLayers(ctx context.Context, v *View, shared bool) ([]sizedLayer, error) {
	hot, _ := v.manifest.hot()
	var own []sizedLayer
	for _, l := range v.manifest.layers {
		if l.id == hot || slices.ContainsFunc(l.companions, func(c manifestLayer) bool { return c.kind == segment.KindBorrowed }) {
			continue
		}
		sized := sizedLayer{manifestLayer: l}
		var err error
		if sized.shared, err = s.isShared(ctx, v.pool, l.id); err != nil {
			return nil, err
		}
		if sized.shared && (!shared || bytes.Compare(l.id[:], v.pool[:]) < 0) {
			continue
		}
		if err = s.measure(ctx, v, &sized); err != nil {
			return nil, err
		}
		own = append(own, sized)
	}
	return own, nil
}

// measure finds out about a layer what [sizedLayer] says.
func (s *Store) measure(ctx context.Context, v *View, l *sizedLayer) error {
	if l.kind == segment.KindHot {
		prefix := hotPrefix(tableObject, l.id)
		for _, err := range s.keys.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
			if err != nil {
				return err
			}
			l.count++
		}
		return nil
	}
	for _, segment := range v.segments() {
		if segment.id != l.id {
			continue
		}
		g, err := segment.acquire(ctx)
		if err != nil {
			return err
		}
		defer segment.release(g)
		l.count, l.provisional = g.Count, g.IsProvisional()
		l.refused, err = g.HasRefusedDelta(ctx)
		return err
	}
	return fmt.Errorf("odb: layer %s is not in its view", l.id)
}
