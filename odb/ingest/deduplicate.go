package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/odb/fair"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// deduplicate rewrites the segment without repeated objects, if there are any, and reports whether
// there were: a segment holds each object once. Git sends no such pack, but its readers accept one.
//
// Of the entries of one object it keeps the one with the shortest delta chain. So chains stay free
// of cycles: the base of a kept entry has a shorter chain than the entry, and the replacement of
// the base has none longer than that.
func (in *Ingest) deduplicate(ctx context.Context) (bool, error) {
	if in.distinct == in.table.count()+len(in.thin) {
		return false, nil
	}
	d := deduplication{
		in:       in,
		replaced: make(map[uint32]uint32),
		ids:      make(map[uint32]object.ID),
		entries:  make([]pack.Entry, in.table.count()+len(in.thin)),
	}
	if err := d.choose(ctx); err != nil {
		return false, err
	}
	old := in.intake.segment
	fresh, err := segment.NewWriter(ctx, in.store.Env())
	if err != nil {
		return false, err
	}
	if err = d.copyEntries(ctx, fresh); err == nil {
		err = d.copyRows(ctx, fresh)
	}
	in.intake.segment = fresh
	return true, errors.Join(err, old.Abort())
}

// deduplication is the copy of a segment with repeated objects to one without.
type deduplication struct {
	in       *Ingest
	replaced map[uint32]uint32    // dropped ordinals, and those kept in their place
	ids      map[uint32]object.ID // of ordinals kept in place of others
	entries  []pack.Entry         // as written, by their old ordinals
}

// choose finds the repeated objects: their rows are adjacent.
func (d *deduplication) choose(ctx context.Context) error {
	var same []uint32
	var id object.ID
	for row, err := range d.in.intake.segment.Rows(ctx) {
		if err != nil {
			return err
		}
		if row.ID != id {
			d.keepShortest(id, same)
			same = same[:0]
		}
		id = row.ID
		same = append(same, d.in.ordinalAt(row.Offset))
	}
	d.keepShortest(id, same)
	return nil
}

func (d *deduplication) keepShortest(id object.ID, same []uint32) {
	if len(same) < 2 {
		return
	}
	best := slices.MinFunc(same, func(a, b uint32) int { return d.in.chainLength(a) - d.in.chainLength(b) })
	for _, ordinal := range same {
		if ordinal != best {
			d.replaced[ordinal] = best
		}
	}
	d.ids[best] = id
	if slices.ContainsFunc(same, d.in.external) {
		d.in.sentBases[id] = struct{}{}
	}
}

// copyEntries writes the kept entries, in their order, as a pack. A delta whose base was dropped
// names the base by ID, since the replacement may lie behind it.
func (d *deduplication) copyEntries(ctx context.Context, dst *segment.Writer) error {
	buffered := bufio.NewWriterSize(dst, segment.CopyBufferSize)
	w := pack.NewWriter(buffered, uint32(len(d.entries)-len(d.replaced)))
	for i := range d.entries {
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		ordinal := uint32(i)
		if _, dropped := d.replaced[ordinal]; dropped {
			continue
		}
		header, n, err := d.in.entryHeader(ordinal)
		if err != nil {
			return err
		}
		if header.Kind.IsDelta() {
			base := d.in.table.bases[ordinal]
			if kept, dropped := d.replaced[base]; dropped {
				header = pack.EntryHeader{Kind: pack.KindRefDelta, Size: header.Size, BaseID: d.ids[kept]}
			} else if header.Kind == pack.KindOFSDelta {
				header.BaseDistance = w.Offset() - d.entries[base].Offset
			}
		}
		start, size := d.in.entrySpan(ordinal)
		payload := io.NewSectionReader(&d.in.intake, start+int64(n), size-int64(n))
		if d.entries[i], err = w.WriteDeflatedFrom(header, payload, payload.Size()); err != nil {
			return err
		}
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// copyRows adds the rows of the kept entries.
func (d *deduplication) copyRows(ctx context.Context, dst *segment.Writer) error {
	for row, err := range d.in.intake.segment.Rows(ctx) {
		if err != nil {
			return err
		}
		ordinal := d.in.ordinalAt(row.Offset)
		if _, dropped := d.replaced[ordinal]; dropped {
			continue
		}
		if row.Base >= 0 {
			base := d.in.ordinalAt(row.Base)
			if kept, dropped := d.replaced[base]; dropped {
				base = kept
			}
			row.Base = d.entries[base].Offset
		}
		written := &d.entries[ordinal]
		row.Offset, row.PackedSize, row.CRC32 = written.Offset, written.PackedSize, written.CRC32
		if err := dst.AddRow(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// entrySpan returns the place of an entry, or of a thin-pack base in the segment.
func (in *Ingest) entrySpan(ordinal uint32) (offset, size int64) {
	if !in.external(ordinal) {
		return in.table.offsets[ordinal], in.table.packedSize(ordinal)
	}
	i := int(ordinal) - in.table.count()
	end := in.intake.segment.Size()
	if i+1 < len(in.thin) {
		end = in.thin[i+1].offset
	}
	return in.thin[i].offset, end - in.thin[i].offset
}

// ordinalAt returns the ordinal of the entry at an offset of the segment.
func (in *Ingest) ordinalAt(offset int64) uint32 {
	if at, ok := in.table.at(offset); ok {
		return at
	}
	at, _ := slices.BinarySearchFunc(in.thin, offset, func(b thinBase, offset int64) int { return int(b.offset - offset) })
	return uint32(in.table.count() + at)
}

// chainLength returns the number of deltas below an entry.
func (in *Ingest) chainLength(ordinal uint32) int {
	length := 0
	for ; !in.isRoot(ordinal); ordinal = in.table.bases[ordinal] {
		length++
	}
	return length
}
