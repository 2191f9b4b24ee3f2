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
func CheckAdditions(
	ctx context.Context, keys kv.Reader, layer segment.LayerID, problem func(id object.ID, err error) error,
) error {
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
		if err := checkAdded(ctx, keys, layer, number, ids, problem); err != nil {
			return err
		}
	}
	if last < count {
		return problem(object.ZeroID, fmt.Errorf("%w: %d additions of %d", segment.ErrFormat, last, count))
	}
	return nil
}

func checkAdded(
	ctx context.Context, keys kv.Reader, layer segment.LayerID, number uint64, ids []byte,
	problem func(id object.ID, err error) error,
) error {
	for ; len(ids) > 0; ids = ids[object.IDSize:] {
		id := object.ID(ids[:object.IDSize])
		_, err := keys.Get(ctx, ObjectKey(layer, id))
		if errors.Is(err, kv.ErrNotFound) {
			err = problem(id, fmt.Errorf("%w: addition %d has an object that its layer lacks", segment.ErrFormat, number))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
