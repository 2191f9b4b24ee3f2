package object

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// IDSize is the length of an [ID] in bytes, and HexSize its length in hexadecimal digits.
const (
	IDSize  = 20
	HexSize = 2 * IDSize
)

// ErrInvalidID is matched by the error of a string that is not 40 lower-case hexadecimal digits.
var ErrInvalidID = errors.New("object: invalid object ID")

// ID is an object ID: the SHA-1 of an object's type, size and content.
type ID [IDSize]byte

// ZeroID names no object; git writes it for "absent".
var ZeroID ID

// EmptyBlobID is the ID of the blob of no bytes.
var EmptyBlobID = ID{
	0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2, 0xe4, 0x8c, 0x53, 0x91,
}

// EmptyTreeID is the ID of the tree without entries, which git knows without storing it.
var EmptyTreeID = ID{
	0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60,
	0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49, 0x04,
}

// ParseID returns the ID written as 40 lower-case hexadecimal digits. Errors: [ErrInvalidID].
func ParseID(s string) (ID, error) {
	if len(s) != HexSize {
		return ZeroID, fmt.Errorf("%w: %q", ErrInvalidID, clip(s))
	}
	id, ok := parseHex([]byte(s))
	if !ok || strings.ToLower(s) != s {
		return ZeroID, fmt.Errorf("%w: %q", ErrInvalidID, s)
	}
	return id, nil
}

// clip keeps error messages short when the input is hostile.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// parseHex decodes the first 40 bytes of b, in either case: git reads upper-case IDs in old
// objects.
func parseHex(b []byte) (id ID, ok bool) {
	if len(b) < HexSize {
		return ZeroID, false
	}
	for i := range id {
		high, low := nibbles[b[2*i]], nibbles[b[2*i+1]]
		if high|low > 0xf {
			return ZeroID, false
		}
		id[i] = high<<4 | low
	}
	return id, true
}

// nibbles maps a hexadecimal digit to its value and every other byte to 0xff.
var nibbles = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = byte(i)
		table[bytes.ToUpper([]byte{c})[0]] = byte(i)
	}
	return table
}()

// String returns the 40 hexadecimal digits of id.
func (id ID) String() string {
	var digits [HexSize]byte // which hex.EncodeToString would allocate
	hex.Encode(digits[:], id[:])
	return string(digits[:])
}

// AppendHex appends the 40 hexadecimal digits of id to dst.
func (id ID) AppendHex(dst []byte) []byte { return hex.AppendEncode(dst, id[:]) }

// IsZero reports whether id is [ZeroID].
func (id ID) IsZero() bool {
	// No call.
	return binary.NativeEndian.Uint64(id[:])|binary.NativeEndian.Uint64(id[8:])|
		uint64(binary.NativeEndian.Uint32(id[16:])) == 0
}

// Compare orders IDs by their bytes: negative when id sorts before other, zero when equal.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// MarshalText implements [encoding.TextMarshaler] with the 40 digits.
func (id ID) MarshalText() ([]byte, error) { return id.AppendHex(nil), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [ParseID] does.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
