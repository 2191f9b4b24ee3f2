package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/pack/object"
	"packhorse/refs"
)

// rehearsal is the refs of a snapshot as operations would leave them. What may be computed long
// before the repository's turn begins is computed on it. It knows no policies and no limits: the
// transaction judges.
type rehearsal struct {
	names   *refs.Snapshot
	changed map[string]object.ID // zero for a deletion
	count   int
}

func newRehearsal(names *refs.Snapshot) *rehearsal {
	return &rehearsal{names: names, changed: make(map[string]object.ID), count: names.Count()}
}

// Lookup returns the ref of a stored name, changes included. Errors: refs.ErrNotFound.
func (r *rehearsal) Lookup(ctx context.Context, name string) (refs.Ref, error) {
	id, changed := r.changed[name]
	switch {
	case !changed:
		return r.names.Lookup(ctx, name)
	case id.IsZero():
		return refs.Ref{}, fmt.Errorf("%w: %s", refs.ErrNotFound, name)
	}
	return refs.Ref{Name: name, ID: id}, nil
}

// Count returns the number of refs in all namespaces.
func (r *rehearsal) Count() int { return r.count }

// Set implements [changes]. No operation sets a ref to a tag object.
func (r *rehearsal) Set(ctx context.Context, name string, expected *object.ID, id, _ object.ID) error {
	return r.change(ctx, name, expected, id)
}

// Delete implements [changes].
func (r *rehearsal) Delete(ctx context.Context, name string, expected *object.ID) error {
	return r.change(ctx, name, expected, object.ZeroID)
}

func (r *rehearsal) change(ctx context.Context, name string, expected *object.ID, id object.ID) error {
	now, err := r.Lookup(ctx, name)
	if err != nil && (!errors.Is(err, refs.ErrNotFound) || id.IsZero()) {
		return err
	}
	if expected != nil && *expected != now.ID {
		return &refs.StaleError{Name: name, Expected: *expected, Actual: now.ID}
	}
	if now.ID.IsZero() {
		r.count++
	}
	if id.IsZero() {
		r.count--
	}
	r.changed[name] = id
	return nil
}

// Sequence implements [changes].
func (r *rehearsal) Sequence() uint64 { return r.names.Sequence() }

// After implements [changes].
func (r *rehearsal) After() uint64 { return r.names.Sequence() }
