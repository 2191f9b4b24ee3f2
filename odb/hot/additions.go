package hot

import (
	"encoding/binary"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// TableAdditions holds what was added to layers, and when in their order:
//
//	layer                              number of additions 8 | CRC-32C 4
//	layer, number 8, row ID 16         the objects of this addition, 20 each | CRC-32C 4
//
// The checksums include the key. Numbers begin with 1. Layers of older releases, and those that
// came to be with all of their rows, have rows of neither form, or none for their first objects.
const TableAdditions = 'l'

// additionIDsMax bounds the objects of one row; an addition may have several.
const additionIDsMax = 4096

// CountKey returns the key of the number of additions to a layer.
func CountKey(layer segment.LayerID) []byte {
	return append([]byte{TableAdditions}, layer[:]...)
}

// DecodeCount returns the number of additions to a layer from the stored value of its
// [CountKey], nil when there is none. Errors: [segment.ErrFormat].
func DecodeCount(layer segment.LayerID, value []byte) (uint64, error) {
	if value == nil {
		return 0, nil
	}
	body, ok := checkedRow(CountKey(layer), value)
	if !ok || len(body) != 8 {
		return 0, fmt.Errorf("%w: number of additions", segment.ErrFormat)
	}
	return binary.BigEndian.Uint64(body), nil
}

// Add adds to b the rows that say that it adds objects to a layer. before is the stored number of
// additions, nil if there is none; b requires it, and puts after. Batches that were prepared at the
// same number may be applied as one. Errors: [segment.ErrFormat] for a damaged number.
func Add(b *kv.Batch, layer segment.LayerID, before []byte, ids []object.ID) (after []byte, err error) {
	count, err := DecodeCount(layer, before)
	if err != nil {
		return nil, err
	}
	key := CountKey(layer)
	if before == nil {
		b.RequireAbsent(key)
	} else {
		b.Require(key, before)
	}
	after = appendRowSum(key, binary.BigEndian.AppendUint64(nil, count+1))
	b.Put(key, after)
	for len(ids) > 0 {
		n := min(len(ids), additionIDsMax)
		key, row := additionKey(layer, count+1), segment.NewLayerID()
		key = append(key, row[:]...)
		value := make([]byte, 0, n*object.IDSize+sumSize)
		for _, id := range ids[:n] {
			value = append(value, id[:]...)
		}
		b.Put(key, appendRowSum(key, value))
		ids = ids[n:]
	}
	return after, nil
}

func additionKey(layer segment.LayerID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(CountKey(layer), number)
}

// additionsAfter returns the keys of the additions with higher numbers than that.
func additionsAfter(layer segment.LayerID, number uint64) kv.ScanOptions {
	return kv.ScanOptions{Start: additionKey(layer, number+1), End: kv.PrefixEnd(CountKey(layer))}
}

// Additions returns the keys of all rows of [TableAdditions] under a layer.
func Additions(layer segment.LayerID) kv.ScanOptions { return Range(TableAdditions, layer) }

// DecodeAddition returns the number of an addition, and objects of it, as the stored bytes of their
// IDs. A row with the number of additions is one of number 0, without objects. Errors:
// [segment.ErrFormat].
func DecodeAddition(key, value []byte) (number uint64, ids []byte, err error) {
	head := 1 + len(segment.LayerID{})
	body, ok := checkedRow(key, value)
	switch {
	case !ok:
		return 0, nil, fmt.Errorf("%w: row of additions fails its checksum", segment.ErrFormat)
	case len(key) == head && len(body) == 8:
		return 0, nil, nil
	case len(key) != head+8+len(segment.LayerID{}) || len(body) == 0 || len(body)%object.IDSize != 0:
		return 0, nil, fmt.Errorf("%w: row of additions", segment.ErrFormat)
	}
	return binary.BigEndian.Uint64(key[head:]), body, nil
}

func appendRowSum(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(key, value))
}

func checkedRow(key, value []byte) ([]byte, bool) {
	body := len(value) - sumSize
	if body < 0 || sum(key, value[:body]) != binary.BigEndian.Uint32(value[body:]) {
		return nil, false
	}
	return value[:body], true
}
