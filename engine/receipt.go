package engine

import (
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
