package odb

import (
	"context"
	"slices"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// lending is what a view knows of the layers that its pool took over as a fork (docs/invariants.md
// 8).
type lending struct {
	auxiliary segment.LayerID
	layers    map[segment.LayerID]struct{} // that the auxiliary file stands beside

	mu   sync.Mutex
	loan *loan // guarded by mu; nil until it is needed
}

// newLending returns nil for a manifest whose layers are all its own.
func newLending(m *manifest) *lending {
	var l *lending
	for i := range m.layers {
		if auxiliary, ok := m.layers[i].borrowed(); ok {
			if l == nil {
				l = &lending{auxiliary: auxiliary, layers: make(map[segment.LayerID]struct{})}
			}
			l.layers[m.layers[i].id] = struct{}{}
		}
	}
	return l
}

// borrowed returns the auxiliary file that says what of the layer may be read; without one all of it
// may.
func (l *manifestLayer) borrowed() (segment.LayerID, bool) {
	for _, auxiliary := range l.auxiliaries {
		if auxiliary.kind == segment.KindBorrowed {
			return auxiliary.id, true
		}
	}
	return segment.LayerID{}, false
}

// lender returns what is known of borrowed layers, nil if there are none, or none that are to be
// asked about.
func (v *View) lender() *lending {
	switch {
	case v.asking != nil:
		return nil
	case v.quarantine != nil:
		return v.quarantine.stored().lending
	default:
		return v.lending
	}
}

// borrows reports whether there are objects in the layers of v that may not be read.
func (v *View) borrows() bool { return v.lender() != nil }

// IsBorrowed reports whether that a layer holds an object does not say that it may be read.
func (v *View) IsBorrowed(l layer) bool {
	lender := v.lender()
	if lender == nil {
		return false
	}
	_, ok := lender.layers[l.layerID()]
	return ok
}

// readable is the one place that decides whether an object may be seen through this view
// (docs/invariants.md 8). Everything that takes an ID from outside asks it. at is where the object
// was found first, if it was found.
//
// What is own and stored may be read, and of what came with a fork that which the tips reach that
// it took. Until that is known, everybody who asks for something else than a tip or an own object
// waits for it, whether there is such an object or not: the time that an answer takes tells
// nothing.
func (v *View) readable(ctx context.Context, id object.ID, at *Location, found bool) (bool, error) {
	lender := v.lender()
	if lender == nil || found && !v.IsBorrowed(at.layer) {
		return found, nil
	}
	loan, err := v.loan(ctx, lender)
	if err != nil {
		return false, err
	}
	set := loan.ready()
	if set != nil && found && set.has(at) {
		return true, nil
	}
	own, borrowed, err := v.twins(ctx, id)
	if err != nil || own || loan.tips.has(id) {
		return err == nil, err
	}
	if set, err = v.store.loans.ask(ctx, v, loan); err != nil {
		return false, err
	}
	for i := range borrowed {
		if set.has(&borrowed[i]) {
			return true, nil
		}
	}
	return false, nil
}

// holds is [View.Has] for who would store the object otherwise, and does not wait: while it is
// being found out what a fork may read, what it took may be stored once more.
func (v *View) holds(ctx context.Context, id object.ID) (bool, error) {
	at, found, err := v.locate(ctx, id)
	lender := v.lender()
	if err != nil || !found || lender == nil || !v.IsBorrowed(at.layer) {
		return err == nil && found, err
	}
	loan, err := v.loan(ctx, lender)
	if err != nil {
		return false, err
	}
	own, borrowed, err := v.twins(ctx, id)
	if err != nil || own || loan.tips.has(id) {
		return err == nil, err
	}
	set := loan.ready()
	return set != nil && slices.ContainsFunc(borrowed, func(at Location) bool { return set.has(&at) }), nil
}

// twins reports whether an object lies in a layer that is not borrowed, or else where it lies.
func (v *View) twins(ctx context.Context, id object.ID) (own bool, borrowed []Location, err error) {
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			at, ok, err := findIn(ctx, l, id)
			if err != nil || ok && !v.IsBorrowed(l) {
				return ok, nil, err
			}
			if ok {
				borrowed = append(borrowed, at)
			}
		}
	}
	return false, borrowed, nil
}

// loan returns what an auxiliary file says, read once for the view.
func (v *View) loan(ctx context.Context, l *lending) (*loan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loan != nil {
		return l.loan, nil
	}
	found, err := v.store.loans.find(ctx, v.store, v.pool, l)
	l.loan = found
	return found, err
}
