package odb

import (
	"context"
	"io"

	"packhorse/odb/segment"
)

// packedEntry describes an entry of a data region, without the ID of its base. The facts from the
// entry's header are verified when the entry itself is read.
func packedEntry(ctx context.Context, d segment.Region, at Location, r segment.Record) (StoredEntry, error) {
	header, headerSize, err := d.Head(ctx, r, at.id)
	if err != nil {
		return StoredEntry{}, err
	}
	return StoredEntry{
		ID:          at.id,
		Type:        r.Type,
		Size:        r.Size,
		Encoding:    EncodingZlib,
		ContentSize: header.Size,
		PayloadSize: r.PackedSize - headerSize,
		Layer:       d.Layer,
		Ordinal:     at.ordinal,
		at:          at,
		record:      r,
	}, nil
}

// packedStep returns the facts about an entry of a data region that a delta chain needs. For a
// delta ContentSize is a bound: a delta is never read from an entry that is larger than deflate can
// make it.
func packedStep(r segment.Record) step {
	s := step{Info: Info{Type: r.Type, Size: r.Size}, ContentSize: r.Size, BaseOrdinal: r.Base}
	if r.Base != segment.NoOrdinal {
		s.Delta, s.ContentSize = true, r.PackedSize
	}
	return s
}

// copyPackedPayload writes the compressed bytes of an entry of a data region, see
// [View.CopyPacked].
func copyPackedPayload(ctx context.Context, w io.Writer, d segment.Region, e *StoredEntry) error {
	return d.CopyPacked(ctx, w, e.record, e.ID, e.record.PackedSize-e.PayloadSize)
}
