package odb

import (
	"context"
	"slices"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/invariants"
)

// mergeFrozen replaces small frozen hot layers of a manifest by one layer, into which b copies
// their rows. It works as a binary counter does: from the newest layer on it takes each that has no
// more objects than those after it together. Each remaining layer has more objects than all newer
// ones. So the number of layers, and of copies of an object, is the logarithm of the number of
// objects. It takes no more bytes than a write may add to the hot tier, and mergedCountMax times
// the objects; maintenance flushes larger layers. The newest layers that have together no more than
// small objects become one in any case: maintenance keeps the layers of a pool from being merged
// for as long as it may replace them, so it wants few of them when it begins.
//
// The last hot layer takes writes and stays. Forks keep the former layers for as long as they live.
func (s *Store) mergeFrozen(ctx context.Context, b *kv.Batch, pool PoolID, m *manifest, small int) error {
	frozen := m.hotLayers()
	if len(frozen) > 0 {
		frozen = frozen[:len(frozen)-1]
	}
	frozen = s.rewriting.newer(pool, m, frozen)
	for len(frozen) > 1 {
		first := len(frozen) - 1
		for first > 0 && m.layers[frozen[first-1]].sharesAuxiliaries(&m.layers[frozen[first]]) {
			first--
		}
		run, err := s.frozenRun(ctx, m, frozen[first:], small)
		if err != nil {
			return err
		}
		if len(run) > 1 {
			s.mergeRun(b, m, run)
		}
		frozen = frozen[:first]
	}
	return nil
}

// mergedCountMax bounds a merged layer, in the objects that a write may add to the hot tier: it is
// about what makes a flush due, so that few layers wait for that.
const mergedCountMax = 4

// hotLayers returns the places of the hot layers, the oldest first.
func (m *manifest) hotLayers() []int {
	var hot []int
	for i := range m.layers {
		if m.layers[i].kind == segment.KindHot {
			hot = append(hot, i)
		}
	}
	return hot
}

// sharesAuxiliaries reports whether two layers have the same auxiliary files: both are the pool's
// own, or borrowed alike.
func (l *manifestLayer) sharesAuxiliaries(other *manifestLayer) bool {
	if len(l.auxiliaries) != len(other.auxiliaries) {
		return false
	}
	for i := range l.auxiliaries {
		if !sameAuxiliary(l.auxiliaries[i], other.auxiliaries[i]) {
			return false
		}
	}
	return true
}

// frozenLayer is a hot layer that takes no more writes, with its rows.
type frozenLayer struct {
	place int // in the manifest
	hot.Content
}

// frozenRun reads the newest layers that are to become one, the newest first.
func (s *Store) frozenRun(ctx context.Context, m *manifest, places []int, small int) ([]frozenLayer, error) {
	var run []frozenLayer
	count, size := 0, 0
	for len(places) > 0 {
		place := places[len(places)-1]
		places = places[:len(places)-1]
		countMax := mergedCountMax*s.limits.HotCount - count
		if len(run) > 0 {
			countMax = min(countMax, max(count, small-count))
		}
		layer := hot.Reader{ID: m.layers[place].id, Keys: s.keys, Copies: s.copies, Frozen: true, Aside: true}
		content, ok, err := layer.ReadAll(ctx, countMax, s.limits.HotBytes-size)
		if err != nil || !ok {
			return run, err
		}
		run = append(run, frozenLayer{place, content})
		count, size = count+content.Count, size+content.Size
	}
	return run, nil
}

// mergeRun replaces several adjacent layers by one. Of a duplicate it takes the oldest copy, which
// deltas build on; see [View.baseOf].
func (s *Store) mergeRun(b *kv.Batch, m *manifest, run []frozenLayer) {
	merged := segment.NewLayerID()
	former := make(map[segment.LayerID]struct{}, len(run))
	oldest := run[len(run)-1].place
	contents := make([]hot.Content, 0, len(run))
	for _, l := range slices.Backward(run) {
		former[m.layers[l.place].id] = struct{}{}
		contents = append(contents, l.Content)
	}
	rows := hot.Merge(b, merged, contents)
	for _, l := range run {
		for id := range l.IDs() {
			s.recache(hotCacheKey(m.layers[l.place].id, id), hotCacheKey(merged, id))
		}
	}
	if s.copies != nil {
		s.copies.Put(merged, rows) // nobody asks for it unless b is applied
	}
	layers := make([]manifestLayer, 0, len(m.layers))
	for i, l := range m.layers {
		if i == oldest {
			layers = append(layers, manifestLayer{kind: segment.KindHot, id: merged, auxiliaries: l.auxiliaries})
		} else if _, gone := former[l.id]; !gone {
			layers = append(layers, l)
		}
	}
	if invariants.Enabled {
		invariants.Check(len(layers) == len(m.layers)-len(run)+1, "odb: %d of %d layers became %d", len(run), len(m.layers), len(layers))
	}
	m.layers = layers
	s.visibility.merged(merged, former)
}
