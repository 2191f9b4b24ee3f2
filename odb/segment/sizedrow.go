package segment

import (
	"context"
	"encoding/binary"
	"fmt"
)

// SizedRowSize is the size in bytes of a row that says where the value of an ID lies in a section
// of single bytes.
//
//	8 offset | 4 size in bytes
const SizedRowSize = 8 + 4

func sizedRow(offset uint64, size int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, offset), uint32(size))
}

// sized returns the value of the ID at an ordinal, shared and read-only. It is never empty. Errors:
// [ErrCorrupt].
func (g *File) sized(ctx context.Context, rows, values SectionKind, index uint32) ([]byte, error) {
	item, err := g.Item(ctx, rows, int(index))
	if err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(item[8:]))
	if size == 0 {
		return nil, g.Damaged(fmt.Errorf("%w: value %d of section %d is empty", ErrFormat, index, rows))
	}
	return g.Bytes(ctx, values, int64(binary.BigEndian.Uint64(item)&(1<<62-1)), size)
}
