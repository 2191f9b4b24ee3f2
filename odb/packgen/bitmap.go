package packgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// A bitmap file is a sectioned file beside the last of a frozen list of segments. Its IDs are
// commits; the bitmap of a commit has a bit for every object that the commit reaches, itself
// included, all of which lie in the listed segments.
//
// Bits follow the list: the objects of a segment take its count of bits, in the order of their
// ordinals, rounded up to whole words of 64. A duplicate has the bit of the newest segment that
// holds it. Bitmaps are in the portable format of Roaring. Most are stored as the difference from
// the bitmap of a nearby commit, which is small.
//
// The file is valid while its list is the beginning of the list of segments in a manifest.
const (
	// bitmapChainMax is the largest number of bitmaps that are combined to read one.
	bitmapChainMax = 12
)

// bitmapRow is the place of a bitmap in segment.SectionBitmapBytes.
type bitmapRow struct {
	offset, size int64
	base         uint32 // index of the bitmap that it is XORed with, or segment.NoOrdinal
}

func (r *bitmapRow) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.offset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.size))
	return binary.BigEndian.AppendUint32(dst, r.base)
}

func decodeBitmapRow(b []byte) bitmapRow {
	return bitmapRow{
		offset: int64(binary.BigEndian.Uint64(b) & (1<<62 - 1)),
		size:   int64(binary.BigEndian.Uint32(b[8:])),
		base:   binary.BigEndian.Uint32(b[12:]),
	}
}

// readBitmap returns the bits of a bitmap as words of 64, wordCount of them.
func readBitmap(
	ctx context.Context, g *segment.File, kind segment.SectionKind, index uint32, wordCount int,
) ([]uint64, error) {
	var sum *roaring.Bitmap
	for range bitmapChainMax {
		item, err := g.Item(ctx, kind, int(index))
		if err != nil {
			return nil, err
		}
		row := decodeBitmapRow(item)
		data, err := g.Bytes(ctx, segment.SectionBitmapBytes, row.offset, row.size)
		if err != nil {
			return nil, err
		}
		bits, err := parseBitmap(data, wordCount)
		if err != nil {
			return nil, g.Damaged(fmt.Errorf("bitmap %d: %w", index, err))
		}
		if sum == nil {
			sum = bits
		} else {
			sum.Xor(bits)
		}
		if row.base == segment.NoOrdinal {
			words := make([]uint64, wordCount)
			sum.WriteDenseTo(words)
			return words, nil
		}
		index = row.base
	}
	return nil, g.Damaged(fmt.Errorf("%w: a bitmap builds on more than %d others", segment.ErrFormat, bitmapChainMax))
}

// parseBitmap decodes a bitmap of at most wordCount words.
func parseBitmap(data []byte, wordCount int) (*roaring.Bitmap, error) {
	bits := roaring.New()
	n, err := bits.ReadFrom(bytes.NewReader(data))
	if err == nil {
		err = bits.Validate()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", segment.ErrFormat, err)
	case n != int64(len(data)):
		return nil, fmt.Errorf("%w: trailing bytes after a bitmap", segment.ErrFormat)
	case !bits.IsEmpty() && int64(bits.Maximum()) >= 64*int64(wordCount):
		return nil, fmt.Errorf("%w: bit %d of %d words", segment.ErrFormat, bits.Maximum(), wordCount)
	}
	return bits, nil
}

// bitmapSpan is the part of a bitmap that belongs to one segment.
type bitmapSpan struct {
	layer       int // its place in the inventory
	first, past int // words
}

// spansOf returns the words that the objects of the segments in layers take. layers are places in
// the inventory, the oldest segment first.
func (inv *inventory) spansOf(layers []int) (spans []bitmapSpan, wordCount int) {
	for _, layer := range layers {
		first := wordCount
		wordCount += (inv.segments[layer].Count + 63) / 64
		spans = append(spans, bitmapSpan{layer, first, wordCount})
	}
	return spans, wordCount
}

// reachBitmaps are the bitmaps of a pool, mapped to the objects of one inventory. A damaged bitmap
// is logged, counted, and ignored.
type reachBitmaps struct {
	inv        *inventory
	auxiliary  *segment.SharedFile
	file       *segment.File
	spans      []bitmapSpan
	wordCount  int
	duplicates []duplicate
	broken     bool
	types      map[object.Type][]uint64
}

// duplicate is an object of a listed segment whose handle is that of a newer segment.
type duplicate struct{ listed, newer handle }

