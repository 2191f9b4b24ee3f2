package odb

import (
	"context"
	"io"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// layer is a place where objects of a pool lie. Implementations: hotLayer, SegmentLayer, and in a
// quarantine memoryLayer and pendingSegment. Locations and entries must be passed to the layer that
// returned them.
type layer interface {
	layerID() segment.LayerID
	// find returns the location of id in the layer, or false.
	find(ctx context.Context, id object.ID) (Location, bool, error)
	// scan calls visit with the IDs from low to high, both included, in order, until visit returns
	// false.
	scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error
	// stat returns the type and size of the object.
	stat(ctx context.Context, at Location) (Info, error)
	// entry returns the stored form of the object.
	entry(ctx context.Context, at Location) (StoredEntry, error)
	// graph returns the graph row of a commit, or false if the layer holds none.
	graph(ctx context.Context, id object.ID) (GraphRow, bool, error)

	// step returns the facts about an entry that a read needs before it inflates it.
	step(ctx context.Context, at Location) (step, error)
	// content returns the inflated bytes of an entry, at most segment.WholeMax: the object, or a
	// delta. They may be shared. With a buffer they may lie there, which grows if need be.
	content(ctx context.Context, at Location, buffer *[]byte) ([]byte, error)
	// stream returns the same as a stream, for any size. The bytes are verified only at its end.
	stream(ctx context.Context, at Location) (io.ReadCloser, error)

	// copyPayload writes the compressed bytes of an entry to w, as [View.CopyPacked] says.
	copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error
}

// firstHot returns the place of the first hot layer among the stored ones of a view, which stands
// behind the segments; without one their number.
func firstHot(stored []layer) int {
	for i, l := range stored {
		if _, ok := l.(*hotLayer); ok {
			return i
		}
	}
	return len(stored)
}

// Location is the place of an object: a layer, and an ordinal of its index or the value found
// there.
type Location struct {
	layer   layer
	id      object.ID // zero for a base that is known by its ordinal alone
	ordinal uint32    // segment.NoOrdinal outside sealed segments
	value   []byte    // of a hot layer
}

// step is an entry in a delta chain.
type step struct {
	Info
	ContentSize int64
	// Delta says that the entry has a base: at BaseOrdinal in the same segment, or else the object
	// Base, wherever it lies.
	Delta       bool
	BaseOrdinal uint32
	Base        object.ID
}

// key returns the location's key in the cache; false when its object is not cached.
func (at *Location) key() (segment.CacheKey, bool) {
	switch at.layer.(type) {
	case *SegmentLayer:
		return segment.CacheKey{Layer: at.layer.layerID(), Block: at.ordinal}, true
	case *hotLayer:
		return hotCacheKey(at.layer.layerID(), at.id), true
	default:
		return segment.CacheKey{}, false
	}
}

func hotCacheKey(layer segment.LayerID, id object.ID) segment.CacheKey {
	return segment.CacheKey{Layer: layer, ID: id, Block: segment.NoOrdinal}
}

// Segment returns the segment that holds the object, and its ordinal there; false for an object in
// another layer.
func (at *Location) Segment() (l *SegmentLayer, ordinal uint32, ok bool) {
	l, ok = at.layer.(*SegmentLayer)
	return l, at.ordinal, ok
}

// StoredSize returns the size in bytes of the stored value of an unpacked object; 0 when it was not
// read.
func (at *Location) StoredSize() int { return len(at.value) }

// WithoutValue returns the location without the stored value of an unpacked object, which it keeps
// in memory. Whoever needs the value reads it again.
func (at *Location) WithoutValue() Location {
	brief := *at
	brief.value = nil
	return brief
}

// Stat returns the object's type and size. Errors: [ErrCorrupt].
func (at *Location) Stat(ctx context.Context) (Info, error) { return at.layer.stat(ctx, *at) }
