package odb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// View reads a pool as of its manifest when the view was made, with everything that has been
// committed to its last hot layer since. It pins its layers: readable objects stay readable until
// Close. A view of [Quarantine.View] also reads quarantined objects.
//
// The sweep of another process waits for the view while it knows this process; see [Epochs]. When
// it has removed a layer, Has, Stat, Read, Open, Graph and Resolve go on with the layers of the
// present manifest, and other reads fail with [ErrGone].
type View struct {
	store    *Store
	pool     PoolID
	manifest manifest

	layers     []layer                 // stored, in the order of lookups
	quarantine *Quarantine             // nil, or used instead of manifest and layers
	borrowing  *borrowing              // of a fork: its borrowed layers
	owner      string                  // see For
	asking     *View                   // see Linked; nil: the view is it
	own        privateCache            // see Aside; nil: the common one
	limit      func(bytes int64) error // see Limit; nil: none
	renews     bool                    // of all that a stored manifest names; see renewed
	epoch      uint64                  // in which it began
	renewal    renewal                 // unless asking is set
	held       *heldByView             // nil for a quarantine's view, and with asking
	forgotten  runtime.Cleanup         // gives back held if nobody closes the view
}

// heldByView is what a view keeps from others until it ends.
type heldByView struct {
	store     *Store
	layers    []layer    // pinned
	borrowing *borrowing // whose visibility set is pinned; nil: none
	epoch     uint64
	counts    bool // as the view of a request
	ended     atomic.Bool
}

// end gives it back. Only the first call has an effect.
func (h *heldByView) end() {
	if h.ended.Swap(true) {
		return
	}
	for _, l := range h.layers {
		h.store.layers.unpin(l)
	}
	if h.borrowing != nil {
		h.store.layers.unpinRows(h.borrowing.auxiliary.id)
	}
	h.store.options.Epochs.end(h.epoch)
	if h.counts {
		h.store.traffic.End()
	}
}

// Info is the result of [View.Stat].
type Info struct {
	Type object.Type
	Size int64
}

// learn remembers the manifest of a pool, and drops the copies of layers that the one before named
// alone.
func (s *Store) learn(pool PoolID, before, now *manifest) {
	s.known.Put(pool, *now, int64(4*len(now.raw)))
	if s.copies == nil {
		return
	}
	is := now.parts()
	for _, l := range before.layers {
		if l.kind == segment.KindHot && !is.has(l.id) && !s.layers.isPinned(l.id) {
			s.copies.Drop(l.id)
		}
	}
}

// confirm verifies that the manifest still named the layers of a view when they were pinned, since
// Sweep may delete a layer that has left it and is not pinned (docs/invariants.md 14). It returns
// the view, or one of the present manifest, and the values at the same instant of the keys that
// more, if not nil, returns for the view.
func (s *Store) confirm(ctx context.Context, v *View, more func(v *View) [][]byte) (*View, [][]byte, error) {
	for {
		var keys [][]byte
		if more != nil {
			keys = more(v)
		}
		now, values, err := v.reread(ctx, keys)
		if err == nil && now == nil {
			return v, values, nil
		}
		if err = errors.Join(err, v.Close()); err != nil {
			return nil, nil, err
		}
		v = s.newView(v.pool, *now)
	}
}

// reread reads the manifest of the view's pool again, and some keys, in one read of the store. It
// returns nil for the manifest that the view has already. Where reads are dear it also reads what
// was added to the view's layers since they were copied. Errors: [ErrNoPool], [ErrCorrupt].
func (v *View) reread(ctx context.Context, keys [][]byte) (*manifest, [][]byte, error) {
	set := kv.ReadSet{Keys: append([][]byte{manifestKey(v.pool)}, keys...)}
	behind := v.behind(&set)
	rows, err := v.store.keys.Read(ctx, set)
	if err != nil {
		return nil, nil, fmt.Errorf("read manifest of pool %s: %w", v.pool, err)
	}
	behind.take(rows.Pages)
	switch raw := rows.Values[0]; {
	case raw == nil:
		v.store.known.Take(v.pool)
		return nil, nil, fmt.Errorf("%w: %s", ErrNoPool, v.pool)
	case bytes.Equal(raw, v.manifest.raw):
		return nil, rows.Values[1:], nil
	default:
		m, err := v.store.manifestOf(v.pool, raw)
		return &m, nil, err
	}
}

// advances are what takes the pages of ranges that were read, in their order.
type advances []func(kv.Page)

func (a advances) take(pages []kv.Page) {
	for i, advance := range a {
		advance(pages[i])
	}
}

// behind adds what the copies of the view's hot layers may lack to set, and returns who takes it.
func (v *View) behind(set *kv.ReadSet) (advance advances) {
	if !v.store.options.RemoteKeys {
		return nil
	}
	for _, l := range v.hotLayers() {
		if tail, take := l.rows.Behind(); take != nil && len(advance) < tailsMax {
			set.Ranges, advance = append(set.Ranges, tail), append(advance, take)
		}
	}
	return advance
}

// tailsMax bounds the layers that are brought up to date in one read. Others wait for a lookup.
const tailsMax = 16

// newView pins the layers of m. Lookups try segments first, the newest of them first, since an
// index lookup costs a tenth of one in the key-value store; then the hot layers.
//
// The view begins now: the caller confirms that m is the manifest still. Views that are made of
// others begin with these; see [View.over].
func (s *Store) newView(pool PoolID, m manifest) *View {
	return s.newViewSince(s.options.Epochs.begin(), pool, m)
}

