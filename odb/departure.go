package odb

import (
	"encoding/binary"
	"fmt"
	"time"

	"packhorse/odb/segment"
)

// departure is an obsolete entry, a row of table d: a layer or auxiliary file that a pool no longer
// uses, or a pool that no repository uses.
type departure struct {
	time time.Time
	kind segment.LayerKind
	id   segment.LayerID // or the pool's
}

// departedPool is the kind of a pool in table d.
const departedPool segment.LayerKind = 0

// departureKey is
//
//	table | 8 time in Unix milliseconds | 1 kind | 16 ID
func departureKey(d departure) []byte {
	key := binary.BigEndian.AppendUint64([]byte{tableDeparture}, uint64(d.time.UnixMilli()))
	return append(append(key, byte(d.kind)), d.id[:]...)
}

func decodeDeparture(key []byte) (departure, error) {
	var d departure
	if len(key) != 1+8+1+len(d.id) {
		return d, fmt.Errorf("%w: key %x is no departure", segment.ErrFormat, key)
	}
	d.time = time.UnixMilli(int64(binary.BigEndian.Uint64(key[1:])))
	d.kind, d.id = segment.LayerKind(key[9]), segment.LayerID(key[10:])
	return d, nil
}
