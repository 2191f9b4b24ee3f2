package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"packhorse/refs"
)

// The outcome of a keyed change is kept as JSON, so that an equal request is answered from it.

// setReceipt makes outcome the result that the transaction leaves under its idempotency key, if it
// has one.
func setReceipt(tx *refs.Tx, outcome any) error {
	result, err := json.Marshal(outcome)
	if err != nil {
		return fmt.Errorf("encode outcome: %w", err)
	}
	tx.SetResult(result)
	return nil
}

// decodeReceipt returns the outcome of an earlier equal request.
func decodeReceipt[T any](result []byte) (T, error) {
	var outcome T
	if err := json.Unmarshal(result, &outcome); err != nil {
		return outcome, fmt.Errorf("%w: idempotency record: %w", ErrCorrupt, err)
	}
	return outcome, nil
}

// replay returns the stored outcome of an earlier equal request of the actor, who has sent an
// idempotency key. Errors: refs.ErrReceiptMismatch.
func replay[T any](ctx context.Context, h *Host, actor *Actor) (outcome T, found bool, err error) {
	stored, found, err := h.names.FindReceipt(ctx, actor.Receipt)
	if err != nil {
		return outcome, false, fmt.Errorf("look up idempotency key: %w", err)
	}
	if found {
		outcome, err = decodeReceipt[T](stored.Result)
	}
	return outcome, found, err
}
