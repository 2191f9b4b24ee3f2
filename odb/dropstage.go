package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Look looks at what has come since the plan was made, as Stage does, so that little is left for Stage, which holds up the repository's writers.
// Errors: [ErrNeeded]; the drop is closed then, and planned anew.
func (d *Drop) Look(ctx context.Context) error {
	m, _, err := d.store.readManifest(ctx, d.store.keys, d.view.pool)
	if err != nil {
		return err
	}
	_, err = d.look(ctx, &m, kv.NewBatch(), nil, d.repack.plan.inv.pace)
	return err
}

// Stage puts the change of the manifest into b, after a look at everything that came since the plan was made: it must not need what is
// dropped. moved are the objects that refs have been pointed at since the tips were read. b has the repository's head as a precondition, and
// moves it on, so that whoever has checked that an object is there checks again.
//
// Errors: [ErrNeeded]; the drop is closed then, and planned anew.
func (d *Drop) Stage(ctx context.Context, b *kv.Batch, moved []object.ID) error {
	m, raw, err := d.store.readManifest(ctx, d.store.keys, d.view.pool)
	if err != nil {
		return err
	}
	next, err := d.look(ctx, &m, b, moved, nil)
	if err != nil {
		return err
	}
	return d.store.stageManifest(b, d.view.pool, raw, &m, next)
}

// look returns the manifest that follows m, once it is sure that all is held there which moved or what came since the plan names.
func (d *Drop) look(ctx context.Context, m *manifest, b *kv.Batch, moved []object.ID, pace *pacer) (*manifest, error) {
	next := m.clone()
	next.drops++
	if err := d.repack.replace(&next, b, d.q); err != nil {
		return nil, errors.Join(ErrNeeded, err)
	}
	after := d.store.newView(d.view.pool, next)
	defer after.Close()
	held := func(id object.ID) error {
		if _, ok := d.held[id]; ok {
			return pace.rest(ctx)
		}
		ok, err := d.holds(ctx, after, id)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %s", ErrNeeded, id)
		}
		d.held[id] = struct{}{}
		return pace.rest(ctx)
	}
	for _, id := range moved {
		if err := held(id); err != nil {
			return nil, err
		}
	}
	for _, l := range next.layers {
		if d.isSettled(l) {
			continue
		}
		if err := after.eachNamed(ctx, l, d.checked, held); err != nil {
			return nil, err
		}
		if l.kind == segment.KindSegment {
			d.layers[l.id] = struct{}{}
		}
	}
	return &next, nil
}

// holds reports whether an object is stored after the drop, and readable if it was before: a fork may have taken it without being able to read
// it.
func (d *Drop) holds(ctx context.Context, after *View, id object.ID) (bool, error) {
	_, ok, err := after.locate(ctx, id)
	if !ok || err != nil || !after.borrows() {
		return ok, err
	}
	if ok, err := after.Has(ctx, id); ok || err != nil {
		return ok, err
	}
	was, err := d.view.Has(ctx, id)
	return !was, err
}

// isSettled reports whether what a layer names is known to be held: it is the new one, or did not change since the plan was made.
func (d *Drop) isSettled(l manifestLayer) bool {
	if d.q != nil && l.id == d.q.sealed[0].ID {
		return true
	}
	if _, ok := d.layers[l.id]; ok {
		return true
	}
	if hot, _ := d.view.manifest.hot(); l.id == hot {
		return false
	}
	for _, known := range d.view.manifest.layers {
		if known.id == l.id {
			return true
		}
	}
	return false
}
