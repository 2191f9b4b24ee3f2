package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/identity"
	"packhorse/odb/kv"
)

// Reach reads a row of the key-value store. Errors: [kv.ErrUnavailable], which is also
// [identity.ErrMoved] when the repositories were moved elsewhere under the host.
func (h *Host) Reach(ctx context.Context) error {
	row, err := identity.Read(ctx, h.keys)
	if err != nil {
		return err
	}
	err = row.Usable()
	if errors.Is(err, identity.ErrMoved) {
		err = fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
	}
	return err
}

// StoreID returns the ID of a store that is about to be used, and gives it one if it has none.
// Errors: those of [identity.Open] about stores that a migration has left unusable.
func StoreID(ctx context.Context, keys kv.Store) (string, error) {
	id, err := identity.Open(ctx, keys)
	if errors.Is(err, kv.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return id, err
}
