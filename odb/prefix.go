package odb

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// ErrInvalidPrefix says that a prefix is not 4 to 40 lower-case hexadecimal digits.
var ErrInvalidPrefix = errors.New("odb: not a prefix of an object ID")

const (
	prefixDigitsMin = 4
	// resolveMax is the largest number of objects that [View.Resolve] returns: enough to say that a
	// prefix is ambiguous, and among which types.
	resolveMax = 64
)

// Resolve returns, in order, at most 64 readable IDs that begin with the hexadecimal digits of
// prefix. Errors: [ErrInvalidPrefix].
func (v *View) Resolve(ctx context.Context, prefix string) ([]object.ID, error) {
	low, high, err := prefixRange(prefix)
	if err != nil {
		return nil, err
	}
	var found []object.ID
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			ids, err := v.resolveIn(ctx, l, low, high)
			if err != nil {
				next, err := v.renewed(ctx, err)
				if next != nil {
					return next.Resolve(ctx, prefix)
				}
				return nil, fmt.Errorf("resolve %s: %w", prefix, err)
			}
			found = append(found, ids...)
			found = segment.SortIDs(found)
			found = found[:min(len(found), resolveMax)]
		}
	}
	return found, nil
}

// resolveIn returns the first readable IDs of a layer from low to high.
func (v *View) resolveIn(ctx context.Context, l layer, low, high object.ID) (found []object.ID, err error) {
	scanErr := l.scan(ctx, low, high, func(id object.ID) bool {
		ok := true
		if v.IsBorrowed(l) {
			if ok, err = v.Has(ctx, id); err != nil {
				return false
			}
		}
		if ok {
			found = append(found, id)
		}
		return len(found) < resolveMax
	})
	return found, errors.Join(scanErr, err)
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
