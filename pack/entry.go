package pack

import (
	"fmt"

	"packhorse/pack/object"
)

// EntryKind is the form of an entry's object: whole, under the number of its type, or a delta.
type EntryKind uint8

// The kinds of entries.
const (
	KindCommit   = EntryKind(object.TypeCommit)
	KindTree     = EntryKind(object.TypeTree)
	KindBlob     = EntryKind(object.TypeBlob)
	KindTag      = EntryKind(object.TypeTag)
	KindOFSDelta = EntryKind(6) // the base is the given distance before
	KindRefDelta = EntryKind(7) // the base has an ID, in this pack or (in a thin pack) outside
)

// IsDelta reports whether the entry's content is a delta.
func (k EntryKind) IsDelta() bool { return k == KindOFSDelta || k == KindRefDelta }

// Type returns the type of the object in a whole entry, and 0 for a delta.
func (k EntryKind) Type() object.Type {
	if k.IsDelta() {
		return 0
	}
	return object.Type(k)
}

// String returns the name that git's documentation uses.
func (k EntryKind) String() string {
	switch {
	case k == KindOFSDelta:
		return "ofs-delta"
	case k == KindRefDelta:
		return "ref-delta"
	case k.Type().Valid():
		return k.Type().String()
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

func (k EntryKind) valid() bool { return k.IsDelta() || object.Type(k).Valid() }

// EntryHeader is the header of an entry, before its zlib stream:
//
//	ckkkssss | 0csssssss ...      kind, and the inflated size, 4 bits and then 7 a byte, lowest first; c: another byte follows
//	cddddddd ...                  ofs-delta: distance, 7 bits a byte, highest first, 1 added per further byte
//	20 bytes                      ref-delta: ID of the base
type EntryHeader struct {
	Kind         EntryKind
	Size         int64     // of the inflated content: of the delta, not of the object that it builds
	BaseDistance int64     // ofs-delta: from the base's offset to this entry's
	BaseID       object.ID // ref-delta
}

// EntryHeaderSizeMax is the length of the longest entry header.
const EntryHeaderSizeMax = sizeBytesMax + max(distanceBytesMax, object.IDSize)

const (
	sizeBytesMax     = 9 // 4+8*7 bits: more than any object needs
	distanceBytesMax = 8
)

// ParseEntryHeader parses the header at the front of b and returns its length. [EntryHeaderSizeMax]
// bytes are always enough.
//
// Errors: [ErrCorrupt], also when b ends inside the header.
func ParseEntryHeader(b []byte) (h EntryHeader, n int, err error) {
	if len(b) == 0 {
		return EntryHeader{}, 0, corrupt("entry header cut off")
	}
	c := b[0]
	h.Kind, h.Size = EntryKind(c>>4&7), int64(c&0xf)
	n = 1
	for shift := 4; c&0x80 != 0; shift += 7 {
		if n == sizeBytesMax {
			return EntryHeader{}, 0, corrupt("entry size too long")
		}
		if n == len(b) {
			return EntryHeader{}, 0, corrupt("entry header cut off")
		}
		c = b[n]
		h.Size |= int64(c&0x7f) << shift
		n++
	}
	switch {
	case h.Kind == KindOFSDelta:
		distance, used := parseDistance(b[n:])
		if used == 0 {
			return EntryHeader{}, 0, corrupt("bad base distance")
		}
		h.BaseDistance = distance
		n += used
	case h.Kind == KindRefDelta:
		if len(b)-n < object.IDSize {
			return EntryHeader{}, 0, corrupt("entry header cut off")
		}
		n += copy(h.BaseID[:], b[n:])
	case !h.Kind.valid():
		return EntryHeader{}, 0, corrupt("entry of kind %d", h.Kind)
	}
	return h, n, nil
}

// parseDistance returns 0 bytes used for a distance that is cut off, too long or zero.
func parseDistance(b []byte) (distance int64, used int) {
	for i, c := range b[:min(len(b), distanceBytesMax)] {
		if i > 0 {
			distance++
		}
		distance = distance<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			if distance == 0 {
				return 0, 0
			}
			return distance, i + 1
		}
	}
	return 0, 0
}

// Append appends the header's bytes to dst.
func (h EntryHeader) Append(dst []byte) []byte {
	c := byte(h.Kind)<<4 | byte(h.Size&0xf)
	for size := h.Size >> 4; size > 0; size >>= 7 {
		dst = append(dst, c|0x80)
		c = byte(size & 0x7f)
	}
	dst = append(dst, c)
	switch h.Kind {
	case KindOFSDelta:
		return appendDistance(dst, h.BaseDistance)
	case KindRefDelta:
		return append(dst, h.BaseID[:]...)
	default:
		return dst
	}
}

func appendDistance(dst []byte, distance int64) []byte {
	var buf [10]byte
	at := len(buf) - 1
	buf[at] = byte(distance & 0x7f)
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		at--
		buf[at] = 0x80 | byte(distance&0x7f)
	}
	return append(dst, buf[at:]...)
}

// Entry is one entry of a pack, as [Reader] found or [Writer] wrote it.
type Entry struct {
	Offset     int64 // of the header, from the start of the pack
	HeaderSize int   // in bytes; the zlib stream follows
	Kind       EntryKind
	Size       int64     // of the inflated content
	BaseOffset int64     // ofs-delta: offset of the base's header
	BaseID     object.ID // ref-delta
	PackedSize int64     // of header and zlib stream; known once the content has been read to its end
	CRC32      uint32    // IEEE, of header and zlib stream; known likewise
}
