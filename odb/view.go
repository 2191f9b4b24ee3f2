package odb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// View reads a pool as of its manifest when the view was made, with everything that has been
// committed to its last hot layer since. It pins its layers: readable objects stay readable until
// Close. A view of [Quarantine.View] also reads quarantined objects.
//
// The pins of one process do not hold the sweep of another. When that has removed a segment, Has,
// Stat, Read, Open, Graph and Resolve go on with the layers of the present manifest, and other
// reads fail with [ErrGone].
type View struct {
	store    *Store
	pool     PoolID
	manifest manifest

	layers     []layer                 // stored, in the order of lookups
	quarantine *Quarantine             // nil, or used instead of manifest and layers
	borrowing  *borrowing              // of a fork: its borrowed layers
	owner      string                  // see For
	asking     *View                   // see Linked; nil: the view is it
	own        *privateCache           // see Aside; nil: the common one
	limit      func(bytes int64) error // see Limit; nil: none
	renews     bool                    // of all that a stored manifest names; see renewed
	renewal    renewal                 // unless asking is set
	closed     atomic.Bool
}

// Info is the result of [View.Stat].
type Info struct {
	Type object.Type
	Size int64
}

// View returns a view of a pool. The caller closes it. Errors: [ErrNoPool], [ErrCorrupt].
func (s *Store) View(ctx context.Context, pool PoolID) (*View, error) {
	return s.ViewAt(ctx, s.keys, pool)
}

// ViewAt is [Store.View] with the manifest read from r, which may be a snapshot that refs were read
// from, too. The snapshot need not outlive the call. If the manifest has changed since, the view is
// of the new one, which has the same objects and more, unless some were pruned.
func (s *Store) ViewAt(ctx context.Context, r kv.Reader, pool PoolID) (*View, error) {
	m, _, err := s.readManifest(ctx, r, pool)
	if err != nil {
		return nil, err
	}
	v, _, err := s.confirm(ctx, s.newView(pool, m))
	if err == nil {
		v.renews = true
	}
	return v, err
}

// confirm verifies that the manifest still named the layers of a view when they were pinned, since
// Sweep may delete a layer that has left it and is not pinned (docs/invariants.md 14). It returns
// the view, or one of the present manifest, and the stored bytes of that manifest.
func (s *Store) confirm(ctx context.Context, v *View) (*View, []byte, error) {
	for {
		now, raw, err := s.readManifest(ctx, s.keys, v.pool)
		if err != nil {
			return nil, nil, errors.Join(err, v.Close())
		}
		if now.version == v.manifest.version {
			return v, raw, nil
		}
		if err := v.Close(); err != nil {
			return nil, nil, err
		}
		v = s.newView(v.pool, now)
	}
}

// newView pins the layers of m. Lookups try segments first, the newest of them first, since an
// index lookup costs a tenth of one in the key-value store; then the hot layers.
func (s *Store) newView(pool PoolID, m manifest) *View {
	s.traffic.Begin()
	v := &View{store: s, pool: pool, manifest: m, layers: make([]layer, 0, len(m.layers)), borrowing: newBorrowing(&m)}
	for _, kind := range []segment.LayerKind{segment.KindSegment, segment.KindHot} {
		for _, l := range slices.Backward(m.layers) {
			if l.kind == kind {
				v.layers = append(v.layers, s.layers.pin(l))
			}
		}
	}
	return v
}

// Share returns another view of the layers of v, which is not a quarantine's, with a Close of its
// own. The caller has not closed v.
func (v *View) Share() *View {
	shared := v.store.newView(v.pool, v.manifest).For(v.owner)
	shared.renews = v.Asking().renews
	return shared
}

// Close unpins the layers. Objects and entries that the view returned must not be used any more.
// Only the first call has an effect.
func (v *View) Close() error {
	if v.asking != nil {
		return v.asking.Close()
	}
	if v.quarantine != nil || v.closed.Swap(true) {
		return nil // a quarantine's view ends with it
	}
	for _, l := range v.layers {
		v.store.layers.unpin(l)
	}
	if v.own == nil {
		v.store.traffic.End()
	}
	return v.renewal.close()
}

// Pool returns the pool that v reads.
func (v *View) Pool() PoolID { return v.pool }

// Store returns the store that v reads.
func (v *View) Store() *Store { return v.store }

// Limits returns the limits in force.
func (v *View) Limits() Limits { return v.store.limits }

