package segment

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Obsolete is an obsolete entry: the key of a row about a layer or auxiliary file that a pool no
// longer uses, or about a pool that no repository uses.
type Obsolete struct {
	Time time.Time
	Kind LayerKind // or KindPool
	ID   LayerID   // or the pool's
}

// KindPool is the kind of a pool in an obsolete entry.
const KindPool LayerKind = 0

// Key is
//
//	table | 8 time in Unix milliseconds | 1 kind | 16 ID
func (e Obsolete) Key(table byte) []byte {
	key := binary.BigEndian.AppendUint64([]byte{table}, uint64(e.Time.UnixMilli()))
	return append(append(key, byte(e.Kind)), e.ID[:]...)
}

// DecodeObsolete decodes what Key returned. Errors: [ErrFormat].
func DecodeObsolete(key []byte) (Obsolete, error) {
	var e Obsolete
	if len(key) != 1+8+1+len(e.ID) {
		return e, fmt.Errorf("%w: key %x is no obsolete entry", ErrFormat, key)
	}
	e.Time = time.UnixMilli(int64(binary.BigEndian.Uint64(key[1:])))
	e.Kind, e.ID = LayerKind(key[9]), LayerID(key[10:])
	return e, nil
}
