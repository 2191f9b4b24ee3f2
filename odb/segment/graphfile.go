package segment

import (
	"context"
	"encoding/binary"
	"fmt"

	"packhorse/pack/object"
)

// A graph file is a sectioned file whose IDs are the commits of a segment, with a row for each:
//
//	20 tree | 8 seconds | 4 generation | 4 index of the first parent among the parents | 4 parent count
const graphItemSize = object.IDSize + 8 + 4 + 4 + 4

// GraphRow returns the row of a commit, or false if the file does not hold it.
func (g *File) GraphRow(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	ordinal, ok, err := g.Lookup(ctx, id)
	if !ok || err != nil {
		return GraphRow{}, false, err
	}
	row, err := g.GraphRowAt(ctx, ordinal)
	return row, err == nil, err
}

// GraphRowAt returns the row at an ordinal.
func (g *File) GraphRowAt(ctx context.Context, ordinal uint32) (GraphRow, error) {
	item, err := g.Item(ctx, sectionRows, int(ordinal))
	if err != nil {
		return GraphRow{}, err
	}
	row := GraphRow{
		Tree:       object.ID(item),
		Seconds:    int64(binary.BigEndian.Uint64(item[20:])),
		Generation: binary.BigEndian.Uint32(item[28:]),
	}
	first, count := int(binary.BigEndian.Uint32(item[32:])), int(binary.BigEndian.Uint32(item[36:]))
	if total := g.sections[sectionParents].count(); first > total || count > total-first {
		return GraphRow{}, g.Damaged(fmt.Errorf("%w: impossible row %d", ErrFormat, ordinal))
	}
	row.Parents = make([]object.ID, count)
	for i := range row.Parents {
		parent, err := g.Item(ctx, sectionParents, first+i)
		if err != nil {
			return GraphRow{}, err
		}
		row.Parents[i] = object.ID(parent)
	}
	return row, nil
}
