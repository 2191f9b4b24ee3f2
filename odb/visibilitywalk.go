package odb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// computeVisibility computes the objects that the tips of a fork reach when it is its owner's turn,
// publishes them, and then writes them in place of the tips.
func (s *Store) computeVisibility(
	ctx context.Context, pool PoolID, owner string, of *visibilityEntry, auxiliary manifestLayer,
	tell func(*visibilitySet, error),
) {
	told := false
	tellOnce := func(set *visibilitySet, err error) {
		if !told {
			told = true
			tell(set, err)
		}
	}
	whole, err := s.walkVisibility(ctx, pool, owner, of, auxiliary, tellOnce)
	tellOnce(nil, err)
	if whole != nil {
		err = s.replaceTips(s.closing, pool, of, auxiliary, whole)
	}
	s.warnOfVisibility(s.closing, pool, err)
}

// walkVisibility publishes the objects that the tips of a fork reach, and returns the layers that
// they cover. Without layers there is nothing to write.
func (s *Store) walkVisibility(
	ctx context.Context, pool PoolID, owner string, of *visibilityEntry, auxiliary manifestLayer,
	tell func(*visibilitySet, error),
) (map[segment.LayerID]bool, error) {
	release, err := s.visibility.turns.Acquire(ctx, fair.Tenant{Org: owner}, 0, 1)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := s.View(ctx, pool) // pins the borrowed layers
	if err != nil {
		return nil, err
	}
	defer all.Close()
	all.Aside()
	part := all.manifest.layersWith(auxiliary)
	if len(part.layers) == 0 { // another server has computed it
		set, err := s.replacedVisibility(ctx, &all.manifest)
		tell(set, err)
		return nil, err
	}
	v := all.over(part).Aside()
	defer v.Close()
	s.visibility.walks.Add(1)
	set, err := v.Linked().visible(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("compute visibility set: %w", err)
	}
	tell(set, nil)
	return v.wholeLayers(s.closing, set)
}

// visible returns the objects that the tips of an entry reach: from the set of another entry and
// the newer objects, if there is such an entry, or by a full walk.
func (v *View) visible(ctx context.Context, of *visibilityEntry) (*visibilitySet, error) {
	for _, other := range v.store.visibility.relatives(slices.Values(of.layers)) {
		set, err := v.grow(ctx, other, of.tips)
		if set != nil {
			v.store.visibility.grown.Add(1)
		}
		if set != nil || err != nil {
			return set, err
		}
	}
	return v.reached(ctx, of.tips.ids(), nil, Reached{})
}

// warnOfVisibility logs why a visibility set was not written. It will be computed again.
func (s *Store) warnOfVisibility(ctx context.Context, pool PoolID, err error) {
	if err != nil && !errors.Is(err, ErrNoPool) && ctx.Err() == nil {
		s.log.WarnContext(ctx, "failed to write the visibility set of a fork", "pool", pool, "error", err)
	}
}

// layersWith returns the layers of a manifest that have the visibility set.
func (m *manifest) layersWith(auxiliary manifestLayer) manifest {
	part := manifest{version: m.version, prunes: m.prunes}
	for _, l := range m.layers {
		if found, ok := l.borrowed(); ok && found.id == auxiliary.id {
			part.layers = append(part.layers, l)
		}
	}
	return part
}

// reached returns what [Reach] does.
func (v *View) reached(ctx context.Context, wants, haves []object.ID, known Reached) (*visibilitySet, error) {
	if v.store.options.Reach == nil {
		return nil, errNoReach
	}
	found, err := v.store.options.Reach.Reach(ctx, v, wants, haves, known)
	if err != nil {
		return nil, err
	}
	set := &visibilitySet{known: true, segments: map[segment.LayerID]visibleSegment{}, unpacked: newIDList(found.Unpacked)}
	for i, l := range v.Segments() {
		set.segments[l.ID] = newVisibleSegment(found.Counts[i], found.Words[i])
	}
	return set, nil
}

// grow returns the objects that tips reach, from the set of another entry and the newer objects. It
// is nil if tips do not reach all of that set, as after a branch was deleted or reset, or if the
// other entry covers segments that are not here.
func (v *View) grow(ctx context.Context, other *visibilityEntry, tips idList) (*visibilitySet, error) {
	before := other.ready()
	if ok, err := v.covers(ctx, before, tips, other.tips); !ok || err != nil {
		return nil, err
	}
	set := &visibilitySet{known: true, segments: make(map[segment.LayerID]visibleSegment)}
	wants := slices.DeleteFunc(tips.ids(), other.tips.has)
	if len(wants) > 0 {
		var err error
		if set, err = v.reached(ctx, wants, other.tips.ids(), v.knownOf(before)); err != nil {
			return nil, err
		}
	}
	unpacked := before.unpacked.ids()
	for _, l := range v.Segments() {
		if known, ok := before.segments[l.ID]; ok {
			set.segments[l.ID] = set.segments[l.ID].with(known)
			continue
		}
		grown, rest, err := l.addVisible(ctx, set.segments[l.ID], unpacked) // formerly hot objects may lie here now
		if err != nil {
			return nil, err
		}
		set.segments[l.ID], unpacked = grown, rest
	}
	set.unpacked = newIDList(unpacked).with(set.unpacked)
	return set, nil
}