// over returns a view of layers that v has pinned, or that nobody else knows yet. v is open.
func (v *View) over(m manifest) *View {
	return v.store.newViewSince(v.store.options.Epochs.share(v.Asking().epoch), v.pool, m)
}

// newViewSince is newView in an epoch that counts the view already.
func (s *Store) newViewSince(epoch uint64, pool PoolID, m manifest) *View {
	s.traffic.Begin()
	v := &View{
		store: s, pool: pool, manifest: m, layers: make([]layer, 0, len(m.layers)), borrowing: newBorrowing(&m), epoch: epoch,
	}
	open, _ := m.hot()
	for _, kind := range []segment.LayerKind{segment.KindSegment, segment.KindHot} {
		for _, l := range slices.Backward(m.layers) {
			if l.kind == kind {
				v.layers = append(v.layers, s.layers.pin(l, l.id != open, epoch))
			}
		}
	}
	if v.borrowing != nil {
		s.layers.pinRows(v.borrowing.auxiliary.id)
	}
	v.held = &heldByView{store: s, layers: v.layers, borrowing: v.borrowing, epoch: epoch, counts: true}
	v.forgotten = runtime.AddCleanup(v, (*heldByView).end, v.held)
	return v
}

// Share returns another view of the layers of v, which is not a quarantine's, with a Close of its
// own. The caller has not closed v.
func (v *View) Share() *View {
	shared := v.over(v.manifest).For(v.owner)
	shared.renews = v.Asking().renews
	return shared
}

// Close unpins the layers. Objects and entries that the view returned must not be used any more.
// Only the first call has an effect. A view that a panic has kept from being closed is closed when
// the garbage collector finds that nobody can use it.
func (v *View) Close() error {
	if v.asking != nil {
		return v.asking.Close()
	}
	if v.quarantine != nil {
		return nil // it ends with the quarantine
	}
	v.forgotten.Stop()
	v.held.end()
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
	return v.found(ctx, id, at, ok, err)
}

// FindUnpacked is [View.Find] of an object that the caller has found in no segment of the view. It
// asks the other layers only, unless the view is a quarantine's, which has them in another order.
// The layer that takes writes comes last: only the store knows what it lacks, and copies answer for
// the others.
func (v *View) FindUnpacked(ctx context.Context, id object.ID) (Location, error) {
	if v.quarantine != nil {
		return v.Find(ctx, id)
	}
	layers := v.storedLayers()
	open := firstHot(layers) // the newest hot layer takes writes
	frozen := min(open+1, len(layers))
	at, ok, err := searchIn(ctx, layers[frozen:], id)
	if !ok && err == nil {
		at, ok, err = searchIn(ctx, layers[open:frozen], id)
	}
	return v.found(ctx, id, at, ok, err)
}

// found is the answer of a lookup that ended with at, ok and err.
func (v *View) found(ctx context.Context, id object.ID, at Location, ok bool, err error) (Location, error) {
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

// searchIn returns the location of an object in the first of layers that has it. A layer that takes
// writes is asked twice when it is copied: the copy, and at last the store for what came since.
func searchIn(ctx context.Context, layers []layer, id object.ID) (Location, bool, error) {
	var open *hotLayer
	for _, l := range layers {
		h, isHot := l.(*hotLayer)
		if !isHot {
			if at, ok, err := findIn(ctx, l, id); ok || err != nil {
				return at, ok, err
			}
			continue
		}
		if h.rows.Lacks(id) {
			continue
		}
		value, state, err := h.rows.Value(ctx, id)
		if err != nil {
			return Location{}, false, fmt.Errorf("look up %s: %w", id, err)
		}
		switch state {
		case hot.Held:
			return h.at(id, value), true, nil
		case hot.AbsentSoFar:
			open = h
		default:
		}
	}
	if open == nil {
		return Location{}, false, nil
	}
	at, ok, err := open.stored(ctx, id)
	if err != nil {
		err = fmt.Errorf("look up %s: %w", id, err)
	}
	return at, ok, err
}

// locateSoFar is locate without what was added since the copies of layers came up to date. It may
// return a location without its value.
func (v *View) locateSoFar(ctx context.Context, id object.ID) (Location, bool, error) {
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			h, isHot := l.(*hotLayer)
			if !isHot {
				if at, ok, err := findIn(ctx, l, id); ok || err != nil {
					return at, ok, err
				}
				continue
			}
			if ok, err := h.rows.Has(ctx, id); ok || err != nil {
				return h.at(id, nil), ok, err
			}
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

// layerLists returns the layers in the order of lookups: quarantined ones, those of quarantines
// that are staged before, and the stored ones.
func (v *View) layerLists() [3][]layer {
	if v.quarantine == nil {
		return [3][]layer{2: v.layers}
	}
	return v.quarantine.layerLists()
}

// hotLayers returns the hot ones of storedLayers, the newest first.
func (v *View) hotLayers() (layers []*hotLayer) {
	for _, l := range v.storedLayers() {
		if h, ok := l.(*hotLayer); ok {
			layers = append(layers, h)
		}
	}
	return layers
}

// storedLayers returns the layers of the manifest, without those of a quarantine.
func (v *View) storedLayers() []layer { return v.layerLists()[2] }

// currentBase returns another view of the stored layers that v reads now.
func (v *View) currentBase() *View {
	if v.quarantine != nil {
		v = v.quarantine.stored()
	}
	return v.over(v.manifest)
}

func (v *View) currentManifest() manifest {
	if v.quarantine != nil {
		return v.quarantine.stored().manifest
	}
	return v.manifest
}
