package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"packhorse/odb/extsort"
	"packhorse/odb/file"
	"packhorse/pack"
	"packhorse/pack/object"
)

// indexTable collects the rows of a segment and writes its index. A row refers to its base by
// offset. The index stores ordinals, which are known only after the IDs have been sorted:
//
//	rows by ID               give the ordinals, the IDs and the fan-out
//	(offset, ordinal) sorted  gives the pack order
//	(base's offset, ordinal)  joined with the former gives (ordinal, base's ordinal)
//
// Every table is an [extsort.Sorter], so memory does not grow with the number of objects.
type indexTable struct {
	rows    *extsort.Sorter // id 20, offset 5, packed 5, size 5, type 1, base offset 5, CRC-32 4
	offsets *extsort.Sorter // offset 5, ordinal 4, packed 5
	bases   *extsort.Sorter // base offset 5, ordinal 4
	joined  *extsort.Sorter // ordinal 4, base ordinal 4
	streams []BlockStream
}

// BlockStream is the block table of the blob ID. Sums are the CRC-32C of the packed blocks.
type BlockStream struct {
	ID    object.ID
	Table pack.BlockTable
	Sums  []uint32
}

const (
	rowSize    = object.IDSize + 5 + 5 + 5 + 1 + 5 + 4
	noBase     = offsetMax // the offset of no entry
	typeWhole  = 0
	offsetSize = 5
)

func newIndexTable(files file.Store) *indexTable {
	return &indexTable{
		rows:    extsort.New(files, rowSize),
		offsets: extsort.New(files, offsetSize+4+5),
		bases:   extsort.New(files, offsetSize+4),
		joined:  extsort.New(files, 4+4),
	}
}

func (t *indexTable) add(ctx context.Context, row *Row) error {
	if row.Offset+row.PackedSize >= offsetMax || row.Size >= offsetMax || t.rows.Count >= int(NoOrdinal) {
		return fmt.Errorf("index of a segment: %w", ErrTooLarge)
	}
	base := row.Base
	if base < 0 {
		base = noBase
	}
	var buffer [rowSize]byte
	record := append(buffer[:0], row.ID[:]...)
	record = appendUint40(record, row.Offset)
	record = appendUint40(record, row.PackedSize)
	record = appendUint40(record, row.Size)
	record = append(record, byte(row.Type))
	record = appendUint40(record, base)
	record = binary.BigEndian.AppendUint32(record, row.CRC32)
	return t.rows.Add(ctx, record)
}

func decodeRow(record []byte) Row {
	rest := record[object.IDSize:]
	row := Row{
		ID:         object.ID(record),
		Offset:     uint40(rest),
		PackedSize: uint40(rest[5:]),
		Size:       uint40(rest[10:]),
		Type:       object.Type(rest[15]),
		Base:       uint40(rest[16:]),
		CRC32:      binary.BigEndian.Uint32(rest[21:]),
	}
	if row.Base == noBase {
		row.Base = -1
	}
	return row
}

func (t *indexTable) addStream(id object.ID, table pack.BlockTable, sums []uint32) {
	t.streams = append(t.streams, BlockStream{ID: id, Table: table, Sums: sums})
}

// errRows says that the rows do not describe the data region: the packfile or its reader is wrong.
var errRows = errors.New("odb: rows do not fit the data region")

// write writes the index sections of the data region in front of sections.
func (t *indexTable) write(ctx context.Context, sections *SectionWriter) error {
	if err := t.writeIDs(ctx, sections); err != nil {
		return err
	}
	if err := t.writeOrder(ctx, sections); err != nil {
		return err
	}
	if err := t.writeRecords(ctx, sections); err != nil {
		return err
	}
	return t.writeStreams(ctx, sections)
}

// writeIDs assigns the ordinals and writes IDs and fan-out.
func (t *indexTable) writeIDs(ctx context.Context, sections *SectionWriter) error {
	var fanout [256]uint32
	var previous object.ID
	ordinal := uint32(0)
	sections.Begin(SectionIDs)
	for record, err := range t.rows.All(ctx) {
		if err != nil {
			return err
		}
		row := decodeRow(record)
		if ordinal > 0 && row.ID == previous {
			return fmt.Errorf("%w: object %s occurs twice", errRows, row.ID)
		}
		previous = row.ID
		fanout[row.ID[0]]++
		sections.Add(row.ID[:])
		var buffer [offsetSize + 4 + 5]byte
		err = t.offsets.Add(ctx, appendUint40(binary.BigEndian.AppendUint32(appendUint40(buffer[:0], row.Offset), ordinal),
			row.PackedSize))
		if err == nil && row.Base >= 0 {
			err = t.bases.Add(ctx, binary.BigEndian.AppendUint32(appendUint40(buffer[:0], row.Base), ordinal))
		}
		if err != nil {
			return err
		}
		ordinal++
	}
	for i := 1; i < len(fanout); i++ {
		fanout[i] += fanout[i-1]
	}
	sections.AddFanout(&fanout)
	return nil
}

