package odb

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// UsedFiles walks the names of the files that pools use according to the tables in r, in ascending
// order. It omits obsolete files. Errors: [ErrCorrupt].
func UsedFiles(ctx context.Context, r kv.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var last segment.LayerID
		for pair, err := range r.Scan(ctx, kv.ScanOptions{Start: []byte{tableUser}, End: kv.PrefixEnd([]byte{tableUser})}) {
			var id segment.LayerID
			if err == nil {
				id, _, err = decodeUserKey(pair.Key)
			}
			if err == nil && id == last {
				continue // another pool uses it too
			}
			last = id
			var name string
			if err == nil {
				name, err = registeredName(ctx, r, id)
			}
			if err != nil {
				yield("", fmt.Errorf("list files: %w", err))
				return
			}
			if name != "" && !yield(name, nil) {
				return
			}
		}
	}
}

// registeredName returns the name of the file that is registered for a layer or auxiliary file, or
// "" for a hot layer.
func registeredName(ctx context.Context, r kv.Reader, id segment.LayerID) (string, error) {
	value, err := r.Get(ctx, registrationKey(id))
	if errors.Is(err, kv.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	registered, err := segment.DecodeRegistration(value)
	if err != nil {
		return "", &CorruptError{Layer: id, Object: object.ZeroID, Why: err.Error()}
	}
	return registered.Kind.FileName(id), nil
}

// decodeUserKey decodes a key of tableUser.
func decodeUserKey(key []byte) (segment.LayerID, PoolID, error) {
	if len(key) != 1+len(segment.LayerID{})+len(PoolID{}) {
		return segment.LayerID{}, PoolID{}, &CorruptError{Why: fmt.Sprintf("key %x is no user's", key)}
	}
	return segment.LayerID(key[1:][:len(segment.LayerID{})]), PoolID(key[1+len(segment.LayerID{}):]), nil
}

// FilePools returns the pools that use the file of that name, according to the tables in r.
func FilePools(ctx context.Context, r kv.Reader, name string) ([]PoolID, error) {
	layer, ok := segment.LayerOfFile(name)
	if !ok {
		return nil, nil
	}
	var pools []PoolID
	for pair, err := range r.Scan(ctx, usersOf(layer)) {
		if err != nil {
			return nil, fmt.Errorf("find the users of file %s: %w", name, err)
		}
		_, pool, err := decodeUserKey(pair.Key)
		if err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	return pools, nil
}
