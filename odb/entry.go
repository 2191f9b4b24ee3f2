package odb

import (
	"context"
	"io"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Encoding says how the bytes of a stored entry are compressed. The numbers are stored.
type Encoding uint8

const (
	// EncodingZlib is a zlib stream, as packs hold it: it can be sent as it is.
	EncodingZlib Encoding = 0
	// EncodingZstd is a zstd frame: what the API wrote into the hot tier.
	EncodingZstd Encoding = 1
	// EncodingRaw is not compressed.
	EncodingRaw Encoding = 2
)

// StoredEntry is an object as it is stored: what a pack generator copies instead of computing it.
// It stays valid while the view that returned it is open.
type StoredEntry struct {
	ID   object.ID
	Type object.Type // of the object, also when the entry is a delta
	Size int64       // of the object, in bytes
	// Base is the object that a delta applies to, zero for a whole entry. A segment's delta has its
	// base in the same segment.
	Base     object.ID
	Encoding Encoding
	// ContentSize is what the stored bytes inflate to: Size, or the size of the delta.
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

// Content returns what the stored bytes inflate to, at most segment.WholeMax bytes: the object, or
// a delta. It may be shared. Errors: [ErrTooLarge], [ErrCorrupt].
func (e *StoredEntry) Content(ctx context.Context) ([]byte, error) {
	return e.at.layer.content(ctx, e.at)
}

// Entry returns how the object of id is stored. When several layers hold it, any of them may
// answer. Errors: [ErrNotFound], [ErrCorrupt].
func (v *View) Entry(ctx context.Context, id object.ID) (StoredEntry, error) {
	at, err := v.Find(ctx, id)
	if err != nil {
		return StoredEntry{}, err
	}
	return at.layer.entry(ctx, at)
}

// CopyPacked writes the compressed bytes of e to w, encoded as e says; the caller has written the
// header of the pack entry.
//
// Up to 1 MiB the checksum is verified before the first byte is written; beyond, the bytes pass
// through and an error at the end says that they must not be used. Errors: [ErrCorrupt].
func (v *View) CopyPacked(ctx context.Context, w io.Writer, e *StoredEntry) error {
	return e.at.layer.copyPayload(ctx, w, e)
}
