package packtest

import (
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"slices"
	"testing"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// Entry is an entry of a pack that may be wrong.
type Entry struct {
	Kind   pack.EntryKind
	Data   []byte    // of the object or of the delta
	Base   int       // of an ofs-delta: the index of the entry that it applies to
	BaseID object.ID // of a ref-delta
	Size   int64     // in the header; len(Data) when 0
}

// Whole returns the entry of an object that is no delta.
func Whole(t object.Type, data []byte) Entry {
	return Entry{Kind: pack.EntryKind(t), Data: data}
}

// DeltaOf returns the delta that builds target from base.
func DeltaOf(tb testing.TB, base, target []byte) []byte {
	tb.Helper()
	made, ok := delta.NewIndex(base).Create(nil, target, len(target)+64)
	if !ok {
		tb.Fatal("no delta")
	}
	return made
}

// Encode returns a pack of entries with the right trailer.
func Encode(entries ...Entry) []byte {
	var offsets []int64
	packed := pack.Header{Version: 2, Count: uint32(len(entries))}.Append(nil)
	for _, e := range entries {
		offset := int64(len(packed))
		header := pack.EntryHeader{Kind: e.Kind, Size: int64(len(e.Data)), BaseID: e.BaseID}
		if e.Size != 0 {
			header.Size = e.Size
		}
		if e.Kind == pack.KindOFSDelta {
			header.BaseDistance = offset - offsets[e.Base]
		}
		offsets = append(offsets, offset)
		packed = pack.Deflate(header.Append(packed), e.Data, pack.LevelFast)
	}
	return Seal(packed)
}

// Seal returns body, which is a pack without its trailer, with the right trailer.
func Seal(body []byte) []byte {
	sum := sha1.Sum(body) //nolint:gosec // as above
	return append(slices.Clone(body), sum[:]...)
}

// Hash returns the ID of an object.
func Hash(tb testing.TB, t object.Type, data []byte) object.ID {
	tb.Helper()
	id, err := object.Hash(t, data)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
