package odb

import (
	"context"

	"packhorse/pack/object"
)

// recordReader reads index records of a segment in any order. The blocks that it touched last stay at hand, 4 MiB at most, so that the cache
// is not asked for every record. For one goroutine.
type recordReader struct {
	segment *segment
	held    [64]heldBlock
}

type heldBlock struct {
	data   []byte
	number int
}

func newRecordReader(g *segment) *recordReader { return &recordReader{segment: g} }

// item returns the bytes of a record.
func (r *recordReader) item(ctx context.Context, ordinal uint32) ([]byte, error) {
	const perBlock = blockSizeMax / recordSize
	if int(ordinal) >= r.segment.count {
		return r.segment.item(ctx, sectionRecords, int(ordinal)) // which knows the error
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

func (r *recordReader) record(ctx context.Context, ordinal uint32) (segmentRecord, error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return segmentRecord{}, err
	}
	return r.segment.parseRecord(item, ordinal)
}

// offset returns where the entry of a record lies.
func (r *recordReader) offset(ctx context.Context, ordinal uint32) (int64, error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return 0, err
	}
	return uint40(item), nil
}

// info returns the type and the size of an object, and the size of its entry.
func (r *recordReader) info(ctx context.Context, ordinal uint32) (t object.Type, size, packedSize int64, err error) {
	item, err := r.item(ctx, ordinal)
	if err != nil {
		return 0, 0, 0, err
	}
	return object.Type(item[15] & recordTypeMask), uint40(item[10:]), uint40(item[5:]), nil
}
