package odb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/kv"
)

// CompactOptions say how far [Store.Compact] goes. The zero value does what is due.
type CompactOptions struct {
	RepackOptions
	// All makes one segment of everything that the pool alone uses, if that is not one segment already.
	All bool
}

// Compacted is what [Store.Compact] did.
type Compacted struct {
	// LayerCount layers with ObjectCount objects became one segment of PackedBytes; 0 when nothing was due.
	LayerCount, ObjectCount int
	PackedBytes             int64
}

// Compact ends the writing to the pool's hot layer, folds what was hot into a segment, and merges segments so that each has at least twice
// as many objects as all smaller ones, as git repack --geometric=2 does. Reads and writes go on meanwhile. Every object stays; layers that
// other pools use too, or that are borrowed, stay as they are.
//
// The former layers are removed by [Store.Sweep]. Errors: [ErrNoPool], [ErrCorrupt].
func (s *Store) Compact(ctx context.Context, pool PoolID, options CompactOptions) (Compacted, error) {
	var done Compacted
	if err := s.freeze(ctx, pool); err != nil {
		return done, err
	}
	v, err := s.View(ctx, pool)
	if err != nil {
		return done, err
	}
	v.aside()
	defer v.Close()
	chosen, err := s.due(ctx, v, options.All)
	if err != nil || len(chosen) == 0 {
		return done, err
	}
	err = s.merge(ctx, v, chosen, options.RepackOptions, &done)
	if errors.Is(err, errMoved) {
		return Compacted{}, nil // another server was here
	}
	if err != nil {
		return done, fmt.Errorf("compact pool %s: %w", pool, err)
	}
	return done, nil
}

// merge makes one segment of layers, and swaps.
func (s *Store) merge(ctx context.Context, v *View, chosen []manifestLayer, options RepackOptions, done *Compacted) error {
	r, err := newRepack(ctx, v, chosen, options)
	if err != nil {
		return err
	}
	defer r.close()
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
	count int
}

// due returns the layers that are to become one, none if that would change nothing.
func (s *Store) due(ctx context.Context, v *View, all bool) ([]manifestLayer, error) {
	own, err := s.ownLayers(ctx, v)
	if err != nil {
		return nil, err
	}
	var chosen []manifestLayer
	var segments []sizedLayer
	folded := 0
	for _, l := range own {
		if l.kind == layerHot {
			chosen = append(chosen, l.manifestLayer)
			folded += l.count
		} else {
			segments = append(segments, l)
		}
	}
	slices.SortStableFunc(segments, func(a, b sizedLayer) int { return cmp.Compare(a.count, b.count) })
	n := len(segments)
	if !all {
		n = geometricSplit(segments, folded)
	}
	if n+len(chosen) < 2 && len(chosen) == 0 {
		return nil, nil
	}
	for _, l := range segments[:n] {
		chosen = append(chosen, l.manifestLayer)
	}
	return chosen, nil
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

// ownLayers returns the layers that may be rewritten: those that do not take writes, that no other pool uses, and that are not borrowed.
func (s *Store) ownLayers(ctx context.Context, v *View) ([]sizedLayer, error) {
	hot, _ := v.manifest.hot()
	var own []sizedLayer
	for _, l := range v.manifest.layers {
		if l.id == hot || slices.ContainsFunc(l.companions, func(c manifestLayer) bool { return c.kind == layerBorrowed }) {
			continue
		}
		shared, err := s.isShared(ctx, v.pool, l.id)
		if err != nil {
			return nil, err
		}
		if shared {
			continue
		}
		count, err := s.layerCount(ctx, v, l)
		if err != nil {
			return nil, err
		}
		own = append(own, sizedLayer{l, count})
	}
	return own, nil
}

// isShared reports whether another pool uses a layer.
func (s *Store) isShared(ctx context.Context, pool PoolID, id LayerID) (bool, error) {
	prefix := hotPrefix(tableUser, id)
	for pair, err := range s.keys.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
		if err != nil {
			return false, err
		}
		if PoolID(pair.Key[len(prefix):]) != pool {
			return true, nil
		}
	}
	return false, nil
}

// layerCount returns the number of objects in a layer.
func (s *Store) layerCount(ctx context.Context, v *View, l manifestLayer) (int, error) {
	if l.kind == layerHot {
		count := 0
		prefix := hotPrefix(tableObject, l.id)
		for _, err := range s.keys.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
			if err != nil {
				return 0, err
			}
			count++
		}
		return count, nil
	}
	for _, segment := range v.segments() {
		if segment.id != l.id {
			continue
		}
		g, err := segment.acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer segment.release(g)
		return g.count, nil
	}
	return 0, fmt.Errorf("odb: layer %s is not in its view", l.id)
}
