package hot

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// CheckAdditions verifies the additions to a layer: that their numbers have no gaps and that the
// layer has their objects. It passes what is wrong to problem, as [segment.ErrFormat]. It may run
// beside writers.
func CheckAdditions(ctx context.Context, r *Reader, problem func(id object.ID, err error) error) error {
	keys, layer := r.Keys, r.ID
	value, err := keys.Get(ctx, CountKey(layer))
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	count, err := DecodeCount(layer, value)
	if err != nil {
		return problem(object.ZeroID, err)
	}
	last := uint64(0)
	for pair, err := range keys.Scan(ctx, Additions(layer)) {
		if err != nil {
			return err
		}
		number, ids, err := DecodeAddition(pair.Key, pair.Value)
		if err == nil && number > last+1 {
			err = fmt.Errorf("%w: addition %d follows %d", segment.ErrFormat, number, last)
		}
		if err != nil {
			if err := problem(object.ZeroID, err); err != nil {
				return err
			}
			continue
		}
		last = max(last, number)
		if err := checkAdded(ctx, r, number, ids, problem); err != nil {
			return err
		}
	}
	if last < count {
		return problem(object.ZeroID, fmt.Errorf("%w: %d additions of %d", segment.ErrFormat, last, count))
	}
	return nil
}

func checkAdded(
	ctx context.Context, r *Reader, number uint64, ids []byte, problem func(id object.ID, err error) error,
) error {
	for ; len(ids) > 0; ids = ids[object.IDSize:] {
		id := object.ID(ids[:object.IDSize])
		has, err := r.Has(ctx, id)
		if err == nil && !has { // it may have been added since the layer was copied
			var value []byte
			value, err = r.Stored(ctx, id)
			has = value != nil
		}
		if err == nil && !has {
			err = problem(id, fmt.Errorf("%w: addition %d has an object that its layer lacks", segment.ErrFormat, number))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