// writeOrder writes the pack order, verifies that the entries fill the data region, and finds the
// ordinals of the bases.
func (t *indexTable) writeOrder(ctx context.Context, sections *SectionWriter) error {
	nextBase, stop := iter.Pull2(t.bases.All(ctx))
	defer stop()
	base, err, more := nextBase()
	expected := int64(pack.HeaderSize)
	sections.Begin(sectionOrder)
	for record, walkErr := range t.offsets.All(ctx) {
		if err = errors.Join(walkErr, err); err != nil {
			return err
		}
		offset := uint40(record)
		if offset != expected {
			return fmt.Errorf("%w: an entry at %d where %d was expected", errRows, offset, expected)
		}
		ordinal := record[offsetSize : offsetSize+4]
		expected += uint40(record[offsetSize+4:])
		sections.Add(ordinal)
		for more && err == nil && bytes.Equal(base[:offsetSize], record[:offsetSize]) {
			var pair [8]byte
			if err = t.joined.Add(ctx, append(append(pair[:0], base[offsetSize:]...), ordinal...)); err != nil {
				return err
			}
			base, err, more = nextBase()
		}
	}
	if err != nil {
		return err
	}
	if more {
		return fmt.Errorf("%w: no entry at %d, which is the base of another", errRows, uint40(base))
	}
	if expected != sections.dataSize-pack.TrailerSize {
		return fmt.Errorf("%w: entries end at %d of %d", errRows, expected, sections.dataSize)
	}
	return nil
}

func (t *indexTable) writeRecords(ctx context.Context, sections *SectionWriter) error {
	slices.SortFunc(t.streams, func(a, b BlockStream) int { return a.ID.Compare(b.ID) })
	streams := t.streams
	nextJoined, stop := iter.Pull2(t.joined.All(ctx))
	defer stop()
	joined, err, more := nextJoined()
	ordinal := uint32(0)
	sections.Begin(sectionRecords)
	for record, walkErr := range t.rows.All(ctx) {
		if err = errors.Join(walkErr, err); err != nil {
			return err
		}
		row := decodeRow(record)
		r := Record{
			Offset: row.Offset, PackedSize: row.PackedSize, Size: row.Size, Type: row.Type, Base: NoOrdinal, CRC32: row.CRC32,
		}
		if more && binary.BigEndian.Uint32(joined) == ordinal {
			r.Base = binary.BigEndian.Uint32(joined[4:])
			joined, err, more = nextJoined()
		}
		if len(streams) > 0 && streams[0].ID == row.ID {
			r.Blocks = true
			streams = streams[1:]
		}
		var buffer [recordSize]byte
		sections.Add(r.append(buffer[:0]))
		ordinal++
	}
	return err
}

// writeStreams writes the tables of block streams, sorted by the IDs of their objects.
func (t *indexTable) writeStreams(ctx context.Context, sections *SectionWriter) error {
	if len(t.streams) == 0 {
		return nil
	}
	sections.Begin(sectionStreams)
	streams, first := t.streams, 0
	ordinal := uint32(0)
	for record, err := range t.rows.All(ctx) {
		if err != nil {
			return err
		}
		if len(streams) == 0 {
			break
		}
		if stream := &streams[0]; stream.ID == object.ID(record) {
			item := binary.BigEndian.AppendUint32(nil, ordinal)
			item = binary.BigEndian.AppendUint32(item, uint32(first))
			item = binary.BigEndian.AppendUint32(item, uint32(len(stream.Table.Rows)))
			sections.Add(appendUint40(item, stream.Table.End))
			first += len(stream.Table.Rows)
			streams = streams[1:]
		}
		ordinal++
	}
	if len(streams) > 0 {
		return fmt.Errorf("%w: no row for the block stream %s", errRows, streams[0].ID)
	}
	sections.Begin(sectionStreamBlocks)
	for i := range t.streams {
		for n, row := range t.streams[i].Table.Rows {
			item := binary.BigEndian.AppendUint32(appendUint40(nil, row.Offset), row.Adler)
			sections.Add(binary.BigEndian.AppendUint32(item, t.streams[i].Sums[n]))
		}
	}
	return nil
}

func (t *indexTable) close() error {
	return errors.Join(t.rows.Close(), t.offsets.Close(), t.bases.Close(), t.joined.Close())
}
