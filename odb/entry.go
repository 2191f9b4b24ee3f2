package odb

import (
	"context"
	"io"

	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Encoding is the compression of the bytes of a stored entry.
type Encoding = hot.Encoding

// The encodings.
const (
	EncodingZlib = hot.EncodingZlib
	EncodingZstd = hot.EncodingZstd
	EncodingRaw  = hot.EncodingRaw
)

// HotValue is an object as the hot tier stores it.
type HotValue = hot.Value

// StoredEntry is the stored form of an object, which a pack generator copies instead of computing
// it. It stays valid while the view that returned it is open.
type StoredEntry struct {
	ID   object.ID
	Type object.Type // of the object, also when the entry is a delta
	Size int64       // of the object, in bytes
	// Base is the object that a delta applies to, zero for a whole entry. A segment's delta has its
	// base in the same segment.
	Base     object.ID
	Encoding Encoding
	// ContentSize is the inflated size: Size, or the size of the delta.
	ContentSize int64
	// PayloadSize is the size of the compressed bytes, without the header of a pack entry.
	PayloadSize int64
	Layer       segment.LayerID
	// Ordinal is the index among the sorted IDs of a segment; segment.NoOrdinal elsewhere.
	Ordinal uint32

	at     Location
	record segment.Record // of an entry in a data region
	value  HotValue       // of a hot entry
}

// Delta reports whether the entry is a delta against Base.
func (e *StoredEntry) Delta() bool { return !e.Base.IsZero() }

// Content returns the inflated bytes, at most segment.WholeMax: the object, or a delta. They may be
// shared. Errors: [ErrTooLarge], [ErrCorrupt].
func (e *StoredEntry) Content(ctx context.Context) ([]byte, error) {
	return e.at.layer.content(ctx, e.at, nil)
}

// Entry returns the stored form of the object id. If it is a duplicate, any of its layers may
// answer. Errors: [ErrNotFound], [ErrCorrupt].
func (v *View) Entry(ctx context.Context, id object.ID) (StoredEntry, error) {
	at, err := v.Find(ctx, id)
	if err != nil {
		return StoredEntry{}, err
	}
	return at.Entry(ctx)
}

// Entry returns the stored form of the object. Errors: [ErrCorrupt].
func (at *Location) Entry(ctx context.Context) (StoredEntry, error) { return at.layer.entry(ctx, *at) }

// CopyPacked writes the compressed bytes of e to w, in the encoding of e. The caller has written
// the header of the pack entry.
//
// Up to 1 MiB it verifies the checksum before it writes the first byte. Beyond, it writes while it
// reads, and an error at the end says that the bytes must not be used. Errors: [ErrCorrupt].
func (v *View) CopyPacked(ctx context.Context, w io.Writer, e *StoredEntry) error {
	return e.at.layer.copyPayload(ctx, w, e)
}
