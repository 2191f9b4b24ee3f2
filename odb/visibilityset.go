package odb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/bits"
	"slices"
	"sort"

	"packhorse/odb/segment"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// visibilitySet is a visibility set: the objects of borrowed layers that a fork may read, which are
// those that the tips reach from which it was created. It is immutable.
//
// It is stored once for all borrowed layers, in one of two forms. Creating a fork writes only the
// tips, whatever the size of the source. Later a walk computes the objects that they reach, and
// these replace the tips.
//
//	12 magic | 4 format version | 16 ID | 1 form
//	form 1   uvarint count, per tip: 20 ID; sorted
//	form 2   uvarint segment count, per segment: 16 layer ID | uvarint object count | 1 bit per ordinal, lowest bit first
//	         uvarint count, per readable object outside of segments: 20 ID; sorted
//	4 CRC-32C of all before
type visibilitySet struct {
	tips idList
	// known says that the fields below hold the objects that the tips reach.
	known    bool
	segments map[segment.LayerID]visibleSegment
	unpacked idList
	all      bool // all objects are readable
}

const (
	visibilityOfTips = 1
	visibilityOfSets = 2
)

// has reports whether the object at a location in a borrowed layer is readable.
func (s *visibilitySet) has(at *Location) bool {
	if segment, ok := at.layer.(*SegmentLayer); ok {
		return s.all || s.segments[segment.ID].has(at.ordinal)
	}
	return s.all || s.unpacked.has(at.id)
}

// visibleSegmentOverhead is about the memory of a visibleSegment beside its bits.
const visibleSegmentOverhead = 160

// size returns about the memory of the set in bytes.
func (s *visibilitySet) size() int {
	size := len(s.tips) + len(s.unpacked)
	for _, ordinals := range s.segments {
		size += len(ordinals.words) + visibleSegmentOverhead
	}
	return size
}

// idList is a sorted list of IDs, one after the other.
type idList []byte

// newIDList returns ids, each once.
func newIDList(ids []object.ID) idList {
	list := make(idList, 0, len(ids)*object.IDSize)
	for _, id := range segment.SortIDs(slices.Clone(ids)) {
		list = append(list, id[:]...)
	}
	return list
}

func (l idList) count() int { return len(l) / object.IDSize }

func (l idList) at(i int) object.ID { return object.ID(l[i*object.IDSize:]) }

func (l idList) has(id object.ID) bool {
	i := sort.Search(l.count(), func(i int) bool {
		return bytes.Compare(l[i*object.IDSize:(i+1)*object.IDSize], id[:]) >= 0
	})
	return i < l.count() && l.at(i) == id
}

// with returns the union of two lists.
func (l idList) with(other idList) idList {
	united := make(idList, 0, len(l)+len(other))
	for len(l) > 0 && len(other) > 0 {
		a, b := l[:object.IDSize], other[:object.IDSize]
		switch order := bytes.Compare(a, b); {
		case order < 0:
			united, l = append(united, a...), l[object.IDSize:]
		case order > 0:
			united, other = append(united, b...), other[object.IDSize:]
		default:
			united, l, other = append(united, a...), l[object.IDSize:], other[object.IDSize:]
		}
	}
	return append(append(united, l...), other...)
}

func (l idList) ids() []object.ID {
	ids := make([]object.ID, l.count())
	for i := range ids {
		ids[i] = l.at(i)
	}
	return ids
}

// visibleSegment is the set of readable objects of a segment.
type visibleSegment struct {
	count int    // of objects in the segment
	words []byte // a bit each
}

func (s visibleSegment) has(ordinal uint32) bool {
	return int64(ordinal) < int64(s.count) && s.words[ordinal/8]&(1<<(ordinal%8)) != 0
}

// newVisibleSegment makes a set of words of 64 bits, which may be fewer than the segment has
// objects.
func newVisibleSegment(count int, words []uint64) visibleSegment {
	s := visibleSegment{count: count, words: make([]byte, 0, 8*((count+63)/64))}
	for _, word := range words {
		s.words = binary.LittleEndian.AppendUint64(s.words, word)
	}
	s.words = append(s.words, make([]byte, max(0, (count+7)/8-len(s.words)))...)
	s.words = s.words[:(count+7)/8]
	return s
}

