package odb

import (
	"encoding/binary"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// The tables of this package, beside those of package hot: the first byte of every key. IDs follow
// as raw bytes.
const (
	tableManifest     = 'm' // pool -> manifest
	tableUser         = 'u' // layer, auxiliary file or visibility set, pool -> nothing; a pool that uses it
	tableObsolete     = 'd' // time, kind, one of these or a pool -> pool; an obsolete entry
	tableRegistration = 's' // layer or auxiliary file -> its file's registration; a file without one is a leftover
	tableVisibility   = 'V' // visibility set, number of the row 4 -> part of it
)

func manifestKey(pool PoolID) []byte {
	return append([]byte{tableManifest}, pool[:]...)
}

// usersOf returns the user keys of a layer or auxiliary file.
func usersOf(layer segment.LayerID) kv.ScanOptions { return hot.Range(tableUser, layer) }

func userKey(layer segment.LayerID, pool PoolID) []byte {
	key := append([]byte{tableUser}, layer[:]...)
	return append(key, pool[:]...)
}

func registrationKey(layer segment.LayerID) []byte {
	return append([]byte{tableRegistration}, layer[:]...)
}

// visibilityRows returns the keys of the rows of a visibility set.
func visibilityRows(id segment.LayerID) kv.ScanOptions { return hot.Range(tableVisibility, id) }

func visibilityKey(id segment.LayerID, row int) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{tableVisibility}, id[:]...), uint32(row))
}

// visibilityOfKey returns the visibility set of a key of tableVisibility.
func visibilityOfKey(key []byte) (segment.LayerID, bool) {
	if len(key) != 1+len(segment.LayerID{})+4 {
		return segment.LayerID{}, false
	}
	return segment.LayerID(key[1:]), true
}
