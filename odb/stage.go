package odb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Stage puts everything that is quarantined into b, with the precondition that the pool's manifest is still the one that was read here.
// It is called once for every try to commit, after [Quarantine.Refresh], inside the transaction that also carries the precondition on the
// repository's head: that is what keeps an object that is found absent here from being added by somebody else before the batch is.
//
// Errors: [ErrDropped] when objects were dropped since the last Refresh and connectivity has to be checked again, [ErrManyLayers].
func (q *Quarantine) Stage(ctx context.Context, b *kv.Batch) error {
	if q.closed {
		return ErrClosed
	}
	if err := q.Seal(ctx); err != nil {
		return err
	}
	base := q.stored()
	m, raw, err := q.store.readManifest(ctx, q.store.keys, base.pool)
	if err != nil {
		return err
	}
	if m.drops != base.manifest.drops {
		return ErrDropped
	}
	b.Require(manifestKey(base.pool), raw)
	q.staged = true
	if err := q.stageHot(ctx, b, &m); err != nil {
		return err
	}
	return q.stageSegments(b, base.pool, &m)
}

// stageHot puts the small objects that the pool does not have.
func (q *Quarantine) stageHot(ctx context.Context, b *kv.Batch, m *manifest) error {
	if len(q.hot.order) == 0 {
		return nil
	}
	target, ok := m.hot()
	if !ok {
		return q.store.corrupt(LayerID(q.view.pool), object.ZeroID, "manifest names no hot layer")
	}
	now := q.stored()
	if now.manifest.version != m.version {
		now = q.store.newView(q.view.pool, *m)
		defer now.Close()
	}
	for _, id := range q.hot.order {
		if _, stored, err := now.locate(ctx, id); err != nil {
			return err
		} else if stored {
			continue
		}
		b.Put(objectKey(target, id), q.hot.values[id])
		if row, ok := q.hot.rows[id]; ok {
			if value := encodeHotRow(id, &row); len(value) <= q.store.limits.HotValueBytes { // an octopus without its row is parsed
				b.Put(graphKey(target, id), value)
			}
		}
	}
	q.hotID = target
	return nil
}

// stageSegments registers the files and puts a new manifest.
func (q *Quarantine) stageSegments(b *kv.Batch, pool PoolID, m *manifest) error {
	if len(q.sealed) == 0 {
		return nil
	}
	next := manifest{version: m.version + 1, drops: m.drops, layers: m.layers}
	for _, segment := range q.sealed {
		next.layers = append(next.layers, segment.manifestLayer())
		r := registration{pool: pool, kind: layerSegment, count: int64(segment.count), dataBytes: segment.dataBytes}
		b.Put(registrationKey(segment.id), r.encode())
		b.Put(userKey(segment.id, pool), nil)
		if segment.graph != (LayerID{}) {
			r := registration{pool: pool, kind: layerGraph}
			b.Put(registrationKey(segment.graph), r.encode())
		}
	}
	value := next.encode(pool)
	if len(value) > manifestBytesMax {
		return fmt.Errorf("%w: %d", ErrManyLayers, len(next.layers))
	}
	b.Put(manifestKey(pool), value)
	return nil
}

// registration is what is known of a file that belongs to a pool: the file may be deleted only together with it.
//
//	1 format, 1 | 1 kind | 16 pool that it was made for | uvarint object count | uvarint size of the data region
type registration struct {
	pool             PoolID
	kind             layerKind
	count, dataBytes int64
}

func (r *registration) encode() []byte {
	dst := append([]byte{1, byte(r.kind)}, r.pool[:]...)
	dst = binary.AppendUvarint(dst, uint64(r.count))
	return binary.AppendUvarint(dst, uint64(r.dataBytes))
}

// Settled tells the quarantine that the batch of its last Stage was committed. Files are moved to their place in the background; until
// then, or if that fails, reads find them where they are, and the next start moves them.
func (q *Quarantine) Settled(ctx context.Context) {
	if !q.staged || q.settled {
		return
	}
	q.settled = true
	q.store.counts.hotWrites.Add(uint64(len(q.hot.order)))
	q.store.counts.segments.Add(uint64(len(q.sealed)))
	for id, plain := range q.hot.plain {
		if plain.kind != object.TypeBlob {
			q.store.cache.set(hotCacheKey(q.hotID, id), plain)
		}
	}
	var names []string
	for _, segment := range q.sealed {
		names = append(names, segmentFile(segment.id))
		if segment.graph != (LayerID{}) {
			names = append(names, graphFile(segment.graph))
		}
	}
	if len(names) > 0 {
		q.store.settle(context.WithoutCancel(ctx), names)
	}
}

// settle moves registered files to their place. [Store.Close] waits for it.
func (s *Store) settle(ctx context.Context, names []string) {
	s.settlers.Go(func() {
		var err error
		for _, name := range names {
			err = errors.Join(err, s.files.Settle(ctx, name))
		}
		if err != nil {
			s.log.WarnContext(ctx, "move a file to its place", "error", err)
		}
	})
}
