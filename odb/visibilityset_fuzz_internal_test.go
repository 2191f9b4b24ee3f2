package odb

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FuzzVisibilitySet checks that a stored visibility set is refused or decodes to the same when
// it is encoded again, and that one of another ID and one that ends early or late are refused.
func FuzzVisibilitySet(f *testing.F) {
	id := segment.LayerID{1, 2, 3}
	for _, seed := range []struct {
		ids   []object.ID
		count int
		words []uint64
	}{
		{},
		{ids: []object.ID{{2}, {1}, {2}}, count: 3, words: []uint64{5}},
		{ids: []object.ID{{9}}, count: 65, words: []uint64{1 << 63, 1}},
		{count: 200, words: []uint64{7}},
	} {
		tips, sets := encodeBorrowed(id, seed.ids, seed.count, seed.words)
		f.Add(tips[:len(tips)-4])
		f.Add(sets[:len(sets)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := sealBorrowed(body)
		again, err := decodeAgain(id, data)
		if err != nil {
			return
		}
		if third, err := decodeAgain(id, again); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%x is encoded as %x and then as %x, %v", data, again, third, err)
		}
		if _, err := decodeAgain(segment.LayerID{9}, data); err == nil {
			t.Error("it is taken for another one")
		}
		for _, cut := range [][]byte{
			body, sealBorrowed(body[:len(body)-1]), sealBorrowed(append(bytes.Clone(body), 0)),
		} {
			if _, err := decodeAgain(id, cut); err == nil {
				t.Errorf("%x is taken for whole", cut)
			}
		}
	})
}

// encodeBorrowed returns two stored visibility sets. One has ids as tips. The other has the
// ordinals of a segment that words have, and ids as unpacked objects.
func encodeBorrowed(id segment.LayerID, ids []object.ID, count int, words []uint64) (tips, sets []byte) {
	byTips := visibilitySet{tips: newIDList(ids)}
	bySets := visibilitySet{
		known: true, unpacked: newIDList(ids),
		segments: map[segment.LayerID]visibleSegment{id: newVisibleSegment(count, words)},
	}
	return byTips.encode(id), bySets.encode(id)
}

// decodeAgain decodes a stored visibility set, and encodes it again.
func decodeAgain(id segment.LayerID, data []byte) ([]byte, error) {
	set, err := decodeVisibility(id, data)
	if err != nil {
		return nil, err
	}
	return set.encode(id), nil
}

// sealBorrowed appends the checksum of a set without one.
func sealBorrowed(body []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}
