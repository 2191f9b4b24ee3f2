package odb

import (
	"github.com/google/uuid"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// PoolID names a pool. It is a UUID of version 7: IDs sort by creation and are never reused.
type PoolID [16]byte

// NewPoolID returns a new ID. It panics only when the system has no random numbers; crypto/rand
// panics then, too.
func NewPoolID() PoolID { return PoolID(uuid.Must(uuid.NewV7())) }

// String returns the canonical form of the UUID.
func (p PoolID) String() string { return uuid.UUID(p).String() }

// CreatePool adds a new, empty pool to b: a manifest with one hot layer, and the layer's user key.
// The pool exists when b is committed.
func (s *Store) CreatePool(b *kv.Batch) PoolID {
	pool, hot := NewPoolID(), segment.NewLayerID()
	m := manifest{version: 1, layers: []manifestLayer{{kind: segment.KindHot, id: hot}}}
	b.RequireAbsent(manifestKey(pool))
	b.Put(manifestKey(pool), m.encode(pool))
	m.use(b, pool)
	return pool
}
