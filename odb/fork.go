package odb

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Fork is a new pool that shares the layers of another. It exists once its batch has been
// committed.
type Fork struct {
	store *Store
	pool  PoolID
	hot   segment.LayerID
}

// Fork adds to b a pool that shares the layers of v's. Through it the objects that tips reach are
// readable, and no others. The caller has read the tips after it made v: b fails if objects were
// pruned since then. The source's hot layer is frozen: the source gets a new one.
//
// The time and the bytes do not depend on the size of the pool: b gets 20 bytes for each tip. Now
// and then Fork merges the small hot layers that earlier forks froze. The objects that the tips
// reach are computed by the first request that needs them; see [View.Linked] for those that do not.
//
// Errors: [kv.ErrConflict] when the pool's layers have changed since v, [ErrManyLayers].
func (v *View) Fork(ctx context.Context, b *kv.Batch, tips []object.ID) (*Fork, error) {
	s := v.store
	f := &Fork{store: s, pool: NewPoolID(), hot: segment.NewLayerID()}
	source, raw, err := s.readManifest(ctx, s.keys, v.pool)
	if err != nil {
		return nil, err
	}
	if source.version != v.manifest.version {
		return nil, fmt.Errorf("fork pool %s: its layers have changed: %w", v.pool, kv.ErrConflict)
	}
	next := manifest{version: 1}
	if len(tips) > 0 {
		if next.layers, err = v.share(ctx, b, &source, raw); err != nil {
			return nil, err
		}
		borrow(b, next.layers, tips)
	}
	next.layers = append(next.layers, manifestLayer{kind: segment.KindHot, id: f.hot})
	value := next.encode(f.pool)
	if len(value) > manifestBytesMax {
		return nil, fmt.Errorf("%w: %d", ErrManyLayers, len(next.layers))
	}
	b.RequireAbsent(manifestKey(f.pool))
	b.Put(manifestKey(f.pool), value)
	next.use(b, f.pool)
	return f, nil
}

// share returns the layers that a fork takes, and freezes the hot one unless it is empty. An empty
// one stays the source's alone. Layers that were frozen before take no more writes, so share may
// merge them. The layer that it freezes may take writes until b is committed.
func (v *View) share(ctx context.Context, b *kv.Batch, source *manifest, raw []byte) ([]manifestLayer, error) {
	open, ok := source.hot()
	empty, next := true, *source
	if ok {
		var err error
		if empty, err = v.store.isEmpty(ctx, open); err != nil {
			return nil, err
		}
	}
	if empty {
		b.Require(manifestKey(v.pool), raw)
	} else {
		next = source.clone()
		if err := v.store.mergeFrozen(ctx, b, v.pool, &next, 0); err != nil {
			return nil, fmt.Errorf("merge frozen layers: %w", err)
		}
		frozen := next.clone()
		frozen.layers = append(frozen.layers, manifestLayer{kind: segment.KindHot, id: segment.NewLayerID()})
		if err := v.store.stageManifest(b, v.pool, raw, source, &frozen); err != nil {
			return nil, err
		}
	}
	taken := make([]manifestLayer, 0, len(next.layers)+1)
	for _, l := range next.layers {
		if empty && l.id == open {
			continue
		}
		// Bitmaps too: they cover segments only, and the fork takes all of them in their order.
		taken = append(taken, manifestLayer{kind: l.kind, id: l.id, auxiliaries: slices.Clone(l.shared())})
	}
	return taken, nil
}

// borrow adds the visibility set of tips to b, and makes it auxiliary to the borrowed layers.
func borrow(b *kv.Batch, layers []manifestLayer, tips []object.ID) {
	if len(layers) == 0 {
		return
	}
	auxiliary := manifestLayer{kind: segment.KindVisibility, id: segment.NewLayerID()}
	putVisibility(b, auxiliary.id, &visibilitySet{tips: newIDList(tips)})
	for i := range layers {
		layers[i].auxiliaries = append(layers[i].auxiliaries, auxiliary)
	}
}

// Pool returns the ID of the new pool.
func (f *Fork) Pool() PoolID { return f.pool }

// Hot returns the layer that [Fork.Write] writes to.
func (f *Fork) Hot() segment.LayerID { return f.hot }

// Write adds an object of the new pool to b and returns its ID. The caller guarantees that its
// links exist.
//
// Errors: [ErrTooLarge] for an object too large for the hot tier, and that of [object.Check].
func (f *Fork) Write(b *kv.Batch, t object.Type, data []byte) (object.ID, error) {
	if err := object.Check(t, data); err != nil {
		return object.ZeroID, fmt.Errorf("write %s: %w", t, err)
	}
	id, err := object.Hash(t, data)
	if err != nil {
		return object.ZeroID, fmt.Errorf("write %s: %w", t, err)
	}
	value := hot.Compress(hot.Value{ID: id, Type: t, Size: int64(len(data)), ContentSize: int64(len(data))}, data)
	encoded := value.Encode()
	if len(encoded) > f.store.limits.HotValueBytes {
		return object.ZeroID, fmt.Errorf("%s of %d bytes: %w", t, len(data), ErrTooLarge)
	}
	b.Put(hot.ObjectKey(f.hot, id), encoded)
	return id, f.writeRow(b, id, t, data)
}

// writeRow adds the graph row of a commit without parents to b. For other commits readers parse the
// commit itself.
func (f *Fork) writeRow(b *kv.Batch, id object.ID, t object.Type, data []byte) error {
	if t != object.TypeCommit {
		return nil
	}
	row, err := segment.ParseGraphRow(data)
	if err != nil || len(row.Parents) > 0 {
		return err
	}
	row.Generation = segment.NextGeneration(nil)
	b.Put(hot.GraphKey(f.hot, id), hot.EncodeRow(id, &row))
	return nil
}