// words64 returns the set in words of 64 bits.
func (s visibleSegment) words64() []uint64 {
	words := make([]uint64, (len(s.words)+7)/8)
	for i, b := range s.words {
		words[i/8] |= uint64(b) << (8 * (i % 8))
	}
	return words
}

// with returns the union of two sets of the same segment. The zero set belongs to any segment.
func (s visibleSegment) with(other visibleSegment) visibleSegment {
	united := visibleSegment{count: max(s.count, other.count), words: slices.Clone(other.words)}
	if len(s.words) > len(united.words) {
		united.words = append(united.words, make([]byte, len(s.words)-len(united.words))...)
	}
	for i, word := range s.words {
		united.words[i] |= word
	}
	return united
}

// size returns the number of ordinals in the set.
func (s visibleSegment) size() int {
	n := 0
	for _, b := range s.words {
		n += bits.OnesCount8(b)
	}
	return n
}

// encode returns the stored form of the set with an ID.
func (s *visibilitySet) encode(id segment.LayerID) []byte {
	dst := make([]byte, 0, segment.BorrowedHead+s.size()+16)
	dst = append(dst, segment.BorrowedMagic...)
	dst = binary.BigEndian.AppendUint32(dst, segment.FormatVersion)
	dst = append(dst, id[:]...)
	if !s.known {
		dst = append(dst, visibilityOfTips)
		dst = s.tips.append(dst)
	} else {
		dst = append(dst, visibilityOfSets)
		dst = binary.AppendUvarint(dst, uint64(len(s.segments)))
		byID := func(a, b segment.LayerID) int { return bytes.Compare(a[:], b[:]) }
		for _, layer := range slices.SortedFunc(maps.Keys(s.segments), byID) {
			ordinals := s.segments[layer]
			dst = append(dst, layer[:]...)
			dst = binary.AppendUvarint(dst, uint64(ordinals.count))
			dst = append(dst, ordinals.words...)
		}
		dst = s.unpacked.append(dst)
	}
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst, castagnoli))
	if invariants.Enabled {
		_, err := decodeVisibility(id, dst)
		invariants.Check(err == nil, "odb: visibility set %s: %v", id, err)
	}
	return dst
}

func (l idList) append(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(l.count())), l...)
}

var errVisibility = errors.New("malformed visibility set of a fork")

// decodeVisibility decodes the stored form of the set with an ID. The set keeps data.
func decodeVisibility(id segment.LayerID, data []byte) (*visibilitySet, error) {
	body := len(data) - 4
	if body < segment.BorrowedHead || crc32.Checksum(data[:body], castagnoli) != binary.BigEndian.Uint32(data[body:]) {
		return nil, fmt.Errorf("%w: %w: checksum", segment.ErrFormat, errVisibility)
	}
	d := decoder{data: data[:body]}
	magic, version := string(d.take(segment.MagicSize)), binary.BigEndian.Uint32(d.take(4))
	if magic != segment.BorrowedMagic || version != segment.FormatVersion || segment.LayerID(d.take(len(id))) != id {
		return nil, fmt.Errorf("%w: %w: it is another one", segment.ErrFormat, errVisibility)
	}
	s := &visibilitySet{}
	switch d.take(1)[0] {
	case visibilityOfTips:
		s.tips = d.idList()
	case visibilityOfSets:
		s.known, s.segments = true, make(map[segment.LayerID]visibleSegment)
		for range d.count() {
			layer, count := segment.LayerID(d.take(len(segment.LayerID{}))), d.uvarint()
			if count > uint64(len(d.data))*8 {
				d.failed = true
				break
			}
			s.segments[layer] = visibleSegment{count: int(count), words: d.take(int(count+7) / 8)}
		}
		s.unpacked = d.idList()
	default:
		d.failed = true
	}
	if d.failed || len(d.data) > 0 {
		return nil, fmt.Errorf("%w: %w", segment.ErrFormat, errVisibility)
	}
	return s, nil
}

// idList takes a counted list of IDs.
func (d *decoder) idList() idList {
	count := d.uvarint()
	if count > uint64(len(d.data)/object.IDSize) {
		d.failed = true
		return nil
	}
	list := idList(d.take(int(count) * object.IDSize))
	for i := 1; i < list.count(); i++ {
		if bytes.Compare(list[(i-1)*object.IDSize:i*object.IDSize], list[i*object.IDSize:(i+1)*object.IDSize]) >= 0 {
			d.failed = true
			return nil
		}
	}
	return list
}
