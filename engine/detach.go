package engine

import (
	"context"

	"packhorse/refs"
)

// Detached is the outcome of [Repository.Detach].
type Detached struct {
	Sequence uint64
}

// Detach makes the repository independent of its upstream. One that has none, as is true of all until there are upstreams, is
// left as it is; that is no error, and has no entry in the journal.
//
// Errors: refs.ErrReceiptMismatch.
func (r *Repository) Detach(ctx context.Context, actor Actor) (Detached, error) {
	done, err := r.host.names.Update(ctx, r.record.ID, r.change(&actor, "detach"), func(_ context.Context, tx *refs.Tx) error {
		if err := r.guard(tx, &actor); err != nil {
			return err
		}
		return refs.ErrUnchanged
	})
	if err != nil {
		return Detached{}, r.gone(err)
	}
	return Detached{Sequence: done.Sequence}, nil
}
