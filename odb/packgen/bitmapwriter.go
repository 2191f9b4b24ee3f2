package packgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// bitmapWriter collects the bitmaps of commits and writes a bitmap file. It holds the last few
// bitmaps decoded, and the encoded form of all.
type bitmapWriter struct {
	wordCount int
	rows      []writtenBitmap
	types     [4][]byte // of commits, trees, blobs and tags
	recent    []recentBitmap
}

type writtenBitmap struct {
	commit object.ID
	data   []byte
	base   int // index in rows, or -1
}

// recentBitmap is a bitmap that later ones may be XORed with.
type recentBitmap struct {
	row, depth int
	words      []uint64
}

// bitmapBasesMax is the number of recent bitmaps that are tried as the base of another one.
const bitmapBasesMax = 8

// add adds the bitmap of a commit, which the caller must not change afterwards. Bitmaps that differ
// little should be added one after another.
func (w *bitmapWriter) add(commit object.ID, words []uint64) error {
	best, least, depth := -1, countBits(words), 0
	var against []uint64
	for _, r := range w.recent {
		if n := countDifferences(words, r.words, least); n < least && r.depth+1 < bitmapChainMax {
			best, least, depth, against = r.row, n, r.depth+1, r.words
		}
	}
	data, err := encodeBitmap(words, against)
	if err != nil {
		return fmt.Errorf("bitmap of commit %s: %w", commit, err)
	}
	w.rows = append(w.rows, writtenBitmap{commit, data, best})
	w.recent = append(w.recent, recentBitmap{len(w.rows) - 1, depth, words})
	if len(w.recent) > bitmapBasesMax {
		w.recent = slices.Delete(w.recent, 0, 1)
	}
	return nil
}

func countBits(words []uint64) int {
	n := 0
	for _, word := range words {
		n += bits.OnesCount64(word)
	}
	return n
}

// countDifferences counts the bits in which a and b differ; it may stop counting above limit.
func countDifferences(a, b []uint64, limit int) int {
	n := 0
	for i, word := range a {
		if n += bits.OnesCount64(word ^ b[i]); n > limit {
			break
		}
	}
	return n
}

// encodeBitmap returns the stored form of a bitmap, XORed with against unless that is nil.
func encodeBitmap(words, against []uint64) ([]byte, error) {
	if against != nil {
		words = slices.Clone(words)
		for i := range words {
			words[i] ^= against[i]
		}
	}
	bitmap := roaring.FromDense(words, false)
	bitmap.RunOptimize()
	return bitmap.ToBytes()
}

// write writes the sections of the auxiliary file for the segments that layers name, and returns
// the number of bitmaps.
func (w *bitmapWriter) write(sections *segment.SectionWriter, layers []segment.LayerID, counts []int) int {
	sections.Begin(segment.SectionBitmapLayers)
	for i, id := range layers {
		sections.Add(binary.BigEndian.AppendUint32(bytes.Clone(id[:]), uint32(counts[i])))
	}
	order := make([]int, len(w.rows)) // by ID
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return w.rows[a].commit.Compare(w.rows[b].commit) })
	places := make([]uint32, len(w.rows))
	var fanout [256]uint32
	sections.Begin(segment.SectionIDs)
	for place, i := range order {
		places[i] = uint32(place)
		id := w.rows[i].commit
		fanout[id[0]]++
		sections.Add(id[:])
	}
	for i := 1; i < len(fanout); i++ {
		fanout[i] += fanout[i-1]
	}
	sections.AddFanout(&fanout)
	w.writeRows(sections, order, places)
	return len(w.rows)
}

// writeRows writes the bitmaps: those of the types first, then those of commits in the order of
// add.
func (w *bitmapWriter) writeRows(sections *segment.SectionWriter, order []int, places []uint32) {
	offset := int64(0)
	row := func(data []byte, base uint32) []byte {
		r := bitmapRow{offset: offset, size: int64(len(data)), base: base}
		offset += r.size
		return r.append(nil)
	}
	sections.Begin(segment.SectionBitmapTypes)
	for _, data := range w.types {
		sections.Add(row(data, segment.NoOrdinal))
	}
	rows := make([][]byte, len(w.rows))
	for i, b := range w.rows {
		base := segment.NoOrdinal
		if b.base >= 0 {
			base = places[b.base]
		}
		rows[i] = row(b.data, base)
	}
	sections.Begin(segment.SectionBitmapRows)
	for _, i := range order {
		sections.Add(rows[i])
	}
	sections.Begin(segment.SectionBitmapBytes)
	for _, data := range w.types {
		sections.AddBytes(data)
	}
	for _, b := range w.rows {
		sections.AddBytes(b.data)
	}
}

// addTypes computes the bitmap of each type.
func (w *bitmapWriter) addTypes(ctx context.Context, inv *inventory, spans []bitmapSpan) error {
	var words [4][]uint64
	for i := range words {
		words[i] = make([]uint64, w.wordCount)
	}
	for _, span := range spans {
		g := inv.segments[span.layer]
		records := segment.NewRecordReader(g)
		for ordinal := range uint32(g.Count) {
			t, _, _, err := records.Info(ctx, ordinal)
			if err != nil {
				return err
			}
			if !t.Valid() {
				return g.Damaged(fmt.Errorf("%w: impossible record %d", segment.ErrFormat, ordinal))
			}
			words[t-object.TypeCommit][span.first+int(ordinal/64)] |= 1 << (ordinal % 64)
		}
	}
	for i := range words {
		var err error
		if w.types[i], err = encodeBitmap(words[i], nil); err != nil {
			return err
		}
	}
	return nil
}
