package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// lend finds out what the tips of a fork reach, by a walk or from a twin, and writes it down in the place of the tips.
func (s *Store) lend(
	ctx context.Context, pool PoolID, companion LayerID, tips idList, twin *loan,
) (set *borrowedSet, whole map[LayerID]bool, err error) {
	if twin != nil {
		select {
		case <-twin.done:
			set, whole = twin.set, twin.whole
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if whole == nil { // there is no twin, or it has failed, or another server was quicker
		if set, whole, err = s.walkLoan(ctx, pool, companion, tips); err != nil || whole == nil {
			return set, nil, err
		}
	}
	s.warnOfLoan(ctx, pool, s.settleLoan(ctx, pool, companion, set, whole))
	return set, whole, nil
}

// walkLoan returns what the tips of a fork reach, and which layers that is all of, when it is its turn. Without layers there is nothing to
// write down.
func (s *Store) walkLoan(ctx context.Context, pool PoolID, companion LayerID, tips idList) (*borrowedSet, map[LayerID]bool, error) {
	select {
	case s.loans.walks <- struct{}{}:
		defer func() { <-s.loans.walks }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	all, err := s.View(ctx, pool) // pins what is lent
	if err != nil {
		return nil, nil, err
	}
	defer all.Close()
	all.aside()
	part := all.manifest.lent(companion)
	if len(part.layers) == 0 { // another server has found it out
		set, err := s.replacedLoan(ctx, &all.manifest)
		return set, nil, err
	}
	v := s.newView(pool, part).aside()
	defer v.Close()
	pace := s.newPacer(loanPause)
	pace.awaited = &s.loans.awaited
	set, err := v.linked().reached(ctx, tips.ids(), pace)
	if err != nil {
		return nil, nil, fmt.Errorf("find what a fork may read: %w", err)
	}
	whole, err := v.wholeLayers(ctx, set)
	if err != nil {
		s.warnOfLoan(ctx, pool, err)
		return set, nil, nil
	}
	return set, whole, nil
}

// warnOfLoan tells why what a fork may read is not written down, so that it will be found out again.
func (s *Store) warnOfLoan(ctx context.Context, pool PoolID, err error) {
	if err != nil && !errors.Is(err, ErrNoPool) && ctx.Err() == nil {
		s.log.WarnContext(ctx, "write down what a fork may read", "pool", pool, "error", err)
	}
}

// lent returns the layers of a manifest that a companion stands beside.
func (m *manifest) lent(companion LayerID) manifest {
	part := manifest{version: m.version, drops: m.drops}
	for _, l := range m.layers {
		if id, ok := l.borrowed(); ok && id == companion {
			part.layers = append(part.layers, l)
		}
	}
	return part
}

// reached returns what tips reach in the layers of v. It rests when pace says so.
func (v *View) reached(ctx context.Context, tips []object.ID, pace *pacer) (*borrowedSet, error) {
	inv, err := newInventory(ctx, v)
	if err != nil {
		return nil, err
	}
	defer inv.close()
	inv.pace = pace
	request := PackRequest{Wants: tips}
	r := newReaching(inv, &request, &progressMeter{})
	if err := r.find(ctx, &request); err != nil {
		return nil, err
	}
	set := &borrowedSet{known: true, segments: make(map[LayerID]lentSegment)}
	for i, l := range inv.layers {
		set.segments[l.id] = newLentSegment(inv.segments[i].count, r.send.words[i])
	}
	loose := make([]object.ID, 0, r.send.count(inv.looseLayer()))
	err = r.send.each(inv.looseLayer(), func(number uint32) error {
		loose = append(loose, inv.loose.ids[number])
		return nil
	})
	set.loose = newIDList(loose)
	return set, err
}

// wholeLayers returns those of the borrowed layers of v all of whose objects are in set, or have a twin there.
func (v *View) wholeLayers(ctx context.Context, set *borrowedSet) (map[LayerID]bool, error) {
	whole := make(map[LayerID]bool)
	lowest, highest := object.ZeroID, object.ID{}
	for i := range highest {
		highest[i] = 0xff
	}
	for _, l := range v.layers {
		if segment, ok := l.(*segmentLayer); ok && set.segments[segment.id].size() == set.segments[segment.id].count {
			whole[segment.id] = true
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
func (v *View) isIn(ctx context.Context, set *borrowedSet, id object.ID) (bool, error) {
	if set.loose.has(id) {
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

// settleLoan puts set in the place of the tips, and makes those layers own that are whole.
func (s *Store) settleLoan(ctx context.Context, pool PoolID, companion LayerID, set *borrowedSet, whole map[LayerID]bool) error {
	next, err := s.writeBorrowed(ctx, set)
	if err != nil {
		return err
	}
	used := false
	err = s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		changed := false
		used = false
		for i := range m.layers {
			l := &m.layers[i]
			for at, c := range l.companions {
				if c.kind != layerBorrowed || c.id != companion {
					continue
				}
				changed = true
				if whole[l.id] {
					l.companions = append(l.companions[:at:at], l.companions[at+1:]...)
				} else {
					l.companions[at].id = next
					used = true
				}
				break
			}
		}
		if !changed {
			return errNoChange
		}
		if used {
			b.Put(registrationKey(next), (&registration{pool: pool, kind: layerBorrowed}).encode())
		}
		return nil
	})
	name := layerBorrowed.fileName(next)
	if err == nil && used {
		s.settle(ctx, []string{name})
		return nil
	}
	_, getErr := s.keys.Get(context.WithoutCancel(ctx), registrationKey(next))
	if errors.Is(getErr, kv.ErrNotFound) { // else the batch may have been committed all the same
		err = errors.Join(err, s.files.Delete(context.WithoutCancel(ctx), name))
	}
	return err
}

// writeBorrowed writes a companion, which is not registered yet.
func (s *Store) writeBorrowed(ctx context.Context, set *borrowedSet) (LayerID, error) {
	id := newLayerID()
	f, err := s.files.Create(ctx, layerBorrowed.fileName(id))
	if err != nil {
		return id, fmt.Errorf("begin to write what a fork may read: %w", err)
	}
	if _, err = f.Write(set.encode(id)); err == nil {
		err = f.Seal(ctx)
	}
	if err != nil {
		return id, errors.Join(fmt.Errorf("write what a fork may read: %w", err), f.Abort())
	}
	return id, nil
}
