// Package segment has the immutable files of the object database: segments, whose data region is a
// valid packfile as it was pushed, and their auxiliary files (graph rows, path filters, path
// histories, trigrams, bitmaps). It defines their formats, writes them, and reads them verified,
// through one cache and a bounded set of open files. It knows nothing of pools and manifests.
//
// Start at [Writer] to write a segment and at [OpenFiles] to read one. The map, by file:
//
//	layerid, registration, obsolete  IDs and kinds of layers, and the names of their files; rows about files
//	env, damage, cache, openfiles    what files are read with; the log of damage; LRU of blocks
//	section, sectionwriter           sectioned files: checked blocks of fixed-size items, a footer
//	index                            sorted object IDs: lookups, ranges
//	segment, region, contentstream,  a segment: records, pack order, block tables; its entries, verified
//	recordreader, refuseddelta
//	writer, indextable, blockpipe    writing one: data as it comes, then the sorted index; large blobs as
//	                                 streams of blocks
//	summary                          a segment as a whole, for reuse without opening an object
//	graphrow, graphfile, graphtable, auxiliary files: commit-graph rows, path filters, path histories,
//	filterfile, historyfile,         trigrams
//	trigramfile, sizedrow, auxiliary
//	verified                         reads whose bytes are checked, of a copy twice
//	filecheck                        the checksums of a file while it is copied
package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sort"

	"packhorse/pack"
	"packhorse/pack/object"
)

// Segment is an open segment file; it is valid until its file is released. The ordinal of an object
// is its index among the sorted IDs. Its position is its index among the entries of the data
// region.
type Segment struct{ *File }

// NoOrdinal is the ordinal of an entry that is not in a sealed segment, and the base of an entry
// that is no delta.
const NoOrdinal = ^uint32(0)

// Record is the index record of an object.
//
//	5 offset | 5 packed size | 5 size | 1 type and flags | 4 ordinal of the base, all ones for none | 4 CRC-32
type Record struct {
	Offset     int64       // of the entry in the data region
	PackedSize int64       // of the entry, header included
	Size       int64       // of the object
	Type       object.Type // of the object
	Blocks     bool        // the entry is a block stream and has a table
	Base       uint32      // ordinal of the delta base, or NoOrdinal
	CRC32      uint32      // IEEE, of the entry
}

const (
	recordSize     = 5 + 5 + 5 + 1 + 4 + 4
	recordTypeMask = 0x07
	recordBlocks   = 0x08
	// offsetMax is the largest offset or size that an index holds: 1 TiB.
	offsetMax = 1<<40 - 1
)

func (r *Record) append(dst []byte) []byte {
	dst = appendUint40(dst, r.Offset)
	dst = appendUint40(dst, r.PackedSize)
	dst = appendUint40(dst, r.Size)
	flags := byte(r.Type)
	if r.Blocks {
		flags |= recordBlocks
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, r.Base)
	return binary.BigEndian.AppendUint32(dst, r.CRC32)
}

func decodeRecord(b []byte) Record {
	return Record{
		Offset:     uint40(b),
		PackedSize: uint40(b[5:]),
		Size:       uint40(b[10:]),
		Type:       object.Type(b[15] & recordTypeMask),
		Blocks:     b[15]&recordBlocks != 0,
		Base:       binary.BigEndian.Uint32(b[16:]),
		CRC32:      binary.BigEndian.Uint32(b[20:]),
	}
}

func appendUint40(dst []byte, v int64) []byte {
	return append(dst, byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func uint40(b []byte) int64 {
	return int64(b[0])<<32 | int64(binary.BigEndian.Uint32(b[1:]))
}

// Record returns the index record at an ordinal.
func (g Segment) Record(ctx context.Context, ordinal uint32) (Record, error) {
	item, err := g.Item(ctx, sectionRecords, int(ordinal))
	if err != nil {
		return Record{}, err
	}
	return g.parseRecord(item, ordinal)
}

// parseRecord decodes and checks the record at an ordinal.
func (g Segment) parseRecord(item []byte, ordinal uint32) (Record, error) {
	r := decodeRecord(item)
	if r.Offset < pack.HeaderSize || r.PackedSize <= 0 || r.Offset+r.PackedSize > g.DataSize || !r.Type.Valid() ||
		(r.Base != NoOrdinal && int(r.Base) >= g.Count) {
		return r, g.Damaged(fmt.Errorf("%w: impossible record %d", ErrFormat, ordinal))
	}
	return r, nil
}

// InPackOrder walks the ordinals of the objects at the positions first <= position < end, in the
// order of the data region.
func (g Segment) InPackOrder(ctx context.Context, first, end uint32) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		perBlock := uint32(g.sections[sectionOrder].perBlock())
		for position := first; position < end; {
			n := position / perBlock
			block, err := g.block(ctx, sectionOrder, int(n))
			if err != nil {
				yield(0, err)
				return
			}
			for ; position < end && position/perBlock == n; position++ {
				if !yield(binary.BigEndian.Uint32(block[4*(position-n*perBlock):]), nil) {
					return
				}
			}
		}
	}
}

