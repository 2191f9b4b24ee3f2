package odb

import (
	"context"
	"io"

	"packhorse/pack/object"
)

// layer is a place where objects of a pool lie. Implementations: hotLayer, segmentLayer, and in a quarantine memoryLayer and
// pendingSegment.
type layer interface {
	layerID() LayerID
	// find returns where the layer holds id, or false.
	find(ctx context.Context, id object.ID) (location, bool, error)
	// entry describes what lies at a location of this layer.
	entry(ctx context.Context, at location) (StoredEntry, error)
	// graph returns the graph row of a commit that lies at a location of this layer, or false if it holds none.
	graph(ctx context.Context, at location) (GraphRow, bool, error)
	// payload appends the compressed bytes of an entry of this layer to dst, verified.
	payload(ctx context.Context, dst []byte, e *StoredEntry) ([]byte, error)
	// copyPayload writes the compressed bytes of an entry of this layer to w, as [View.copyPacked] says.
	copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error
	// scan calls visit with the IDs from low to high, both included, in order, until visit returns false.
	scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error
}

// location is where an object lies: in a layer, at an ordinal of its index or with the value that was found.
type location struct {
	layer   layer
	id      object.ID
	ordinal uint32
	value   []byte // of a hot layer
}
