package odb

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"

	"packhorse/odb/file"
	"packhorse/odb/segment"
	"packhorse/pack"
)

// blockSource reads a block stream by its table. Every block is verified before any of its content
// is returned.
type blockSource struct {
	ctx     context.Context // an Object is read within the call that opened it
	layer   *SegmentLayer
	segment segment.Segment // held until Close
	at      Location
	start   int64 // of the zlib stream in the data region
	table   pack.BlockTable
	sums    []uint32 // CRC-32C per block, as stored
}

// openBlocks returns the source of a block stream, or nil if the entry is none.
func openBlocks(ctx context.Context, l *SegmentLayer, at Location) (objectSource, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	source, err := newBlockSource(ctx, l, g, at)
	if source == nil || err != nil {
		l.Release(g)
		return nil, err
	}
	return source, nil
}

func newBlockSource(ctx context.Context, l *SegmentLayer, g segment.Segment, at Location) (*blockSource, error) {
	r, err := g.Record(ctx, at.ordinal)
	if err != nil || !r.Blocks {
		return nil, err
	}
	e, err := packedEntry(ctx, g.Region(), at, r)
	if err != nil {
		return nil, err
	}
	table, sums, err := g.BlockTable(ctx, at.ordinal, r.Size)
	if err != nil {
		return nil, err
	}
	start := r.Offset + r.PackedSize - e.PayloadSize
	if table.End > e.PayloadSize {
		return nil, g.Damaged(fmt.Errorf("%w: block table of %d", segment.ErrFormat, at.ordinal))
	}
	for i := range table.Rows {
		if offset, packedSize, _ := table.Locate(i); offset < 0 || packedSize <= 0 || packedSize > 2*pack.BlockSize {
			return nil, g.Damaged(fmt.Errorf("%w: block table of %d", segment.ErrFormat, at.ordinal))
		}
	}
	return &blockSource{ctx: ctx, layer: l, segment: g, at: at, start: start, table: table, sums: sums}, nil
}

func (s *blockSource) Close() error {
	s.layer.Release(s.segment)
	return nil
}

func (s *blockSource) open(off, n int64) (io.ReadCloser, error) {
	r := &blockReader{source: s, next: int(off / pack.BlockSize)}
	if n > 0 {
		offset, packedSize, _ := s.table.Locate(int((off + n - 1) / pack.BlockSize))
		r.ahead = file.NewAhead(s.segment.Handle, s.start+offset+packedSize)
	}
	if skip := off % pack.BlockSize; skip > 0 {
		if err := r.fill(); err != nil {
			return nil, err
		}
		r.rest = r.rest[skip:]
	}
	return r, nil
}

// blockReader returns the content of blocks one after another.
type blockReader struct {
	source *blockSource
	next   int    // the block that comes after rest
	rest   []byte // of the current block, in content
	packed []byte
	ahead  file.Ahead
	buffer []byte
}

func (r *blockReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == len(r.source.table.Rows) {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo writes the rest, block by block.
func (r *blockReader) WriteTo(w io.Writer) (int64, error) {
	written := int64(0)
	for {
		n, err := w.Write(r.rest)
		written += int64(n)
		r.rest = r.rest[n:]
		if err != nil || r.next == len(r.source.table.Rows) {
			return written, err
		}
		if err := r.fill(); err != nil {
			return written, err
		}
	}
}

func (r *blockReader) fill() error {
	s := r.source
	if err := s.ctx.Err(); err != nil {
		return err
	}
	offset, packedSize, size := s.table.Locate(r.next)
	if int64(cap(r.packed)) < packedSize {
		r.packed = make([]byte, packedSize)
	}
	packed := r.packed[:packedSize]
	r.ahead.At(s.start + offset)
	err := segment.ReadChecked(s.ctx, s.segment.Handle, packed, s.start+offset, func(packed []byte) error {
		if crc32.Checksum(packed, castagnoli) != s.sums[r.next] {
			return fmt.Errorf("%w: block %d fails its checksum", segment.ErrFormat, r.next)
		}
		return nil
	})
	if err == nil {
		r.buffer, err = pack.DecodeBlock(r.buffer[:0], packed, size, s.table.Rows[r.next].Adler)
	}
	if err != nil {
		return s.layer.store.damage.Wrap(s.segment.FileName(), s.layer.ID, s.at.id, err)
	}
	r.rest = r.buffer
	r.next++
	return nil
}

func (r *blockReader) Close() error {
	r.rest = nil
	r.next = len(r.source.table.Rows)
	return nil
}
