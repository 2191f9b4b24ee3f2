package odb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// renewal is the view that takes the place of one whose layers another server has removed.
type renewal struct {
	mu   sync.Mutex // guards view
	view *View      // nil before it was needed
}

// renewed returns a view of the present manifest if err is [ErrGone]; v closes it. Otherwise it
// returns err and no view, as for a quarantine's view, which follows the manifest by itself, and
// for one of chosen layers.
func (v *View) renewed(ctx context.Context, err error) (*View, error) {
	asking := v.Asking()
	if v.quarantine != nil || !asking.renews || !errors.Is(err, ErrGone) {
		return nil, err
	}
	next, failed := asking.renew(ctx)
	if failed != nil {
		return nil, fmt.Errorf("%w: %w", failed, err)
	}
	if asking != v {
		next = next.Linked()
	}
	return next, nil
}

func (v *View) renew(ctx context.Context) (*View, error) {
	v.renewal.mu.Lock()
	defer v.renewal.mu.Unlock()
	if v.renewal.view != nil {
		return v.renewal.view, nil
	}
	next, err := v.store.View(ctx, v.pool)
	if err != nil {
		return nil, err
	}
	if next.manifest.version == v.manifest.version { // it names the layer, and no row counts its user
		return nil, errors.Join(v.store.damage.Corrupt(segment.LayerID(v.pool), object.ZeroID,
			"a file that the manifest names was removed"), next.Close())
	}
	if v.own != nil {
		next.setAside(v.own)
	}
	v.renewal.view = next.For(v.owner)
	return next, nil
}

// close closes the view, if there is one.
func (r *renewal) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == nil {
		return nil
	}
	return r.view.Close()
}
