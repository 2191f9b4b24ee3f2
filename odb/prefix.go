package odb

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"packhorse/pack/object"
)

// ErrInvalidPrefix says that something is not 4 to 40 lower-case hexadecimal digits.
var ErrInvalidPrefix = errors.New("odb: not a prefix of an object ID")

const (
	prefixDigitsMin = 4
	// resolveMax is how many objects [View.Resolve] returns: enough to say that a prefix is ambiguous, and among which types.
	resolveMax = 64
)

// Resolve returns the readable IDs that begin with the hexadecimal digits of prefix, in order, and 64 of them at most. Errors:
// [ErrInvalidPrefix].
func (v *View) Resolve(ctx context.Context, prefix string) ([]object.ID, error) {
	low, high, err := prefixRange(prefix)
	if err != nil {
		return nil, err
	}
	var found []object.ID
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			count := 0
			err := l.scan(ctx, low, high, func(id object.ID) bool {
				if v.readable(id, l) {
					found = append(found, id)
					count++
				}
				return count < resolveMax
			})
			if err != nil {
				return nil, fmt.Errorf("resolve %s: %w", prefix, err)
			}
			found = sortIDs(found)
			found = found[:min(len(found), resolveMax)]
		}
	}
	return found, nil
}

// prefixRange returns the lowest and the highest ID that begin with the digits.
func prefixRange(prefix string) (low, high object.ID, err error) {
	if len(prefix) < prefixDigitsMin || len(prefix) > object.HexSize || strings.ToLower(prefix) != prefix {
		return low, high, fmt.Errorf("%w: %q", ErrInvalidPrefix, prefix)
	}
	rest := object.HexSize - len(prefix)
	_, lowErr := hex.Decode(low[:], []byte(prefix+strings.Repeat("0", rest)))
	_, highErr := hex.Decode(high[:], []byte(prefix+strings.Repeat("f", rest)))
	if err := errors.Join(lowErr, highErr); err != nil {
		return low, high, fmt.Errorf("%w: %q", ErrInvalidPrefix, prefix)
	}
	return low, high, nil
}
