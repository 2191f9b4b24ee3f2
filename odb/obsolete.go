package odb

import (
	"encoding/binary"
	"fmt"
	"time"

	"packhorse/odb/segment"
)

// obsoleteEntry is a row of table d: a layer or auxiliary file that a pool no longer uses, or a
// pool that no repository uses.
type obsoleteEntry struct {
	time time.Time
	kind segment.LayerKind
	id   segment.LayerID // or the pool's
}

// obsoletePool is the kind of a pool in table d.
const obsoletePool segment.LayerKind = 0

// obsoleteKey is
//
//	table | 8 time in Unix milliseconds | 1 kind | 16 ID
func obsoleteKey(e obsoleteEntry) []byte {
	key := binary.BigEndian.AppendUint64([]byte{tableObsolete}, uint64(e.time.UnixMilli()))
	return append(append(key, byte(e.kind)), e.id[:]...)
}

func decodeObsolete(key []byte) (obsoleteEntry, error) {
	var e obsoleteEntry
	if len(key) != 1+8+1+len(e.id) {
		return e, fmt.Errorf("%w: key %x is no obsolete entry", segment.ErrFormat, key)
	}
	e.time = time.UnixMilli(int64(binary.BigEndian.Uint64(key[1:])))
	e.kind, e.id = segment.LayerKind(key[9]), segment.LayerID(key[10:])
	return e, nil
}
