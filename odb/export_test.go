package odb

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb/fair"
	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// PruneHot adds a prune to b: a new hot layer with the objects ids, and a new manifest with a
// higher prune generation. The former hot layer keeps its keys for views that pin it.
func (s *Store) PruneHot(ctx context.Context, b *kv.Batch, pool PoolID, ids ...object.ID) error {
	m, raw, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return err
	}
	b.Require(manifestKey(pool), raw)
	old, _ := m.hot()
	next := segment.NewLayerID()
	for _, id := range ids {
		value, err := s.keys.Get(ctx, hot.ObjectKey(old, id))
		if err != nil {
			return err
		}
		b.Put(hot.ObjectKey(next, id), value)
	}
	for i := range m.layers {
		if m.layers[i].id == old {
			m.layers[i].id = next
		}
	}
	m.version++
	m.prunes++
	b.Put(manifestKey(pool), m.encode(pool))
	return nil
}

// AddAuxiliaries adds a manifest to b whose hot layer has count auxiliary files. They do not exist,
// and nothing opens them.
func (s *Store) AddAuxiliaries(ctx context.Context, b *kv.Batch, pool PoolID, count int) error {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return err
	}
	for range count {
		m.layers[0].auxiliaries = append(m.layers[0].auxiliaries,
			manifestLayer{kind: segment.KindGraph, id: segment.NewLayerID()})
	}
	m.version++
	b.Put(manifestKey(pool), m.encode(pool))
	return nil
}

// ForgetManifest makes the next view of a pool read its manifest twice.
func (s *Store) ForgetManifest(pool PoolID) { s.known.Take(pool) }

// Freeze ends the writing to a pool's last hot layer.
func (s *Store) Freeze(ctx context.Context, pool PoolID) error { return s.freeze(ctx, pool) }

// LeaveAll takes every layer but the last hot one out of a pool's manifest.
func (s *Store) LeaveAll(ctx context.Context, pool PoolID) error {
	return s.changeManifest(ctx, pool, func(m *manifest, _ *kv.Batch) error {
		m.layers = m.layers[len(m.layers)-1:]
		m.prunes++
		return nil
	})
}

// AwaitSettled waits until the files of quarantines are in their place for which Settled was
// called. Nobody may call it for others meanwhile.
func (s *Store) AwaitSettled() { s.settlers.Wait() }

// AwaitVisibility asks what every fork may read, and returns when that has been found out and
// written down, where it can be.
func (s *Store) AwaitVisibility() {
	s.walks.Wait() // or a set would be found under a name that is being replaced
	for pair, err := range s.keys.Scan(s.closing,
		kv.ScanOptions{Start: []byte{tableManifest}, End: kv.PrefixEnd([]byte{tableManifest})}) {
		if err != nil {
			break
		}
		_ = s.askVisibility(PoolID(pair.Key[1:]))
	}
	s.walks.Wait()
}

func (s *Store) askVisibility(pool PoolID) error {
	v, err := s.View(s.closing, pool)
	if err != nil {
		return err
	}
	defer v.Close()
	if v.borrows() {
		of, err := v.visibility(s.closing, v.toCheck())
		if err != nil {
			return err
		}
		_, err = s.visibility.ask(s.closing, v, of)
		return err
	}
	return nil
}

// HoldVisibilityWalks lets no visibility walk begin until release is called.
func (s *Store) HoldVisibilityWalks() (release func()) {
	var owners []string
	for i := range visibilityWalkMax {
		owners = append(owners, fmt.Sprint("held ", i))
	}
	return s.holdVisibilityWalks(owners)
}

// HoldVisibilityWalksOf lets no visibility walk of an owner begin until release is called.
func (s *Store) HoldVisibilityWalksOf(owner string) (release func()) {
	return s.holdVisibilityWalks(slices.Repeat([]string{owner}, visibilityWalkOwnerMax))
}

func (s *Store) holdVisibilityWalks(owners []string) (release func()) {
	var all []func()
	for _, owner := range owners {
		release, err := s.visibility.turns.Acquire(s.closing, fair.Tenant{Org: owner}, 0, 1)
		if err != nil {
			panic(err)
		}
		all = append(all, release)
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// VisibilityWaiterCount returns the number of requests that wait for a visibility set.
func (s *Store) VisibilityWaiterCount() int { return int(s.visibility.awaited.Load()) }

// KnownVisibilities returns the number and the size in bytes of the visibility sets in memory.
func (s *Store) KnownVisibilities() (count, size int) {
	s.visibility.mu.Lock()
	defer s.visibility.mu.Unlock()
	return len(s.visibility.known), s.visibility.bytes
}

// LayerCount returns how many layers a pool has.
func (s *Store) LayerCount(ctx context.Context, pool PoolID) (int, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	return len(m.layers), err
}

// BorrowedLayerCount returns how many layers of a pool are not its own.
func (s *Store) BorrowedLayerCount(ctx context.Context, pool PoolID) (int, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return 0, err
	}
	if l := newBorrowing(&m); l != nil {
		return len(l.layers), nil
	}
	return 0, nil
}

// VisibilityRows returns the keys of the visibility set of a pool.
func (s *Store) VisibilityRows(ctx context.Context, pool PoolID) (kv.ScanOptions, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return kv.ScanOptions{}, err
	}
	return visibilityRows(newBorrowing(&m).auxiliary.id), nil
}

// StoreVisibilityFile puts the visibility set of a pool into a file, as older releases did, and
// returns its name.
func (s *Store) StoreVisibilityFile(ctx context.Context, pool PoolID) (string, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return "", err
	}
	old := newBorrowing(&m).auxiliary
	set, err := s.readVisibility(ctx, pool, old)
	if err != nil {
		return "", err
	}
	next := manifestLayer{kind: segment.KindBorrowed, id: segment.NewLayerID()}
	name := segment.KindBorrowed.FileName(next.id)
	s.reserve(ctx, name)
	f, err := s.Files.Create(ctx, name)
	if err != nil {
		return "", err
	}
	if _, err := f.Write(set.encode(next.id)); err != nil {
		return "", err
	}
	if err := f.Seal(ctx); err != nil {
		return "", err
	}
	err = s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		for i := range m.layers {
			for at, c := range m.layers[i].auxiliaries {
				if c.id == old.id {
					m.layers[i].auxiliaries[at] = next
				}
			}
		}
		return s.register(b, next.id, segment.Registration{Pool: pool, Kind: segment.KindBorrowed})
	})
	if err == nil {
		s.registered(ctx, name)
	}
	return name, err
}
