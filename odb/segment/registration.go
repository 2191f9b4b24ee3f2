package segment

import (
	"encoding/binary"
	"fmt"
)

// Registration is the row of a file that belongs to a pool: the file may be deleted only together
// with it.
//
//	1 format, 1 | 1 kind | 16 pool that it was made for | uvarint object count | uvarint size
type Registration struct {
	Pool [16]byte
	Kind LayerKind // of a file
	// Count and Bytes are the objects of a segment and the size of its data region. Of another file
	// Count is 0, and Bytes its size, or 0 if an older release has made it.
	Count, Bytes int64
}

const (
	registrationFormat = 1
	registrationPool   = 2 // where the ID of the pool begins
	registrationCount  = registrationPool + 16
)

// Encode returns the stored form.
func (r *Registration) Encode() []byte {
	dst := append([]byte{registrationFormat, byte(r.Kind)}, r.Pool[:]...)
	dst = binary.AppendUvarint(dst, uint64(r.Count))
	return binary.AppendUvarint(dst, uint64(r.Bytes))
}

// DecodeRegistration decodes what Encode returned. Errors: [ErrFormat].
func DecodeRegistration(value []byte) (Registration, error) {
	malformed := fmt.Errorf("%w: registration %x", ErrFormat, value)
	if len(value) < registrationCount || value[0] != registrationFormat {
		return Registration{}, malformed
	}
	r := Registration{Kind: LayerKind(value[1]), Pool: [16]byte(value[registrationPool:registrationCount])}
	rest := value[registrationCount:]
	for _, number := range []*int64{&r.Count, &r.Bytes} {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return Registration{}, malformed
		}
		*number, rest = int64(n), rest[size:]
	}
	if len(rest) > 0 || !r.Kind.HasFile() {
		return Registration{}, malformed
	}
	return r, nil
}
