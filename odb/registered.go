package odb

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// HoldFiles keeps every file that is stored now from being removed until release is called, which has an effect once. It waits for a removal
// under way.
func (s *Store) HoldFiles() (release func()) {
	s.removal.RLock()
	released := false
	return func() {
		if !released {
			released = true
			s.removal.RUnlock()
		}
	}
}

// UsedFiles walks the names of the files that pools use according to the tables in r, in ascending order. What only waits to be removed is not
// among them. Errors: [ErrCorrupt].
func UsedFiles(ctx context.Context, r kv.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var last LayerID
		for pair, err := range r.Scan(ctx, kv.ScanOptions{Start: []byte{tableUser}, End: kv.PrefixEnd([]byte{tableUser})}) {
			var id LayerID
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

// registeredName returns the name of the file that is registered for a layer or companion, or "" for a hot layer.
func registeredName(ctx context.Context, r kv.Reader, id LayerID) (string, error) {
	value, err := r.Get(ctx, registrationKey(id))
	if errors.Is(err, kv.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	registered, err := decodeRegistration(value)
	if err != nil {
		return "", &CorruptError{Layer: id, Object: object.ZeroID, Why: err.Error()}
	}
	return registered.kind.fileName(id), nil
}

// decodeUserKey takes a key of tableUser apart.
func decodeUserKey(key []byte) (LayerID, PoolID, error) {
	if len(key) != 1+len(LayerID{})+len(PoolID{}) {
		return LayerID{}, PoolID{}, &CorruptError{Why: fmt.Sprintf("key %x is no user's", key)}
	}
	return LayerID(key[1:][:len(LayerID{})]), PoolID(key[1+len(LayerID{}):]), nil
}

// decodeRegistration returns what encode wrote.
func decodeRegistration(value []byte) (registration, error) {
	d := decoder{data: value}
	format := d.take(1)[0]
	r := registration{kind: layerKind(d.take(1)[0]), pool: PoolID(d.take(len(PoolID{})))}
	r.count, r.dataBytes = int64(d.uvarint()), int64(d.uvarint())
	if d.failed || len(d.data) > 0 || format != 1 || r.kind < layerSegment || r.kind > layerBorrowed {
		return registration{}, fmt.Errorf("%w: registration %x", errFormat, value)
	}
	return r, nil
}
