package odb

import (
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// The tables of this package: the first byte of every key. IDs follow as raw bytes.
const (
	tableManifest     = 'm' // pool -> manifest
	tableObject       = 'o' // layer, object ID -> hot value
	tableGraph        = 'g' // layer, object ID -> graph row of a hot commit
	tableFilter       = 'f' // layer, object ID -> path filter of a hot commit
	tableUser         = 'u' // layer or auxiliary file, pool -> nothing; a pool that uses it
	tableObsolete     = 'd' // time, kind, layer, auxiliary file or pool -> pool; an obsolete entry
	tableRegistration = 's' // layer or auxiliary file -> its file's registration; a file without one is a leftover
)

func manifestKey(pool PoolID) []byte {
	return append([]byte{tableManifest}, pool[:]...)
}

func objectKey(layer segment.LayerID, id object.ID) []byte {
	return appendObjectKey(make([]byte, 0, 1+len(layer)+len(id)), tableObject, layer, id)
}

func graphKey(layer segment.LayerID, id object.ID) []byte {
	return appendObjectKey(make([]byte, 0, 1+len(layer)+len(id)), tableGraph, layer, id)
}

func filterKeyOf(layer segment.LayerID, id object.ID) []byte {
	return appendObjectKey(make([]byte, 0, 1+len(layer)+len(id)), tableFilter, layer, id)
}

// hotTables are the tables whose keys lie under a hot layer.
var hotTables = []byte{tableObject, tableGraph, tableFilter}

func appendObjectKey(dst []byte, table byte, layer segment.LayerID, id object.ID) []byte {
	dst = append(dst, table)
	dst = append(dst, layer[:]...)
	return append(dst, id[:]...)
}

// hotPrefix returns the prefix of the keys of a table under one layer.
func hotPrefix(table byte, layer segment.LayerID) []byte {
	return append([]byte{table}, layer[:]...)
}

// idOfKey returns the object ID that ends a key of one of hotTables.
func idOfKey(key []byte) (object.ID, bool) {
	if len(key) != 1+len(segment.LayerID{})+object.IDSize {
		return object.ZeroID, false
	}
	return object.ID(key[1+len(segment.LayerID{}):]), true
}

func userKey(layer segment.LayerID, pool PoolID) []byte {
	key := append([]byte{tableUser}, layer[:]...)
	return append(key, pool[:]...)
}

func registrationKey(layer segment.LayerID) []byte {
	return append([]byte{tableRegistration}, layer[:]...)
}
