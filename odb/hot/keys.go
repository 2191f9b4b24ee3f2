package hot

import (
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// The tables of hot layers: the first byte of every key. IDs follow as raw bytes.
const (
	TableObject = 'o' // layer, object ID -> value
	TableGraph  = 'g' // layer, object ID -> graph row of a commit
	TableFilter = 'f' // layer, object ID -> path filter of a commit
)

// Tables are the tables whose keys end in an object ID under a layer.
var Tables = []byte{TableObject, TableGraph, TableFilter}

// ObjectKey returns the key of an object's value.
func ObjectKey(layer segment.LayerID, id object.ID) []byte { return Key(TableObject, layer, id) }

// GraphKey returns the key of a commit's graph row.
func GraphKey(layer segment.LayerID, id object.ID) []byte { return Key(TableGraph, layer, id) }

// FilterKey returns the key of a commit's path filter.
func FilterKey(layer segment.LayerID, id object.ID) []byte { return Key(TableFilter, layer, id) }

// Key returns the key of an object in one of [Tables].
func Key(table byte, layer segment.LayerID, id object.ID) []byte {
	key := make([]byte, 0, 1+len(layer)+len(id))
	key = append(key, table)
	key = append(key, layer[:]...)
	return append(key, id[:]...)
}

// Range returns the keys of a table under one layer.
func Range(table byte, layer segment.LayerID) kv.ScanOptions {
	prefix := append([]byte{table}, layer[:]...)
	return kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}
}

// Delete adds the deletion of all rows of a layer to b.
func Delete(b *kv.Batch, layer segment.LayerID) {
	for _, table := range append([]byte{TableAdditions}, Tables...) {
		rows := Range(table, layer)
		b.DeleteRange(rows.Start, rows.End)
	}
}

// LayerOfKey returns the layer of a key of one of [Tables] or of [TableAdditions].
func LayerOfKey(key []byte) (segment.LayerID, bool) {
	const idSize = len(segment.LayerID{})
	ok := len(key) == 1+idSize+object.IDSize
	if len(key) > 0 && key[0] == TableAdditions {
		ok = len(key) == 1+idSize || len(key) == 1+idSize+8+idSize
	}
	if !ok {
		return segment.LayerID{}, false
	}
	return segment.LayerID(key[1:]), true
}

// IDOfKey returns the object ID that ends a key of one of [Tables].
func IDOfKey(key []byte) (object.ID, bool) {
	if len(key) != 1+len(segment.LayerID{})+object.IDSize {
		return object.ZeroID, false
	}
	return object.ID(key[1+len(segment.LayerID{}):]), true
}
