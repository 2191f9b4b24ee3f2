package odb

import (
	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// The tables of this package, beside those of package hot: the first byte of every key. IDs follow
// as raw bytes.
const (
	tableManifest     = 'm' // pool -> manifest
	tableUser         = 'u' // layer or auxiliary file, pool -> nothing; a pool that uses it
	tableObsolete     = 'd' // time, kind, layer, auxiliary file or pool -> pool; an obsolete entry
	tableRegistration = 's' // layer or auxiliary file -> its file's registration; a file without one is a leftover
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
