package odb

import (
	"context"
	"errors"
	"slices"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// errLayersMoved says that what a companion was made for is not in the manifest any more.
var errLayersMoved = errors.New("odb: the layers have changed meanwhile")

// addCompanion puts a companion, whose file is durable, beside a segment. Others of its kind leave the manifest, unless
// keeps says that they are to stay beside a layer.
//
// Errors: errLayersMoved when fits says no; then, and after any error before the commit, the file is removed.
func (s *Store) addCompanion(
	ctx context.Context, pool PoolID, beside segment.LayerID, added manifestLayer, keeps func(beside segment.LayerID) bool, fits func(*manifest) bool,
) error {
	err := s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		at := slices.IndexFunc(m.layers, func(l manifestLayer) bool { return l.id == beside })
		if at < 0 || !fits(m) {
			return errLayersMoved
		}
		for i := range m.layers {
			l := &m.layers[i]
			l.companions = slices.DeleteFunc(l.companions, func(c manifestLayer) bool { return c.kind == added.kind && !keeps(l.id) })
		}
		m.layers[at].companions = append(m.layers[at].companions, added)
		r := registration{pool: pool, kind: added.kind}
		b.Put(registrationKey(added.id), r.encode())
		return nil
	})
	if err != nil {
		return errors.Join(err, s.removeUnregistered(context.WithoutCancel(ctx), added))
	}
	s.settle(context.WithoutCancel(ctx), []string{added.kind.FileName(added.id)})
	return nil
}

// removeUnregistered removes the file of a companion, unless it turns out to be registered.
func (s *Store) removeUnregistered(ctx context.Context, c manifestLayer) error {
	if _, err := s.keys.Get(ctx, registrationKey(c.id)); !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	return s.files.Delete(ctx, c.kind.FileName(c.id))
}