// openBitmaps returns the newest bitmaps that are valid for the segments of inv, nil if there are
// none.
func openBitmaps(ctx context.Context, inv *inventory) (*reachBitmaps, error) {
	for _, l := range inv.layers {
		if l.Bitmaps == nil {
			continue
		}
		b := &reachBitmaps{inv: inv, auxiliary: l.Bitmaps, types: make(map[object.Type][]uint64)}
		ok, err := b.open(ctx)
		if err == nil && ok {
			err = b.findDuplicates(ctx)
		}
		if err == nil && ok {
			return b, nil
		}
		b.close()
		if err != nil && !segment.Unreadable(err) {
			return nil, err
		}
	}
	return nil, nil
}

// open reports whether the list of the file is the beginning of the inventory's list of segments.
func (b *reachBitmaps) open(ctx context.Context) (bool, error) {
	g, err := b.auxiliary.Acquire(ctx)
	if err != nil {
		return false, err
	}
	b.file = g
	count := g.ItemCount(segment.SectionBitmapLayers)
	layers := make([]int, count)
	for i := range layers {
		item, err := g.Item(ctx, segment.SectionBitmapLayers, i)
		if err != nil {
			return false, err
		}
		at := len(b.inv.layers) - 1 - i // the newest segments come first there
		if at < 0 || b.inv.layers[at].ID != segment.LayerID(item) ||
			b.inv.segments[at].Count != int(binary.BigEndian.Uint32(item[len(segment.LayerID{}):])) {
			return false, nil
		}
		layers[i] = at
	}
	b.spans, b.wordCount = b.inv.spansOf(layers)
	return count > 0, nil
}

func (b *reachBitmaps) close() {
	if b.file != nil {
		b.auxiliary.Release()
		b.file = nil
	}
}

// findDuplicates finds the duplicates in newer segments.
func (b *reachBitmaps) findDuplicates(ctx context.Context) error {
	for newer := range len(b.inv.segments) - len(b.spans) {
		for _, span := range b.spans {
			err := eachDuplicate(ctx, b.inv.segments[newer], b.inv.segments[span.layer], func(inNewer, inListed uint32) {
				b.duplicates = append(b.duplicates, duplicate{newHandle(span.layer, inListed), newHandle(newer, inNewer)})
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the objects that a commit reaches to set, and reports whether it has a bitmap.
func (b *reachBitmaps) add(ctx context.Context, commit object.ID, set *objectSet) (bool, error) {
	if b == nil || b.broken {
		return false, nil
	}
	index, ok, err := b.file.Lookup(ctx, commit)
	if err == nil && !ok {
		return false, nil
	}
	var words []uint64
	if err == nil {
		words, err = readBitmap(ctx, b.file, segment.SectionBitmapRows, index, b.wordCount)
	}
	if err != nil {
		b.broken = true
		if segment.Unreadable(err) {
			err = nil
		}
		return false, err
	}
	set.addWords(b.spans, words)
	for _, d := range b.duplicates {
		if set.has(d.listed) {
			set.remove(d.listed)
			set.add(d.newer)
		}
	}
	return true, nil
}

// addWords adds the objects of a bitmap to the set.
func (s *objectSet) addWords(spans []bitmapSpan, words []uint64) {
	for _, span := range spans {
		bits := words[span.first:span.past]
		if len(bits) == 0 {
			continue
		}
		s.reach(newHandle(span.layer, uint32(len(bits)-1)*64)) // allocates all words of a segment
		into := s.words[span.layer]
		for i, word := range bits {
			into[i] |= word
		}
	}
}

// toWords returns the objects of the set that lie in spans as the words of a bitmap.
func (s *objectSet) toWords(spans []bitmapSpan, wordCount int) []uint64 {
	words := make([]uint64, wordCount)
	for _, span := range spans {
		copy(words[span.first:span.past], s.words[span.layer])
	}
	return words
}

// ofType returns the objects of a segment of type t as words, nil if they are unknown.
func (b *reachBitmaps) ofType(ctx context.Context, layer int, t object.Type) ([]uint64, error) {
	if b == nil || b.broken {
		return nil, nil
	}
	words, ok := b.types[t]
	if !ok {
		var err error
		words, err = readBitmap(ctx, b.file, segment.SectionBitmapTypes, uint32(t-object.TypeCommit), b.wordCount)
		if err != nil {
			b.broken = true
			if segment.Unreadable(err) {
				err = nil
			}
			return nil, err
		}
		b.types[t] = words
	}
	for _, span := range b.spans {
		if span.layer == layer {
			return words[span.first:span.past], nil
		}
	}
	return nil, nil
}

// BitmapCount returns the number of bitmaps that apply to a view.
func BitmapCount(ctx context.Context, v *odb.View) (int, error) {
	inv, err := newInventory(ctx, v)
	if err != nil {
		return 0, err
	}
	defer inv.close()
	if err := inv.useBitmaps(ctx); err != nil || inv.bitmaps == nil {
		return 0, err
	}
	return inv.bitmaps.file.Count, nil
}
