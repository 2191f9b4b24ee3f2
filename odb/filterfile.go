package odb

import (
	"context"
	"encoding/binary"
	"fmt"

	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// A filter companion is a sectioned file whose IDs are the commits of a segment, with the place of a path filter for each:
//
//	8 offset | 4 size in bytes
const filterRowSize = 8 + 4

// bloom.Filter returns the path filter of a commit, or false if the file holds none. It is shared and only to be read.
func (g *sectionFile) pathFilter(ctx context.Context, commit object.ID) (bloom.Filter, bool, error) {
	index, ok, err := g.lookup(ctx, commit)
	if !ok || err != nil {
		return nil, false, err
	}
	f, err := g.pathFilterAt(ctx, index)
	return f, err == nil, err
}

func (g *sectionFile) pathFilterAt(ctx context.Context, index uint32) (bloom.Filter, error) {
	item, err := g.item(ctx, sectionFilterRows, int(index))
	if err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(item[8:]))
	if size == 0 {
		return nil, g.damaged(fmt.Errorf("%w: path filter %d is empty", errFormat, index))
	}
	return g.bytes(ctx, sectionFilterBytes, int64(binary.BigEndian.Uint64(item)&(1<<62-1)), size)
}

// writeFilters writes the sections of a filter companion over the commits of a graph companion, in whose order the filters are.
func writeFilters(ctx context.Context, sections *sectionWriter, rows *sectionFile, filters []bloom.Filter) (int, error) {
	sections.begin(sectionIDs)
	for i := range filters {
		id, err := rows.id(ctx, uint32(i))
		if err != nil {
			return 0, err
		}
		sections.add(id[:])
	}
	sections.addFanout(&rows.fanout)
	sections.begin(sectionFilterRows)
	offset := uint64(0)
	for _, f := range filters {
		sections.add(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, offset), uint32(len(f))))
		offset += uint64(len(f))
	}
	sections.begin(sectionFilterBytes)
	for _, f := range filters {
		sections.addBytes(f)
	}
	return len(filters), nil
}
