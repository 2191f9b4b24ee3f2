package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/hot"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/invariants"
)

// changeTriesMax bounds the attempts of a change of a manifest when others change it, too.
const changeTriesMax = 64

// errNoChange ends a change of a manifest that is not necessary.
var errNoChange = errors.New("nothing to change")

// changeManifest replaces a pool's manifest by the result of change, and returns when that is
// durable. Every change goes through here or through [Store.stageManifest], so that user keys and
// table d agree with the manifests.
//
// change is called again if another change was first. It may add operations and preconditions to
// the batch, such as the registrations of new files. [errNoChange] ends changeManifest without an
// error.
//
// Errors: [ErrNoPool], [ErrManyLayers], [ErrTaken], [kv.ErrConflict] when others were always
// faster, and those of change.
func (s *Store) changeManifest(ctx context.Context, pool PoolID, change func(m *manifest, b *kv.Batch) error) error {
	for range changeTriesMax {
		m, raw, err := s.readManifest(ctx, s.keys, pool)
		if err != nil {
			return err
		}
		b := kv.NewBatch()
		next := m.clone()
		err = change(&next, b)
		if errors.Is(err, errNoChange) {
			return nil
		}
		if err == nil {
			err = s.stageManifest(b, pool, raw, &m, &next)
		}
		if err != nil {
			return err
		}
		commit, err := s.keys.Apply(ctx, b)
		if intent.IsConflict(err) {
			err = ErrTaken
		}
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("change manifest of pool %s: %w", pool, err)
		}
		return commit.Wait(ctx)
	}
	return fmt.Errorf("change manifest of pool %s: %w", pool, kv.ErrConflict)
}

// stageManifest replaces the manifest before by next. raw, the stored bytes of before, is a
// precondition. A joining layer gets its user key. A leaving layer loses it and gets an obsolete
// entry in table d. Errors: [ErrManyLayers].
func (s *Store) stageManifest(b *kv.Batch, pool PoolID, raw []byte, before, next *manifest) error {
	next.version = before.version + 1
	value := next.encode(pool)
	if invariants.Enabled {
		next.check(pool, before)
	}
	if len(value) > manifestBytesMax {
		return fmt.Errorf("%w: %d", ErrManyLayers, len(next.layers))
	}
	b.Require(manifestKey(pool), raw)
	b.Put(manifestKey(pool), value)
	was, is := before.parts(), next.parts()
	for _, part := range is {
		if !was.has(part.id) {
			b.Put(userKey(part.id, pool), nil)
		}
	}
	for _, part := range was {
		if !is.has(part.id) {
			s.leave(b, pool, part.kind, part.id)
		}
	}
	return nil
}

// CreatePool adds a new, empty pool to b: a manifest with one hot layer, and the layer's user key.
// The pool exists when b is committed.
func (s *Store) CreatePool(b *kv.Batch) PoolID {
	pool, m := NewPoolID(), firstManifest()
	m.create(b, pool)
	return pool
}

// NewPool returns a view of a pool that does not exist yet. The caller closes it.
// [Quarantine.Stage] of a quarantine over the view adds the creation of the pool to the objects.
// Until that batch has been committed, nothing of the pool is stored but the quarantine's files.
func (s *Store) NewPool() *View {
	m := firstManifest()
	m.unborn = true
	return s.newView(NewPoolID(), m)
}

// firstManifest returns the manifest of a new, empty pool.
func firstManifest() manifest {
	return manifest{version: 1, layers: []manifestLayer{{kind: segment.KindHot, id: segment.NewLayerID()}}}
}

// create adds the pool of a manifest to b.
func (m *manifest) create(b *kv.Batch, pool PoolID) {
	b.RequireAbsent(manifestKey(pool))
	b.Put(manifestKey(pool), m.encode(pool))
	m.use(b, pool)
}

// leave adds the release of a layer or auxiliary file to b; Sweep deletes it when no pool uses it.
func (s *Store) leave(b *kv.Batch, pool PoolID, kind segment.LayerKind, id segment.LayerID) {
	b.Delete(userKey(id, pool))
	b.Put(segment.Obsolete{Time: s.options.Now(), Kind: kind, ID: id}.Key(tableObsolete), pool[:])
}

// freeze merges the small layers that forks froze before, and gives the pool a new hot layer, if
// the last one holds an object. Objects in the former one stay unchanged until they are flushed.
func (s *Store) freeze(ctx context.Context, pool PoolID) error {
	return s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		count := len(m.layers)
		if err := s.mergeFrozen(ctx, b, pool, m, mergedCountMax*s.limits.HotCount); err != nil {
			return fmt.Errorf("merge frozen layers: %w", err)
		}
		empty := false
		if last, ok := m.hot(); ok {
			var err error
			if empty, err = s.isEmpty(ctx, last); err != nil {
				return err
			}
		}
		if !empty {
			m.layers = append(m.layers, manifestLayer{kind: segment.KindHot, id: segment.NewLayerID()})
		} else if len(m.layers) == count {
			return errNoChange
		}
		return nil
	})
}

// isEmpty reports whether a hot layer holds no object.
func (s *Store) isEmpty(ctx context.Context, id segment.LayerID) (bool, error) {
	first := hot.Range(hot.TableObject, id)
	first.Limit = 1
	for _, err := range s.keys.Scan(ctx, first) {
		return false, err
	}
	return true, nil
}

// clone returns a deep copy.
func (m *manifest) clone() manifest {
	next := *m
	next.raw = nil
	next.layers = slices.Clone(m.layers)
	for i := range next.layers {
		next.layers[i].auxiliaries = slices.Clone(next.layers[i].auxiliaries)
	}
	return next
}

// parts are layers and auxiliary files, each once, by ID: the key-value store takes the keys of a
// batch faster when they come in order.
type parts []manifestLayer

// parts returns those of a manifest.
func (m *manifest) parts() parts {
	parts := make(parts, 0, 4*len(m.layers))
	for i := range m.layers {
		parts = append(parts, manifestLayer{kind: m.layers[i].kind, id: m.layers[i].id})
		parts = append(parts, m.layers[i].auxiliaries...)
	}
	slices.SortFunc(parts, func(a, b manifestLayer) int { return bytes.Compare(a.id[:], b.id[:]) })
	return slices.CompactFunc(parts, func(a, b manifestLayer) bool { return a.id == b.id })
}

// has reports whether id is that of a part.
func (p parts) has(id segment.LayerID) bool {
	_, found := slices.BinarySearchFunc(p, id, func(part manifestLayer, id segment.LayerID) int {
		return bytes.Compare(part.id[:], id[:])
	})
	return found
}

// use adds the user keys of all layers and auxiliary files of the pool's first manifest to b.
func (m *manifest) use(b *kv.Batch, pool PoolID) {
	for _, part := range m.parts() {
		b.Put(userKey(part.id, pool), nil)
	}
}

// IsShared reports whether another pool uses a layer.
func (s *Store) IsShared(ctx context.Context, pool PoolID, id segment.LayerID) (bool, error) {
	for pair, err := range s.keys.Scan(ctx, usersOf(id)) {
		if err != nil {
			return false, err
		}
		if PoolID(pair.Key[1+len(id):]) != pool {
			return true, nil
		}
	}
	return false, nil
}
