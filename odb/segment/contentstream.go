package segment

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"packhorse/odb/file"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Open returns the inflated content of an entry as a stream. The last bytes come only after every
// check has passed, so a caller that has read all r.Size bytes may use them.
func (d Region) Open(ctx context.Context, r Record, id object.ID) (io.ReadCloser, error) {
	header, headerSize, err := d.Head(ctx, r, id)
	if err != nil {
		return nil, err
	}
	if r.Base == NoOrdinal && header.Size != r.Size {
		return nil, d.Damaged(ctx, id, r.Offset,
			fmt.Errorf("%w: entry at %d has %d bytes, not the %d of the index", ErrFormat, r.Offset, header.Size, r.Size))
	}
	s := &contentStream{ctx: ctx, region: d, id: id, record: r, left: header.Size}
	s.packed = file.NewSectionReader(ctx, d.Data, r.Offset, r.PackedSize)
	s.ahead = file.NewAhead(d.Data, r.Offset+r.PackedSize)
	if _, err := io.CopyN(&s.sum, s.packed, headerSize); errors.Is(err, io.EOF) {
		return nil, d.Damaged(ctx, id, r.Offset, fmt.Errorf("%w: cut off at %d", ErrFormat, r.Offset))
	} else if err != nil {
		return nil, d.Damaged(ctx, id, r.Offset, err)
	}
	s.inflater = pack.NewInflater(io.TeeReader(s.packed, &s.sum))
	return s, nil
}

// contentStream inflates an entry and verifies its checksums and its size.
type contentStream struct {
	ctx      context.Context // a stream lives within the call that opened it
	region   Region
	id       object.ID
	record   Record
	packed   *io.SectionReader
	ahead    file.Ahead
	sum      crcWriter
	left     int64
	inflater *pack.Inflater
	done     error
}

// crcWriter computes the CRC-32 of the bytes that are written to it.
type crcWriter uint32

func (c *crcWriter) Write(p []byte) (int, error) {
	*c = crcWriter(crc32.Update(uint32(*c), crc32.IEEETable, p))
	return len(p), nil
}

func (s *contentStream) Read(p []byte) (int, error) {
	if s.done != nil {
		return 0, s.done
	}
	if s.done = s.ctx.Err(); s.done != nil {
		return 0, s.done
	}
	if read, err := s.packed.Seek(0, io.SeekCurrent); err == nil {
		s.ahead.At(s.record.Offset + read)
	}
	n, err := s.inflater.Read(p)
	s.left -= int64(n)
	if err == nil && s.left == 0 {
		err = s.atEnd()
	}
	switch {
	case s.left < 0:
		err = fmt.Errorf("%w: entry inflates to more than its size", ErrFormat)
	case errors.Is(err, io.EOF):
		err = s.verify()
	}
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		s.done = s.region.passedOn(s.ctx, s.id, s.record, err)
		return 0, s.done
	}
	s.done = io.EOF
	return n, io.EOF
}

// atEnd returns [io.EOF] if the zlib stream ends here and its checksum holds.
func (s *contentStream) atEnd() error {
	var more [1]byte
	for {
		if n, err := s.inflater.Read(more[:]); n > 0 {
			return fmt.Errorf("%w: entry inflates to more than its size", ErrFormat)
		} else if err != nil {
			return err
		}
	}
}

// verify reads the rest of the entry and returns [io.EOF] if all checks pass.
func (s *contentStream) verify() error {
	if _, err := io.Copy(&s.sum, s.packed); err != nil {
		return err
	}
	if uint32(s.sum) != s.record.CRC32 || s.left != 0 {
		return fmt.Errorf("%w: entry fails its CRC-32 or its size", ErrFormat)
	}
	return io.EOF
}

func (s *contentStream) Close() error {
	if s.inflater == nil {
		return nil
	}
	inflater := s.inflater
	s.inflater = nil
	if s.done == nil {
		s.done = fs.ErrClosed
	}
	return inflater.Close()
}
