// Package catalog finds repositories: by their name, by their id, and all of an organization in the
// order of their creation.
//
// Start at [Catalog.Open] and [Catalog.All]. What is in the record of a repository is the caller's.
// What changes the catalog is added to a batch of the caller's, with the preconditions that make it
// right; nothing in memory guards anything. open.go reads one repository, list.go many, change.go
// has what batches do, and deleted.go the repositories that were deleted and may come back.
//
// The tables are those of docs/formats.md, "Repositories": the first byte of every key. Ids follow
// as raw bytes, an organization ends in a NUL.
package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/lru"
	"packhorse/refs"
)

const (
	tableRecord  = 'R' // repository id -> record
	tableName    = 'N' // organization, name -> Name
	tableNumber  = 'n' // organization, number -> repository id
	tableCounter = 'q' // organization -> the number of its last creation
	tableDeleted = 'D' // kind ... -> deleted repositories, see deleted.go
)

// RecordKey is the key of a repository's record.
func RecordKey(id refs.RepoID) []byte { return append([]byte{tableRecord}, id[:]...) }

// RecordOf returns the repository whose record a key is of, and false if it is of none.
func RecordOf(key []byte) (id refs.RepoID, ok bool) {
	if len(key) != 1+len(id) || key[0] != tableRecord {
		return id, false
	}
	return refs.RepoID(key[1:]), true
}

// Records selects the records of all organizations from that of a repository on.
func Records(from refs.RepoID) kv.ScanOptions {
	start := RecordKey(from)
	if from == (refs.RepoID{}) {
		start = start[:1]
	}
	return kv.ScanOptions{Start: start, End: kv.PrefixEnd([]byte{tableRecord})}
}

// Numbers selects the ids of all organizations' repositories, as the values of the rows.
func Numbers() kv.ScanOptions {
	return kv.ScanOptions{Start: []byte{tableNumber}, End: kv.PrefixEnd([]byte{tableNumber})}
}

// NameKey is the key of a name.
func NameKey(org, name string) []byte { return append(orgKey(tableName, org), name...) }

// NumberKey is the key of a number, whose value is the id of a repository.
func NumberKey(org string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(orgKey(tableNumber, org), number)
}

// CounterKey is the key of an organization's last number. Every creation writes it.
func CounterKey(org string) []byte { return orgKey(tableCounter, org) }

func orgKey(table byte, org string) []byte {
	key := make([]byte, 0, 1+len(org)+1+64)
	key = append(key, table)
	key = append(key, org...)
	return append(key, 0)
}

// Name is the row of a name: the repository of that name, or the last one of that name after its
// deletion.
type Name struct {
	ID      refs.RepoID
	Deleted bool
}

func (n Name) encode() []byte {
	state := byte(0)
	if n.Deleted {
		state = 1
	}
	return append([]byte{state}, n.ID[:]...)
}

func decodeName(data []byte) (Name, error) {
	if len(data) != 1+len(refs.RepoID{}) || data[0] > 1 {
		return Name{}, fmt.Errorf("%w: name row of %d bytes", kv.ErrCorrupt, len(data))
	}
	return Name{ID: refs.RepoID(data[1:]), Deleted: data[0] == 1}, nil
}

// Catalog is the repositories of a key-value store, whose records are R. Its methods may be called
// concurrently.
type Catalog[R any] struct {
	keys    kv.Store
	decode  func(id refs.RepoID, stored []byte) (R, error)
	names   lru.Cache[string, refs.RepoID] // by name key: what it led to last
	records lru.Cache[refs.RepoID, decoded[R]]
	drawn   lru.Cache[string, uint64] // by organization: the last number that this process drew
}

// decoded is a record with its stored bytes.
type decoded[R any] struct {
	record R
	stored []byte
}

// Bounds of what a catalog remembers, and the costs of a name or an organization besides its bytes,
// and of a record besides its stored bytes; decoded it is taken for as large.
const (
	namesBytesMax   = 1 << 20
	recordsBytesMax = 4 << 20
	drawnBytesMax   = 1 << 18
	nameBytes       = 128
	recordBytes     = 256
)

// New returns the catalog of a store. decode makes a record of stored bytes, which it does not
// keep.
func New[R any](keys kv.Store, decode func(id refs.RepoID, stored []byte) (R, error)) *Catalog[R] {
	return &Catalog[R]{
		keys: keys, decode: decode,
		names:   lru.New[string, refs.RepoID](namesBytesMax, namesBytesMax),
		records: lru.New[refs.RepoID, decoded[R]](recordsBytesMax, recordsBytesMax),
		drawn:   lru.New[string, uint64](drawnBytesMax, drawnBytesMax),
	}
}

// recordOf decodes a record, unless its bytes are those that were decoded last. keep remembers it.
func (c *Catalog[R]) recordOf(id refs.RepoID, stored []byte, keep bool) (R, error) {
	known, ok := c.records.Get(id)
	if ok && bytes.Equal(known.stored, stored) {
		return known.record, nil
	}
	record, err := c.decode(id, stored)
	if err == nil && keep {
		c.records.Put(id, decoded[R]{record, stored}, int64(2*len(stored)+recordBytes))
	}
	return record, err
}

// absent reports whether an error says that a row is missing.
func absent(err error) bool { return errors.Is(err, kv.ErrNotFound) }
