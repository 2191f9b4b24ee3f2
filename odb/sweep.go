package odb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Swept is what [Store.Sweep] has removed.
type Swept struct {
	// PoolCount, LayerCount and FileCount are pools, hot layers, and files of segments and companions.
	PoolCount, LayerCount, FileCount int
	// WaitingCount is what stays until its users and readers have gone.
	WaitingCount int
}

// DropPool lets b give up a pool, whose repository b deletes. Its layers are removed by a later [Store.Sweep].
func (s *Store) DropPool(b *kv.Batch, pool PoolID) {
	b.Put(departureKey(departure{time: s.options.Now(), kind: departedPool, id: LayerID(pool)}), pool[:])
}

// Sweep removes what left its last manifest, and pools that were given up, at least grace ago: files with their registrations, and the key
// ranges of hot layers. What another pool uses, or a view of this process has pinned, stays until a later call. Readers in other processes
// have the grace to finish.
func (s *Store) Sweep(ctx context.Context, grace time.Duration) (Swept, error) {
	var swept Swept
	// Pools first: what they used can be removed by the same sweep if there is no grace.
	for _, pools := range []bool{true, false} {
		if err := s.sweep(ctx, grace, pools, &swept); err != nil {
			return swept, fmt.Errorf("sweep: %w", err)
		}
	}
	return swept, nil
}

func (s *Store) sweep(ctx context.Context, grace time.Duration, pools bool, swept *Swept) error {
	end := departureKey(departure{time: s.options.Now().Add(-grace + time.Millisecond)})
	for pair, err := range s.keys.Scan(ctx, kv.ScanOptions{Start: []byte{tableDeparture}, End: end}) {
		if err != nil {
			return err
		}
		d, err := decodeDeparture(pair.Key)
		if err != nil {
			return s.corrupt(d.id, object.ZeroID, "%v", err)
		}
		if (d.kind == departedPool) != pools {
			continue
		}
		if pools {
			err = s.removePool(ctx, PoolID(d.id), pair.Key)
			swept.PoolCount++
		} else {
			err = s.removePart(ctx, d, pair.Key, swept)
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", d.id, err)
		}
	}
	return nil
}

// removePool removes a pool's manifest, and lets its layers leave.
func (s *Store) removePool(ctx context.Context, pool PoolID, row []byte) error {
	b := kv.NewBatch()
	b.Delete(row)
	m, raw, err := s.readManifest(ctx, s.keys, pool)
	switch {
	case errors.Is(err, ErrNoPool): // a former sweep did
	case err != nil:
		return err
	default:
		b.Require(manifestKey(pool), raw)
		b.Delete(manifestKey(pool))
		for id, kind := range m.parts() {
			s.leave(b, pool, kind, id)
		}
	}
	return s.apply(ctx, b)
}

// removePart removes a layer or companion, unless it is needed. Nobody can begin to use one that no manifest names.
func (s *Store) removePart(ctx context.Context, d departure, row []byte, swept *Swept) error {
	b := kv.NewBatch()
	b.Delete(row)
	prefix := hotPrefix(tableUser, d.id)
	for _, err := range s.keys.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix), Limit: 1}) {
		if err != nil {
			return err
		}
		return s.apply(ctx, b) // the other pool's departure will be a row of its own
	}
	if s.layers.isPinned(d.id) || !s.removal.TryLock() {
		swept.WaitingCount++
		return nil
	}
	defer s.removal.Unlock()
	if d.kind == layerHot {
		for _, table := range hotTables {
			start := hotPrefix(table, d.id)
			b.DeleteRange(start, kv.PrefixEnd(start))
		}
		swept.LayerCount++
		return s.apply(ctx, b)
	}
	if err := s.layers.forget(d.id); err != nil {
		return err
	}
	// The registration goes last: it is what a file without a manifest is found by after a crash.
	if err := s.files.Delete(ctx, d.kind.fileName(d.id)); err != nil && !errors.Is(err, file.ErrNotFound) {
		return err
	}
	b.Delete(registrationKey(d.id))
	swept.FileCount++
	return s.apply(ctx, b)
}

// apply commits a batch, and waits for it.
func (s *Store) apply(ctx context.Context, b *kv.Batch) error {
	commit, err := s.keys.Apply(ctx, b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}
