package odb

import (
	"context"
	"slices"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// borrowing describes the borrowed layers of a fork's pool to a view (docs/invariants.md 8).
type borrowing struct {
	auxiliary manifestLayer     // the visibility set
	layers    []segment.LayerID // to which it is auxiliary

	mu    sync.Mutex
	entry *visibilityEntry // guarded by mu; nil until it is needed
}

// newBorrowing returns nil for a manifest whose layers are all its own.
func newBorrowing(m *manifest) *borrowing {
	var l *borrowing
	for i := range m.layers {
		if auxiliary, ok := m.layers[i].borrowed(); ok {
			if l == nil {
				l = &borrowing{auxiliary: auxiliary, layers: make([]segment.LayerID, 0, len(m.layers))}
			}
			l.layers = append(l.layers, m.layers[i].id)
		}
	}
	return l
}

// borrowed returns the visibility set of the layer. Without one all of its objects are readable.
func (l *manifestLayer) borrowed() (manifestLayer, bool) {
	for _, auxiliary := range l.auxiliaries {
		if auxiliary.isVisibility() {
			return auxiliary, true
		}
	}
	return manifestLayer{}, false
}

// isVisibility reports whether an auxiliary is a visibility set.
func (l *manifestLayer) isVisibility() bool {
	return l.kind == segment.KindVisibility || l.kind == segment.KindBorrowed
}

// shared returns the auxiliaries of the layer that all pools with the layer may share: all but the
// visibility set. The slice may be the layer's.
func (l *manifestLayer) shared() []manifestLayer {
	if _, ok := l.borrowed(); !ok {
		return l.auxiliaries
	}
	return slices.DeleteFunc(slices.Clone(l.auxiliaries), func(auxiliary manifestLayer) bool {
		return auxiliary.isVisibility()
	})
}

// toCheck returns the description of the borrowed layers, nil if there are none, or if the view
// need not check them.
func (v *View) toCheck() *borrowing {
	switch {
	case v.asking != nil:
		return nil
	case v.quarantine != nil:
		return v.quarantine.stored().borrowing
	default:
		return v.borrowing
	}
}

// borrows reports whether layers of v may hold objects that are not readable.
func (v *View) borrows() bool { return v.toCheck() != nil }

// IsBorrowed reports whether a layer may hold objects that are not readable.
func (v *View) IsBorrowed(l layer) bool {
	borrowing := v.toCheck()
	return borrowing != nil && slices.Contains(borrowing.layers, l.layerID())
}

// readable is the one place that decides whether an object may be seen through this view
// (docs/invariants.md 8). Everything that takes an ID from outside calls it. at is the place where
// the object was found first, if it was found.
//
// Objects in the pool's own layers are readable. Objects in borrowed layers are readable if the
// tips that the fork was created from reach them. Until this set is known, a request for another
// object than a tip or an own object waits for it, whether the object exists or not: so the time of
// an answer reveals nothing.
func (v *View) readable(ctx context.Context, id object.ID, at *Location, found bool) (bool, error) {
	borrowing := v.toCheck()
	if borrowing == nil || found && !v.IsBorrowed(at.layer) {
		return found, nil
	}
	entry, err := v.visibility(ctx, borrowing)
	if err != nil {
		return false, err
	}
	set := entry.ready()
	if set != nil && found && set.has(at) {
		return true, nil
	}
	own, borrowed, err := v.duplicates(ctx, id)
	if err != nil || own || entry.tips.has(id) {
		return err == nil, err
	}
	if set, err = v.store.visibility.ask(ctx, v, entry); err != nil {
		return false, err
	}
	for i := range borrowed {
		if set.has(&borrowed[i]) {
			return true, nil
		}
	}
	return false, nil
}

// holds is [View.Has] for a caller that would store the object otherwise, and does not wait: during
// a visibility walk it may return false for a borrowed object, which is then stored once more, and
// for an object that was added since its layer was copied, which Stage notices.
func (v *View) holds(ctx context.Context, id object.ID) (bool, error) {
	at, found, err := v.locateSoFar(ctx, id)
	borrowing := v.toCheck()
	if err != nil || !found || borrowing == nil || !v.IsBorrowed(at.layer) {
		return err == nil && found, err
	}
	entry, err := v.visibility(ctx, borrowing)
	if err != nil {
		return false, err
	}
	own, borrowed, err := v.duplicates(ctx, id)
	if err != nil || own || entry.tips.has(id) {
		return err == nil, err
	}
	set := entry.ready()
	return set != nil && slices.ContainsFunc(borrowed, func(at Location) bool { return set.has(&at) }), nil
}

// duplicates reports whether an object lies in a layer that is not borrowed, and returns its places
// otherwise.
func (v *View) duplicates(ctx context.Context, id object.ID) (own bool, borrowed []Location, err error) {
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

// visibility returns the entry of a visibility set, which the view reads once.
func (v *View) visibility(ctx context.Context, l *borrowing) (*visibilityEntry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry != nil {
		return l.entry, nil
	}
	found, err := v.store.visibility.find(ctx, v.store, v.pool, l)
	l.entry = found
	return found, err
}
