package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zlib"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// thinBase is a stored object that is the base of deltas of a thin pack. Its ordinal follows those
// of the pack's entries.
type thinBase struct {
	id     object.ID
	info   odb.Info
	offset int64 // in the segment that it was added to; -1 when the pack is in memory
}

// external reports whether an ordinal is that of a thin-pack base.
func (in *Ingest) external(ordinal uint32) bool { return int(ordinal) >= in.table.count() }

// baseOffset returns the offset of a base.
func (in *Ingest) baseOffset(ordinal uint32) int64 {
	if in.external(ordinal) {
		return in.thin[int(ordinal)-in.table.count()].offset
	}
	return in.table.offsets[ordinal]
}

// findBases finds stored objects for the deltas that have no base in the pack, and returns them
// with those deltas. If the pack is a segment, it appends them, which completes the pack.
func (in *Ingest) findBases(ctx context.Context) ([]branch, error) {
	var wanted []object.ID
	for child := range in.refs.untaken() {
		id, err := in.refBase(child)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, id)
	}
	var roots []branch
	for _, id := range segment.SortIDs(wanted) {
		root, err := in.findBase(ctx, id)
		if errors.Is(err, odb.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("delta base %s: %w", id, err)
		}
		roots = append(roots, root)
	}
	return roots, nil
}

func (in *Ingest) findBase(ctx context.Context, id object.ID) (branch, error) {
	info, err := in.view.Stat(ctx, id)
	if err != nil {
		return branch{}, err
	}
	ordinal := uint32(in.table.count() + len(in.thin))
	if err := in.addBase(ctx, thinBase{id: id, info: info, offset: -1}); err != nil {
		return branch{}, err
	}
	children, err := in.takeRefs(id, ordinal)
	return branch{ordinal: ordinal, t: info.Type, children: children}, err
}

func (in *Ingest) addBase(ctx context.Context, base thinBase) error {
	if in.intake.segment == nil {
		in.thin = append(in.thin, base)
		return nil
	}
	ordinal := uint32(in.table.count() + len(in.thin))
	if err := in.links.add(ctx, []linkItem{{id: base.id, ordinal: ordinal, is: base.info.Type}}); err != nil {
		return err
	}
	if base.info.Size > in.held(base.info.Type) {
		return in.appendLarge(ctx, base)
	}
	_, data, err := in.view.Read(ctx, base.id)
	if err != nil {
		return err
	}
	return in.appendWhole(ctx, base, data)
}

// appendLarge is appendWhole for an object that is not held in memory.
func (in *Ingest) appendLarge(ctx context.Context, base thinBase) error {
	opened, err := in.view.Open(ctx, base.id)
	if err != nil {
		return err
	}
	defer opened.Close()
	w := in.rewind()
	row := segment.Row{ID: base.id, Type: base.info.Type, Size: base.info.Size, Offset: w.Size(), Base: -1}
	sum := crc32.NewIEEE()
	buffered := bufio.NewWriterSize(io.MultiWriter(w, sum), segment.CopyBufferSize)
	header := pack.EntryHeader{Kind: pack.EntryKind(base.info.Type), Size: base.info.Size}
	if _, err := buffered.Write(header.Append(nil)); err != nil {
		return err
	}
	deflater, err := zlib.NewWriterLevel(buffered, segment.Level)
	if err != nil {
		return err
	}
	if _, err := opened.WriteTo(deflater); err != nil {
		return err
	}
	if err := errors.Join(deflater.Close(), buffered.Flush()); err != nil {
		return err
	}
	row.PackedSize, row.CRC32 = w.Size()-row.Offset, sum.Sum32()
	return in.addBaseRow(ctx, base, &row)
}

// stored reads a base from the pool.
func (in *Ingest) stored(ctx context.Context, ordinal uint32) (content, error) {
	base := in.thin[int(ordinal)-in.table.count()]
	if base.info.Size <= in.held(base.info.Type) {
		_, data, err := in.view.Read(ctx, base.id)
		if data == nil {
			data = []byte{}
		}
		return content{data: data, shared: true, size: base.info.Size}, err
	}
	opened, err := in.view.Open(ctx, base.id)
	if err != nil {
		return content{}, err
	}
	defer opened.Close()
	spool, err := in.store.Env().Files.Scratch(ctx)
	if err != nil {
		return content{}, err
	}
	w := bufio.NewWriterSize(spool, segment.CopyBufferSize)
	_, err = opened.WriteTo(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return content{}, errors.Join(err, spool.Close())
	}
	return content{spool: spool, size: base.info.Size}, nil
}
