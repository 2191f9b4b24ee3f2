package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"packhorse/odb/extsort"
	"packhorse/odb/file"
	"packhorse/pack/object"
)

// graphTable collects graph rows and writes a graph file. Memory does not grow with the number of
// rows or of parents.
type graphTable struct {
	files file.Store
	// rows: id 20, tree 20, seconds 8, generation 4, parent count 4, then two parents of 20 each. For
	// more parents the two are replaced by the offset 8 of all parents in the scratch file.
	rows    *extsort.Sorter
	octopus file.Scratch // nil until a commit has more than two parents
	parents int64
}

const (
	graphRecordHead = object.IDSize + object.IDSize + 8 + 4 + 4
	graphRecordSize = graphRecordHead + 2*object.IDSize
)

func newGraphTable(files file.Store) *graphTable {
	return &graphTable{files: files, rows: extsort.New(files, graphRecordSize)}
}

func (t *graphTable) add(ctx context.Context, id object.ID, row *GraphRow) error {
	var record [graphRecordSize]byte
	dst := append(record[:0], id[:]...)
	dst = append(dst, row.Tree[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.Seconds))
	dst = binary.BigEndian.AppendUint32(dst, row.Generation)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(row.Parents)))
	if len(row.Parents) <= 2 {
		for _, parent := range row.Parents {
			dst = append(dst, parent[:]...)
		}
	} else {
		offset, err := t.addOctopus(ctx, row.Parents)
		if err != nil {
			return err
		}
		binary.BigEndian.AppendUint64(dst, uint64(offset))
	}
	t.parents += int64(len(row.Parents))
	if t.parents > math.MaxUint32 {
		return fmt.Errorf("graph of a segment: %w", ErrTooLarge)
	}
	return t.rows.Add(ctx, record[:])
}

func (t *graphTable) addOctopus(ctx context.Context, parents []object.ID) (int64, error) {
	if t.octopus == nil {
		scratch, err := t.files.Scratch(ctx)
		if err != nil {
			return 0, fmt.Errorf("make scratch file: %w", err)
		}
		t.octopus = scratch
	}
	offset := t.octopus.Size()
	for _, parent := range parents {
		if _, err := t.octopus.Write(parent[:]); err != nil {
			return 0, fmt.Errorf("write scratch file: %w", err)
		}
	}
	return offset, nil
}

// write creates the auxiliary file, makes it durable, and returns its size.
func (t *graphTable) write(ctx context.Context, files file.Store, id LayerID) (int64, error) {
	return writeAuxiliary(ctx, files, KindGraph, id, func(sections *SectionWriter) (int, error) {
		return t.rows.Count, t.writeSections(ctx, sections)
	})
}

func (t *graphTable) writeSections(ctx context.Context, sections *SectionWriter) error {
	var fanout [256]uint32
	var previous []byte
	sections.Begin(SectionIDs)
	for record, err := range t.rows.All(ctx) {
		if err != nil {
			return err
		}
		id := record[:object.IDSize]
		if bytes.Equal(id, previous) {
			return fmt.Errorf("%w: commit %x occurs twice", errRows, id)
		}
		previous = append(previous[:0], id...)
		fanout[id[0]]++
		sections.Add(id)
	}
	for i := 1; i < len(fanout); i++ {
		fanout[i] += fanout[i-1]
	}
	sections.AddFanout(&fanout)

	sections.Begin(sectionRows)
	first := uint32(0)
	for record, err := range t.rows.All(ctx) {
		if err != nil {
			return err
		}
		count := record[graphRecordHead-4 : graphRecordHead]
		var item [graphItemSize]byte
		dst := append(item[:0], record[object.IDSize:graphRecordHead-4]...)
		dst = binary.BigEndian.AppendUint32(dst, first)
		sections.Add(append(dst, count...))
		first += binary.BigEndian.Uint32(count)
	}

	sections.Begin(sectionParents)
	for record, err := range t.rows.All(ctx) {
		if err != nil {
			return err
		}
		if err := t.addParents(sections, record); err != nil {
			return err
		}
	}
	return nil
}

func (t *graphTable) addParents(sections *SectionWriter, record []byte) error {
	count := int64(binary.BigEndian.Uint32(record[graphRecordHead-4:]))
	rest := record[graphRecordHead:]
	if count <= 2 {
		for i := range count {
			sections.Add(rest[i*object.IDSize : (i+1)*object.IDSize])
		}
		return nil
	}
	offset := int64(binary.BigEndian.Uint64(rest))
	var parent [object.IDSize]byte
	for i := range count {
		if err := ReadFullAt(t.octopus, parent[:], offset+i*object.IDSize); err != nil {
			return fmt.Errorf("read scratch file: %w", err)
		}
		sections.Add(parent[:])
	}
	return nil
}

func (t *graphTable) close() error {
	err := t.rows.Close()
	if t.octopus != nil {
		err = errors.Join(err, t.octopus.Close())
		t.octopus = nil
	}
	return err
}
