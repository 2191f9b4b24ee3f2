package segment

import (
	"encoding/binary"
	"fmt"
	"slices"

	"packhorse/pack/object"
)

// GraphRow holds the fields of a commit that a walk over history needs.
type GraphRow struct {
	Tree    object.ID
	Parents []object.ID // in stored order; shared, read only
	// Seconds is the committer date of the commit, in seconds since 1970.
	Seconds int64
	// Generation is one more than the highest generation of the parents. 0 means unknown. It
	// saturates.
	Generation uint32
}

// ParseGraphRow returns the row of a commit with the content data. Its generation is unknown.
func ParseGraphRow(data []byte) (GraphRow, error) {
	tree, parents, seconds, err := object.CommitLinks(data)
	if err != nil {
		return GraphRow{}, fmt.Errorf("read commit: %w", err)
	}
	return GraphRow{Tree: tree, Parents: parents, Seconds: seconds}, nil
}

// NextGeneration returns the generation of a commit whose parents have the given ones: 0 if one of
// them is unknown.
func NextGeneration(parents []uint32) uint32 {
	highest := uint32(0)
	for _, g := range parents {
		if g == 0 {
			return 0
		}
		highest = max(highest, g)
	}
	if highest == ^uint32(0) {
		return highest
	}
	return highest + 1
}

// A row as bytes, under key g and in auxiliary files:
//
//	20       tree
//	8        seconds, signed
//	4        generation
//	20 each  parents
const graphRowSize = object.IDSize + 8 + 4

// Append appends the stored form of the row to dst.
func (row *GraphRow) Append(dst []byte) []byte {
	dst = append(dst, row.Tree[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.Seconds))
	dst = binary.BigEndian.AppendUint32(dst, row.Generation)
	for _, parent := range row.Parents {
		dst = append(dst, parent[:]...)
	}
	return dst
}

// DecodeGraphRow decodes the output of [GraphRow.Append].
func DecodeGraphRow(data []byte) (GraphRow, error) {
	if len(data) < graphRowSize || (len(data)-graphRowSize)%object.IDSize != 0 {
		return GraphRow{}, fmt.Errorf("%w: graph row of %d bytes", ErrFormat, len(data))
	}
	row := GraphRow{
		Tree:       object.ID(data[:object.IDSize]),
		Seconds:    int64(binary.BigEndian.Uint64(data[object.IDSize:])),
		Generation: binary.BigEndian.Uint32(data[object.IDSize+8:]),
	}
	row.Parents = make([]object.ID, 0, (len(data)-graphRowSize)/object.IDSize)
	for rest := data[graphRowSize:]; len(rest) > 0; rest = rest[object.IDSize:] {
		row.Parents = append(row.Parents, object.ID(rest))
	}
	return row, nil
}

// Equal reports whether two rows are equal.
func (row *GraphRow) Equal(other *GraphRow) bool {
	return row.Tree == other.Tree && row.Seconds == other.Seconds && row.Generation == other.Generation &&
		slices.Equal(row.Parents, other.Parents)
}
