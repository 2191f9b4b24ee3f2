// Package pack reads and writes packfiles, entry by entry, as streams.
//
// A packfile is a header, entries and the SHA-1 of all before it:
//
//	"PACK" | version 4 B | count 4 B | entry ... | SHA-1 20 B
//	entry: kind and size, variable | base: distance or ID, deltas only | zlib stream
//
// The format is gitformat-pack(5). Start at [NewReader] and [NewWriter]; [Inflate] and [Deflate]
// handle one zlib stream in memory, and [Blocks] writes one that is read by range. Objects, deltas
// and pkt-lines have rooms of their own below this folder. The package is pure: no files and no
// storage; only pools of inflaters and deflaters are shared between calls.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// HeaderSize is the length of a pack's header, and so the offset of the first entry.
	HeaderSize = 12
	// TrailerSize is the length of the checksum behind the last entry.
	TrailerSize = 20

	signature = "PACK"
)

// ErrCorrupt is matched by every error about bytes that are not a valid packfile.
var ErrCorrupt = errors.New("pack: corrupt pack")

// ErrChecksum is matched by the error of a pack whose trailer is not the SHA-1 of its content. It
// is also an [ErrCorrupt].
var ErrChecksum = fmt.Errorf("%w: checksum mismatch", ErrCorrupt)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Header is the front of a packfile.
type Header struct {
	Version uint32 // 2 or 3, which differ in nothing that matters here
	Count   uint32 // of entries
}

// ParseHeader reads the first [HeaderSize] bytes of b. Errors: [ErrCorrupt].
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize || string(b[:4]) != signature {
		return Header{}, corrupt("no signature")
	}
	h := Header{Version: binary.BigEndian.Uint32(b[4:]), Count: binary.BigEndian.Uint32(b[8:])}
	if h.Version != 2 && h.Version != 3 {
		return Header{}, corrupt("version %d", h.Version)
	}
	return h, nil
}

// Append appends the header's bytes to dst.
func (h Header) Append(dst []byte) []byte {
	dst = append(dst, signature...)
	dst = binary.BigEndian.AppendUint32(dst, h.Version)
	return binary.BigEndian.AppendUint32(dst, h.Count)
}
