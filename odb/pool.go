package odb

import (
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"

	"packhorse/odb/kv"
)

// PoolID names a pool. IDs are UUIDs of version 7: they sort by creation and are never used again.
type PoolID [16]byte

// LayerID names a layer, and the file of a segment or a companion. IDs are UUIDs of version 7 and are never used again.
type LayerID [16]byte

// NewPoolID returns an ID that was never used.
func NewPoolID() PoolID { return PoolID(newUUID()) }

// String returns the canonical form of the UUID.
func (p PoolID) String() string { return uuid.UUID(p).String() }

// String returns the 32 hexadecimal digits that begin the names of the layer's files.
func (l LayerID) String() string { return hex.EncodeToString(l[:]) }

// newUUID panics only when the system has no random numbers, which crypto/rand does not survive either.
func newUUID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func newLayerID() LayerID { return LayerID(newUUID()) }

// CreatePool adds a new, empty pool to b: a manifest with one hot layer, and the layer's user key. The pool exists when b is committed.
func (s *Store) CreatePool(b *kv.Batch) PoolID {
	pool, hot := NewPoolID(), newLayerID()
	m := manifest{version: 1, layers: []manifestLayer{{kind: layerHot, id: hot}}}
	b.RequireAbsent(manifestKey(pool))
	b.Put(manifestKey(pool), m.encode(pool))
	m.use(b, pool)
	return pool
}

// Names of files: the layer's ID in hexadecimal and what the file is.
const (
	segmentSuffix  = ".segment"
	graphSuffix    = ".graph"
	filterSuffix   = ".filter"
	bitmapSuffix   = ".bitmap"
	borrowedSuffix = ".borrowed"
)

func segmentFile(layer LayerID) string   { return layer.String() + segmentSuffix }
func graphFile(companion LayerID) string { return companion.String() + graphSuffix }

// layerOfFile returns the ID in the name of a file of this package.
func layerOfFile(name string) (LayerID, bool) {
	var id LayerID
	if len(name) <= 2*len(id) {
		return id, false
	}
	digits, suffix := name[:2*len(id)], name[2*len(id):]
	switch suffix {
	case segmentSuffix, graphSuffix, filterSuffix, bitmapSuffix, borrowedSuffix:
	default:
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return LayerID{}, false
	}
	return id, true
}

// fileName returns the file of a layer or companion of that kind.
func (k layerKind) fileName(id LayerID) string {
	switch k {
	case layerSegment:
		return segmentFile(id)
	case layerGraph:
		return graphFile(id)
	case layerFilter:
		return id.String() + filterSuffix
	case layerBitmap:
		return id.String() + bitmapSuffix
	case layerBorrowed:
		return id.String() + borrowedSuffix
	default:
		panic(fmt.Sprintf("odb: layer kind %d has no file", k))
	}
}