// IsQuarantine reports whether v also reads quarantined objects.
func (v *View) IsQuarantine() bool { return v.quarantine != nil }

// PruneCount returns the prune generation of the pool as of v.
func (v *View) PruneCount() uint64 { return v.currentManifest().prunes }

// Has reports whether the object of id is readable.
func (v *View) Has(ctx context.Context, id object.ID) (bool, error) {
	at, ok, err := v.locate(ctx, id)
	if err == nil {
		ok, err = v.readable(ctx, id, &at, ok)
	}
	if err != nil {
		next, err := v.renewed(ctx, err)
		if next == nil {
			return false, err
		}
		return next.Has(ctx, id)
	}
	return ok, nil
}

// Stores reports whether the object of id is stored in a layer, readable or not.
func (v *View) Stores(ctx context.Context, id object.ID) (bool, error) {
	_, ok, err := v.locate(ctx, id)
	return ok, err
}

// Stat returns an object's type and size. Errors: [ErrNotFound], [ErrCorrupt].
func (v *View) Stat(ctx context.Context, id object.ID) (Info, error) {
	at, err := v.Find(ctx, id)
	var info Info
	if err == nil {
		info, err = at.layer.stat(ctx, at)
	}
	if err != nil {
		next, err := v.renewed(ctx, err)
		if next == nil {
			return Info{}, err
		}
		return next.Stat(ctx, id)
	}
	return info, nil
}

// Linked returns a view of the same objects for IDs that refs or readable objects name. A pool is
// closed, so these are readable, too, and a fork needs no visibility set for them. Look up an ID
// that a client sent in v first. Closing the view closes v.
func (v *View) Linked() *View {
	return &View{
		store: v.store, pool: v.pool, manifest: v.manifest, layers: v.layers, quarantine: v.quarantine,
		borrowing: v.borrowing, asking: cmp.Or(v.asking, v), own: v.own, owner: v.owner,
	}
}

// For sets the owner of the pool and returns v. It is called before v is used. Owners take turns at
// visibility walks.
func (v *View) For(owner string) *View {
	v.owner = owner
	return v
}

// Limit makes quarantines over v call limit, before and while they grow, with the bytes that they
// hold. Its error ends their writes.
func (v *View) Limit(limit func(bytes int64) error) { v.limit = limit }

// Asking returns the view that [View.Linked] was called on, which checks for every ID whether it is
// readable.
func (v *View) Asking() *View { return cmp.Or(v.asking, v) }

// Find returns the location of a readable object, or a [NotFoundError]. Of a duplicate it returns
// the first place in the order of lookups, even if the object is readable because of another.
func (v *View) Find(ctx context.Context, id object.ID) (Location, error) {
	at, ok, err := v.locate(ctx, id)
	if err == nil {
		ok, err = v.readable(ctx, id, &at, ok)
	}
	if err == nil && !ok {
		err = &NotFoundError{Object: id}
	}
	return at, err
}

// locate returns the location of an object, readable or not.
func (v *View) locate(ctx context.Context, id object.ID) (Location, bool, error) {
	for _, layers := range v.layerLists() {
		if at, ok, err := searchIn(ctx, layers, id); ok || err != nil {
			return at, ok, err
		}
	}
	return Location{}, false, nil
}

func searchIn(ctx context.Context, layers []layer, id object.ID) (Location, bool, error) {
	for _, l := range layers {
		if at, ok, err := findIn(ctx, l, id); ok || err != nil {
			return at, ok, err
		}
	}
	return Location{}, false, nil
}

func findIn(ctx context.Context, l layer, id object.ID) (Location, bool, error) {
	at, ok, err := l.find(ctx, id)
	if err != nil {
		err = fmt.Errorf("look up %s: %w", id, err)
	}
	return at, ok, err
}

// layerLists returns the layers in the order of lookups: quarantined, then stored.
func (v *View) layerLists() [2][]layer {
	if v.quarantine == nil {
		return [2][]layer{nil, v.layers}
	}
	return [2][]layer{v.quarantine.currentLayers(), v.quarantine.stored().layers}
}

// storedLayers returns the layers of the manifest, without those of a quarantine.
func (v *View) storedLayers() []layer { return v.layerLists()[1] }

func (v *View) currentManifest() manifest {
	if v.quarantine != nil {
		return v.quarantine.stored().manifest
	}
	return v.manifest
}
