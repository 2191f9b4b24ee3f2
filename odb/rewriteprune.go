package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// ErrNeeded says that an object to prune has come into use meanwhile. The caller plans the prune
// again.
var ErrNeeded = errors.New("odb: an unreachable object has come into use")

// Look checks the objects written since the layers were frozen, as Stage does. So it leaves little
// to Stage, which holds up the repository's writers. It calls rest between objects. Errors:
// [ErrNeeded]; the caller then closes the rewrite and begins another.
func (r *Rewrite) Look(ctx context.Context, rest func(context.Context) error) error {
	m, _, err := r.store.readManifest(ctx, r.store.keys, r.view.pool)
	if err != nil {
		return err
	}
	_, err = r.look(ctx, &m, kv.NewBatch(), nil, rest)
	return err
}

// Stage adds the change of the manifest to b, after a check of everything written since the layers
// were frozen: it must not need an object that the new segment lacks. moved are the objects that
// refs have been moved to since the tips were read. b has the repository's head as a precondition
// and advances it, so that a writer who has relied on an object checks again.
//
// Errors: [ErrNeeded]; the caller then closes the rewrite and begins another.
func (r *Rewrite) Stage(ctx context.Context, b *kv.Batch, moved []object.ID) error {
	m, raw, err := r.store.readManifest(ctx, r.store.keys, r.view.pool)
	if err != nil {
		return err
	}
	next, err := r.look(ctx, &m, b, moved, fair.Pause)
	if err != nil {
		return err
	}
	return r.store.stageManifest(b, r.view.pool, raw, &m, next)
}

// look returns the manifest that follows m, once it has verified that this holds moved and all
// links of objects written since the plan.
func (r *Rewrite) look(
	ctx context.Context, m *manifest, b *kv.Batch, moved []object.ID, rest func(context.Context) error,
) (*manifest, error) {
	next := m.clone()
	next.prunes++
	if err := r.replace(&next, b); err != nil {
		return nil, errors.Join(ErrNeeded, err)
	}
	after := r.view.over(next)
	defer after.Close()
	held := func(id object.ID) error {
		if _, ok := r.held[id]; ok {
			return rest(ctx)
		}
		ok, err := r.holds(ctx, after, id)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %s", ErrNeeded, id)
		}
		r.held[id] = struct{}{}
		return rest(ctx)
	}
	for _, id := range moved {
		if err := held(id); err != nil {
			return nil, err
		}
	}
	for _, l := range next.layers {
		if r.isSettled(l) {
			continue
		}
		if err := after.eachNamed(ctx, l, r.checked, held); err != nil {
			return nil, err
		}
		if l.kind == segment.KindSegment {
			r.layers[l.id] = struct{}{}
		}
	}
	return &next, nil
}

// holds reports whether an object is stored after the prune, and readable if it was before: a fork
// may share an object without being able to read it.
func (r *Rewrite) holds(ctx context.Context, after *View, id object.ID) (bool, error) {
	_, ok, err := after.locate(ctx, id)
	if !ok || err != nil || !after.borrows() {
		return ok, err
	}
	if ok, err := after.Has(ctx, id); ok || err != nil {
		return ok, err
	}
	was, err := r.view.Has(ctx, id)
	return !was, err
}

// isSettled reports whether the links of a layer are known to be held: it is the new one, or did
// not change since the plan was made.
func (r *Rewrite) isSettled(l manifestLayer) bool {
	if r.q != nil && l.id == r.q.sealed[0].ID {
		return true
	}
	if _, ok := r.layers[l.id]; ok {
		return true
	}
	if hot, _ := r.view.manifest.hot(); l.id == hot {
		return false
	}
	for _, known := range r.view.manifest.layers {
		if known.id == l.id {
			return true
		}
	}
	return false
}