// knownOf returns a set as objects of v.
func (v *View) knownOf(set *visibilitySet) Reached {
	known := Reached{Unpacked: set.unpacked.ids()}
	for _, l := range v.Segments() {
		visible := set.segments[l.ID]
		known.Words = append(known.Words, visible.words64())
		known.Counts = append(known.Counts, visible.count)
	}
	return known
}

// addVisible adds those of the sorted ids to visible that the segment holds, and returns the
// others. It changes both in place.
func (l *SegmentLayer) addVisible(
	ctx context.Context, visible visibleSegment, ids []object.ID,
) (grown visibleSegment, others []object.ID, err error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return visible, nil, err
	}
	defer l.Release(g)
	if visible.words == nil {
		visible = newVisibleSegment(g.Count, nil)
	}
	others, next := ids[:0], 0
	err = g.LookupMany(ctx, ids, func(i int, ordinal uint32) error {
		visible.words[ordinal/8] |= 1 << (ordinal % 8)
		others = append(others, ids[next:i]...)
		next = i + 1
		return nil
	})
	return visible, append(others, ids[next:]...), err
}

// hasSegmentsOf reports whether all segments are here that objects of a set lie in.
func (v *View) hasSegmentsOf(set *visibilitySet) bool {
	for id, known := range set.segments {
		if known.size() > 0 && !slices.ContainsFunc(v.Segments(), func(l *SegmentLayer) bool { return l.ID == id }) {
			return false
		}
	}
	return !set.all
}

// covers reports whether all objects of an earlier set are stored here and later tips reach them.
func (v *View) covers(ctx context.Context, before *visibilitySet, later, earlier idList) (bool, error) {
	if !v.hasSegmentsOf(before) {
		return false, nil
	}
	gone := slices.DeleteFunc(earlier.ids(), later.has)
	for _, id := range gone { // only commits can be reached by later ones
		info, err := v.Stat(ctx, id)
		if errors.Is(err, ErrNotFound) || err == nil && info.Type != object.TypeCommit {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if len(gone) == 0 {
		return true, nil
	}
	if v.store.options.Reach == nil {
		return false, errNoReach
	}
	return v.store.options.Reach.Leads(ctx, v, later.ids(), gone)
}

// wholeLayers returns the borrowed layers of v all of whose objects are in set, or have a duplicate
// there.
func (v *View) wholeLayers(ctx context.Context, set *visibilitySet) (map[segment.LayerID]bool, error) {
	whole := make(map[segment.LayerID]bool)
	lowest, highest := object.ZeroID, object.ID{}
	for i := range highest {
		highest[i] = 0xff
	}
	for _, l := range v.layers {
		if segment, ok := l.(*SegmentLayer); ok && set.segments[segment.ID].size() == set.segments[segment.ID].count {
			whole[segment.ID] = true
			continue
		}
		ok := true
		var lookupErr error
		err := l.scan(ctx, lowest, highest, func(id object.ID) bool {
			ok, lookupErr = v.isIn(ctx, set, id)
			return ok
		})
		if err := errors.Join(err, lookupErr); err != nil {
			return nil, err
		}
		whole[l.layerID()] = ok
	}
	return whole, nil
}

// isIn reports whether an object of v is in set, in whichever layer.
func (v *View) isIn(ctx context.Context, set *visibilitySet, id object.ID) (bool, error) {
	if set.unpacked.has(id) {
		return true, nil
	}
	for _, l := range v.layers {
		at, ok, err := findIn(ctx, l, id)
		if err != nil || ok && set.has(&at) {
			return ok, err
		}
	}
	return false, nil
}

// replaceTips replaces the tips by the computed set, and makes the covered layers own layers.
func (s *Store) replaceTips(
	ctx context.Context, pool PoolID, of *visibilityEntry, auxiliary manifestLayer, whole map[segment.LayerID]bool,
) error {
	next := manifestLayer{kind: segment.KindVisibility, id: segment.NewLayerID()}
	used := false
	err := s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		changed := false
		used = false
		for i := range m.layers {
			l := &m.layers[i]
			at := slices.IndexFunc(l.auxiliaries, func(c manifestLayer) bool { return c.id == auxiliary.id })
			switch {
			case at < 0:
				continue
			case whole[l.id]:
				l.auxiliaries = slices.Delete(l.auxiliaries, at, at+1)
			default:
				l.auxiliaries[at] = next
				used = true
			}
			changed = true
		}
		if !changed {
			return errNoChange
		}
		if used {
			putVisibility(b, next.id, of.ready())
		}
		return nil
	})
	if err == nil && used {
		s.visibility.rename(of, next)
	}
	return err
}

// claimBorrowed computes the visibility set of a fork if it is now the only user of one of its
// borrowed layers. Layers of which it may read all objects become its own, which maintenance may
// rewrite.
func (s *Store) claimBorrowed(ctx context.Context, v *View) {
	borrowing := v.toCheck()
	if borrowing == nil {
		return
	}
	alone := false
	for _, id := range borrowing.layers {
		shared, err := s.IsShared(ctx, v.pool, id)
		alone = alone || err == nil && !shared
	}
	if !alone {
		return
	}
	of, err := v.visibility(ctx, borrowing)
	if err == nil {
		_, err = s.visibility.ask(ctx, v, of)
	}
	s.warnOfVisibility(ctx, v.pool, err)
}
