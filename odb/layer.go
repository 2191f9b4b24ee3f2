package odb

import (
	"context"
	"io"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// layer is a place where objects of a pool lie. Implementations: hotLayer, SegmentLayer, and in a
// quarantine memoryLayer and pendingSegment. Locations and entries go back to the layer that they
// came from.
type layer interface {
	layerID() segment.LayerID
	// find returns where the layer holds id, or false.
	find(ctx context.Context, id object.ID) (Location, bool, error)
	// scan calls visit with the IDs from low to high, both included, in order, until visit returns
	// false.
	scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error
	// stat tells the type and size of the object.
	stat(ctx context.Context, at Location) (Info, error)
	// entry tells how the object is stored.
	entry(ctx context.Context, at Location) (StoredEntry, error)
	// graph returns the graph row of a commit, or false if the layer holds none.
	graph(ctx context.Context, id object.ID) (GraphRow, bool, error)

	// step tells what a read needs to know of an entry before it is inflated.
	step(ctx context.Context, at Location) (step, error)
	// content returns what an entry of at most segment.WholeMax bytes inflates to: the object, or a
	// delta. It may be shared.
	content(ctx context.Context, at Location) ([]byte, error)
	// stream returns the same as a stream, for any size. At its end it has been verified; before, it
	// may be wrong.
	stream(ctx context.Context, at Location) (io.ReadCloser, error)

	// copyPayload writes the compressed bytes of an entry to w, as [View.CopyPacked] says.
	copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error
}

// Location is where an object lies: in a layer, at an ordinal of its index or with the value that
// was found.
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
	// Delta says that a base follows: at BaseOrdinal in the same segment, or else wherever the object
	// Base lies.
	Delta       bool
	BaseOrdinal uint32
	Base        object.ID
}

// key names the location in the cache; false when what lies there is not to be cached.
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

// Segment returns the segment that holds the object, and its ordinal there; false when it lies
// elsewhere.
func (at *Location) Segment() (l *SegmentLayer, ordinal uint32, ok bool) {
	l, ok = at.layer.(*SegmentLayer)
	return l, at.ordinal, ok
}

// StoredSize is the size in bytes of what is stored of an object outside segments; 0 when it was
// not read.
func (at *Location) StoredSize() int { return len(at.value) }

// Stat returns the object's type and size. Errors: [ErrCorrupt].
func (at *Location) Stat(ctx context.Context) (Info, error) { return at.layer.stat(ctx, *at) }
