package engine

import (
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// changeRefs runs a transaction on refs of these stored names that stores no objects. It returns
// the result of prepare in the attempt that was committed, or the stored result of an earlier equal
// request under the same idempotency key.
func changeRefs[T any](
	ctx context.Context, r *Repository, actor *Actor, cause string, prepare func(
		ctx context.Context, tx *refs.Tx, now *Repository,
	) (T, error), names ...string,
) (T, error) {
	var outcome, none T
	change := r.change(actor, cause, names...)
	change.FastForward = r.storedForward
	done, err := r.transact(ctx, actor, change, nil,
		func(ctx context.Context, tx *refs.Tx, now *Repository) error {
			var err error
			if outcome, err = prepare(ctx, tx, now); err != nil {
				return err
			}
			return setReceipt(tx, outcome)
		})
	if err != nil {
		return none, err
	}
	if done.Replayed {
		return decodeReceipt[T](done.Receipt)
	}
	return outcome, nil
}

// storedForward reports whether the history of a stored commit contains another one.
func (r *Repository) storedForward(ctx context.Context, before, after object.ID) (bool, error) {
	view, err := r.Objects(ctx)
	if err != nil {
		return false, err
	}
	defer view.Close()
	return revwalk.IsAncestor(ctx, view.Linked(), before, after)
}

// withStored gives do a view of the objects that are stored now. The transaction fails if one of
// them is pruned before it commits, so refs may point to objects that do finds there.
func (r *Repository) withStored(ctx context.Context, tx *refs.Tx, do func(v *odb.View) error) error {
	view, err := r.Objects(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	objects.AsRead()
	if err := do(objects.View()); err != nil {
		return err
	}
	if err := objects.Stage(ctx, tx.Batch()); err != nil {
		return fmt.Errorf("protect stored objects from pruning: %w", err)
	}
	return nil
}
