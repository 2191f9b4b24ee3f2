package hot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"packhorse/odb/bloom"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// castagnoli is the polynomial of the checksums in the key-value store.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// appendSum appends the CRC-32C of an ID and of value to value.
func appendSum(id object.ID, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(id[:], value))
}

// checked returns value without its checksum, false if that is wrong.
func checked(id object.ID, value []byte) ([]byte, bool) {
	body := len(value) - sumSize
	if body < 0 || sum(id[:], value[:body]) != binary.BigEndian.Uint32(value[body:]) {
		return nil, false
	}
	return value[:body], true
}

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// EncodeRow returns the stored form of a graph row: the row and, as in a value, the CRC-32C of the
// ID and of the row.
func EncodeRow(id object.ID, row *segment.GraphRow) []byte { return appendSum(id, row.Append(nil)) }

// DecodeRow decodes the graph row stored for id. Errors: [segment.ErrFormat].
func DecodeRow(id object.ID, value []byte) (segment.GraphRow, error) {
	body, ok := checked(id, value)
	if !ok {
		return segment.GraphRow{}, fmt.Errorf("%w: graph row fails its checksum", segment.ErrFormat)
	}
	return segment.DecodeGraphRow(body)
}

// EncodeFilter returns the stored form of a path filter: the filter and, as in a value, the CRC-32C
// of the ID and of the filter.
func EncodeFilter(id object.ID, f bloom.Filter) []byte {
	return appendSum(id, append(make([]byte, 0, len(f)+sumSize), f...))
}

// DecodeFilter decodes the path filter stored for id; it points into value. Errors:
// [segment.ErrFormat].
func DecodeFilter(id object.ID, value []byte) (bloom.Filter, error) {
	body, ok := checked(id, value)
	if !ok || len(body) == 0 {
		return nil, fmt.Errorf("%w: path filter fails its checksum", segment.ErrFormat)
	}
	return bloom.Filter(body), nil
}