// Region returns a reader of the segment's entries.
func (g Segment) Region() Region {
	return Region{env: g.env, Layer: g.Layer, Data: g.Handle, segment: g}
}

// objectAt returns the object whose entry covers an offset of the data region, or the zero ID if
// the index is damaged. It is for errors.
func (g Segment) objectAt(ctx context.Context, offset int64) object.ID {
	ordinalOf := func(position int) (uint32, error) {
		item, err := g.Item(ctx, sectionOrder, position)
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint32(item), nil
	}
	var failed error
	behind := sort.Search(g.Count, func(position int) bool {
		ordinal, err := ordinalOf(position)
		var r Record
		if err == nil {
			r, err = g.Record(ctx, ordinal)
		}
		failed = errors.Join(failed, err)
		return err != nil || r.Offset > offset
	})
	if failed != nil || behind == 0 {
		return object.ZeroID
	}
	ordinal, err := ordinalOf(behind - 1)
	if err != nil {
		return object.ZeroID
	}
	id, err := g.ID(ctx, ordinal)
	if err != nil {
		return object.ZeroID
	}
	return id
}

// IsProvisional reports whether the segment is delta-incomplete: maintenance searches its deltas
// again among more objects.
func (g Segment) IsProvisional() bool { return g.sections[sectionProvisional].count() > 0 }

// BlockTable returns the table of a block stream of size bytes, with the checksums of its packed
// blocks. Errors: [ErrCorrupt].
func (g Segment) BlockTable(ctx context.Context, ordinal uint32, size int64) (pack.BlockTable, []uint32, error) {
	var err error
	at := sort.Search(g.sections[sectionStreams].count(), func(i int) bool {
		var item []byte
		if err == nil {
			item, err = g.Item(ctx, sectionStreams, i)
		}
		return err != nil || binary.BigEndian.Uint32(item) >= ordinal
	})
	if err != nil {
		return pack.BlockTable{}, nil, err
	}
	item, err := g.Item(ctx, sectionStreams, at)
	if err != nil {
		return pack.BlockTable{}, nil, err
	}
	first, count := int(binary.BigEndian.Uint32(item[4:])), int(binary.BigEndian.Uint32(item[8:]))
	total := g.sections[sectionStreamBlocks].count()
	if binary.BigEndian.Uint32(item) != ordinal || first > total || count > total-first ||
		int64(count) != (size+pack.BlockSize-1)/pack.BlockSize {
		return pack.BlockTable{}, nil, g.Damaged(fmt.Errorf("%w: no block table for %d", ErrFormat, ordinal))
	}
	table := pack.BlockTable{Size: size, Rows: make([]pack.BlockRow, count), End: uint40(item[12:])}
	sums := make([]uint32, count)
	for i := range table.Rows {
		if item, err = g.Item(ctx, sectionStreamBlocks, first+i); err != nil {
			return pack.BlockTable{}, nil, err
		}
		table.Rows[i] = pack.BlockRow{Offset: uint40(item), Adler: binary.BigEndian.Uint32(item[5:])}
		sums[i] = binary.BigEndian.Uint32(item[9:])
	}
	return table, sums, nil
}

// BlockStreams walks the ordinals of the objects that are stored as block streams, in ascending
// order.
func (g Segment) BlockStreams(ctx context.Context) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		for i := range g.ItemCount(sectionStreams) {
			item, err := g.Item(ctx, sectionStreams, i)
			if err != nil {
				yield(0, err)
				return
			}
			if !yield(binary.BigEndian.Uint32(item), nil) {
				return
			}
		}
	}
}

const (
	streamItemSize  = 4 + 4 + 4 + 5
	streamBlockSize = 5 + 4 + 4
)
