package segment

import (
	"context"

	"packhorse/pack/object"
)

// RecordReader reads index records of a segment in any order. It keeps the last used blocks, at
// most 4 MiB, so that it does not consult the cache for every record. It is for one goroutine.
type RecordReader struct {
	segment Segment
	held    [64]heldBlock
}

type heldBlock struct {
	data   []byte
	number int
}

// NewRecordReader returns a reader of the records of g.
func NewRecordReader(g Segment) *RecordReader { return &RecordReader{segment: g} }

// item returns the bytes of a record.
func (r *RecordReader) item(ctx context.Context, ordinal uint32) ([]byte, error) {
	const perBlock = BlockSizeMax / recordSize
	if int(ordinal) >= r.segment.Count {
		return r.segment.Item(ctx, sectionRecords, int(ordinal)) // which knows the error
	}
	n := int(ordinal) / perBlock
	held := &r.held[n%len(r.held)]
	if held.data == nil || held.number != n {
		data, err := r.segment.block(ctx, sectionRecords, n)
		if err != nil {
			return nil, err
		}
		*held = heldBlock{data, n}
	}
	at := (int(ordinal) - n*perBlock) * recordSize
	return held.data[at : at+recordSize], nil
}

// Record returns the record at an ordinal.
func (r *RecordReader) Record(ctx context.Context, ordinal uint32) (Record, error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return Record{}, err
	}
	return r.segment.parseRecord(item, ordinal)
}

// Offset returns the offset in the data region of the entry at an ordinal.
func (r *RecordReader) Offset(ctx context.Context, ordinal uint32) (int64, error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return 0, err
	}
	return uint40(item), nil
}

// Info returns the type and the size of the object at an ordinal, and the size of its entry, both
// in bytes.
func (r *RecordReader) Info(ctx context.Context, ordinal uint32) (t object.Type, size, packedSize int64, err error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return 0, 0, 0, err
	}
	return object.Type(item[15] & recordTypeMask), uint40(item[10:]), uint40(item[5:]), nil
}
