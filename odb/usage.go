package odb

import (
	"cmp"
	"context"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Size is a number of objects, and the bytes that they take: those of the packs of segments, and of
// the values of hot layers. Rows and files beside them are not counted.
type Size struct{ Count, Bytes int64 }

// Add adds another size.
func (s *Size) Add(other Size) {
	s.Count += other.Count
	s.Bytes += other.Bytes
}

// PoolLayer is a layer of a pool.
type PoolLayer struct {
	ID  segment.LayerID
	Hot bool
	// Borrowed says that a fork has taken the layer from its base.
	Borrowed bool
}

// Layers returns the layers of a pool, and a number that changes with them. Errors: [ErrNoPool],
// [ErrCorrupt].
func (s *Store) Layers(ctx context.Context, pool PoolID) (layers []PoolLayer, version uint64, err error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	for _, l := range m.layers {
		_, borrowed := l.borrowed()
		layers = append(layers, PoolLayer{ID: l.id, Hot: l.kind == segment.KindHot, Borrowed: borrowed})
	}
	return layers, m.version, err
}

// Measure returns the size of a layer. It reads one row for a segment, and all rows of a hot layer,
// between which it calls rest. Errors: [ErrCorrupt].
func (s *Store) Measure(ctx context.Context, l PoolLayer, rest func(context.Context) error) (Size, error) {
	if !l.Hot {
		value, err := s.keys.Get(ctx, registrationKey(l.ID))
		if err != nil {
			return Size{}, err
		}
		r, err := segment.DecodeRegistration(value)
		if err != nil {
			err = s.damage.Corrupt(l.ID, object.ZeroID, "%v", err)
		}
		return Size{r.Count, r.Bytes}, err
	}
	var size Size
	for pair, err := range s.keys.Scan(ctx, hot.Range(hot.TableObject, l.ID)) {
		if err := cmp.Or(err, rest(ctx)); err != nil {
			return Size{}, err
		}
		size = Size{size.Count + 1, size.Bytes + int64(len(pair.Value))}
	}
	return size, nil
}

// Sizes returns what a batch adds to layers, and the layers that a pool leaves by it.
func Sizes(b *kv.Batch) (added map[PoolLayer]Size, left []segment.LayerID) {
	added = make(map[PoolLayer]Size)
	for op := range b.Operations() {
		if len(op.Key) <= len(segment.LayerID{}) {
			continue
		}
		l := PoolLayer{ID: segment.LayerID(op.Key[1:][:len(segment.LayerID{})])}
		switch table := op.Key[0]; {
		case table == tableUser && op.Kind == kv.OperationDelete:
			left = append(left, l.ID)
		case table == tableRegistration && op.Kind == kv.OperationPut:
			if r, err := segment.DecodeRegistration(op.Value); err == nil && r.Kind == segment.KindSegment {
				added[l] = Size{r.Count, r.Bytes}
			}
		case table == hot.TableObject && op.Kind == kv.OperationPut:
			l.Hot = true
			added[l] = Size{added[l].Count + 1, added[l].Bytes + int64(len(op.Value))}
		}
	}
	return added, left
}
