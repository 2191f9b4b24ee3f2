package odb

import (
	"context"
	"io"
	"iter"

	"packhorse/pack/object"
)

// Read returns an object whole, as a slice that is shared and only to be read. Errors: [ErrNotFound]; [ErrTooLarge] above 32 MiB, where
// [View.Open] is to be used; [ErrCorrupt].
func (v *View) Read(ctx context.Context, id object.ID) (object.Type, []byte, error) {
	return 0, nil, errUnfinished
}

// Open returns an object of any size as a stream. The caller closes it before the view.
func (v *View) Open(ctx context.Context, id object.ID) (*Object, error) { return nil, errUnfinished }

// Resolve returns up to 16 readable IDs that begin with the hexadecimal digits of prefix, in order.
func (v *View) Resolve(ctx context.Context, prefix string) ([]object.ID, error) {
	return nil, errUnfinished
}

// Object is an open object.
type Object struct {
	Type object.Type
	Size int64
}

// WriteTo writes the whole content. An error, also one after the last byte, says that what was written must not be used.
func (o *Object) WriteTo(w io.Writer) (int64, error) { return 0, errUnfinished }

// Section returns n bytes from off on as a stream. Of a block stream only the blocks that are touched are read.
func (o *Object) Section(off, n int64) io.Reader { return nil }

// Close releases the object.
func (o *Object) Close() error { return nil }

// Write quarantines an object and returns its ID. It is stored as a delta against predecessor (zero: none), the version of the same path
// that it follows, when that is smaller. What the pool already has is not written again. data is only read.
func (q *Quarantine) Write(ctx context.Context, t object.Type, data []byte, predecessor object.ID) (object.ID, error) {
	return object.ZeroID, errUnfinished
}

// WriteBlobFrom quarantines a blob of size bytes read from r, in bounded memory.
func (q *Quarantine) WriteBlobFrom(ctx context.Context, r io.Reader, size int64) (object.ID, error) {
	return object.ZeroID, errUnfinished
}

// segment is an open segment file; it is valid until released. IDs are sorted; the ordinal of an object is its index among them, its
// position is its index among the entries of the data region.
type segment struct{ count int }

// segments returns the segments of a view, newest first, and those of its quarantine before them.
func (v *View) segments() []*segmentLayer { return nil }

// acquire opens the segment's file, unless it is open, and keeps it open until release.
func (l *segmentLayer) acquire(ctx context.Context) (*segment, error) { return nil, errUnfinished }
func (l *segmentLayer) release(g *segment)                            {}

// lookup returns the ordinal of id.
func (g *segment) lookup(ctx context.Context, id object.ID) (ordinal uint32, ok bool, err error) {
	return 0, false, errUnfinished
}

// lookupMany calls visit for those of the sorted ids that the segment holds, in order.
func (g *segment) lookupMany(ctx context.Context, ids []object.ID, visit func(index int, ordinal uint32) error) error {
	return errUnfinished
}

// id returns the ID at an ordinal.
func (g *segment) id(ctx context.Context, ordinal uint32) (object.ID, error) {
	return object.ZeroID, errUnfinished
}

// record returns the index record at an ordinal.
func (g *segment) record(ctx context.Context, ordinal uint32) (segmentRecord, error) {
	return segmentRecord{}, errUnfinished
}

// inPackOrder walks the ordinals of the positions from first on, below end, as they lie in the data region.
func (g *segment) inPackOrder(ctx context.Context, first, end uint32) iter.Seq2[uint32, error] {
	return nil
}

// copyRun writes the entries at positions first to end-1 as they lie, headers included, every one verified.
func (g *segment) copyRun(ctx context.Context, w io.Writer, first, end uint32) (int64, error) {
	return 0, errUnfinished
}

// segmentRecord is what the index says of an object.
type segmentRecord struct {
	Offset     int64       // of the entry in the data region
	PackedSize int64       // of the entry, header included
	Size       int64       // of the object
	Type       object.Type // of the object
	Base       uint32      // ordinal of the delta base, or noOrdinal
	CRC32      uint32      // of the entry
}

type segmentLayer struct{}

func (l *segmentLayer) layerID() LayerID { return LayerID{} }
func (l *segmentLayer) find(context.Context, object.ID) (location, bool, error) {
	return location{}, false, errUnfinished
}

func (l *segmentLayer) entry(context.Context, location) (StoredEntry, error) {
	return StoredEntry{}, errUnfinished
}

func (l *segmentLayer) graph(context.Context, location) (GraphRow, bool, error) {
	return GraphRow{}, false, errUnfinished
}

func (l *segmentLayer) payload(context.Context, []byte, *StoredEntry) ([]byte, error) {
	return nil, errUnfinished
}

func (l *segmentLayer) copyPayload(context.Context, io.Writer, *StoredEntry) error {
	return errUnfinished
}

func (l *segmentLayer) scan(context.Context, object.ID, object.ID, func(object.ID) bool) error {
	return errUnfinished
}

type memoryLayer struct{ segmentLayer }
type pendingSegment struct{ segmentLayer }

func newMemoryLayer() *memoryLayer { return &memoryLayer{} }

type cache struct{}

func newCache(int64) (*cache, error)                 { return &cache{}, nil }
func (c *cache) stats() (bytes, hits, misses uint64) { return 0, 0, 0 }

type layerSet struct{}

func newLayerSet(*Store, int) *layerSet     { return &layerSet{} }
func (s *layerSet) close() error            { return nil }
func (s *layerSet) openFileCount() int      { return 0 }
func (s *layerSet) pin(manifestLayer) layer { return &segmentLayer{} }
func (s *layerSet) unpin(layer)             {}

// FsckOptions are the settings of [Store.Fsck].
type FsckOptions struct {
	// Tips must be there, and whatever they reach.
	Tips []object.ID
	// Progress hears of what has been done.
	Progress func(done, total int64)
}

// FsckReport is what [Store.Fsck] found.
type FsckReport struct {
	ObjectCount int64
	Problems    []error
}

// Fsck verifies everything in a pool: checksums, ids, formats and links of every object, and index against data.
func (s *Store) Fsck(ctx context.Context, pool PoolID, options FsckOptions) (*FsckReport, error) {
	return nil, errUnfinished
}
