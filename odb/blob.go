package odb

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// WriteBlobFrom quarantines a blob of size bytes read from r and returns its ID. Above 1 MiB the
// quarantine becomes a segment, to which the blob is appended as a stream of blocks. All cores hash
// and compress it while it is read, in a few MiB of memory whatever its size.
//
// Errors: [ErrTooLarge], [object.ErrCollision], [io.ErrUnexpectedEOF] when r ends before size, and
// those of r.
func (q *Quarantine) WriteBlobFrom(ctx context.Context, r io.Reader, size int64) (object.ID, error) {
	if err := q.checkBlobSize(size); err != nil {
		return object.ZeroID, err
	}
	if size <= streamedMin {
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return object.ZeroID, fmt.Errorf("read blob: %w", unexpectedEnd(err))
		}
		return q.Write(ctx, object.TypeBlob, data, object.ZeroID)
	}
	if err := q.toSegment(ctx); err != nil {
		return object.ZeroID, err
	}
	return q.writeStream(ctx, size, func(s *streamWriter) error { return s.run(ctx, r) })
}

// checkBlobSize refuses a blob of too many bytes.
func (q *Quarantine) checkBlobSize(size int64) error {
	if size > q.store.limits.ObjectBytes {
		return fmt.Errorf("blob of %d bytes: %w", size, ErrTooLarge)
	}
	return nil
}

// toSegment makes the quarantine a segment that has room for another object.
func (q *Quarantine) toSegment(ctx context.Context) error {
	if q.pending == nil {
		if err := q.spill(ctx); err != nil {
			return err
		}
	}
	return q.pending.room()
}

func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeStream appends a block stream that write makes to the pending segment. It appends nothing if
// write fails or the blob is stored already.
func (q *Quarantine) writeStream(
	ctx context.Context, size int64, write func(s *streamWriter) error,
) (object.ID, error) {
	w := q.pending.w
	start := w.Size()
	s := &streamWriter{w: w, allow: q.Allow, row: segment.Row{Type: object.TypeBlob, Size: size, Offset: start, Base: -1}}
	err := s.write(pack.EntryHeader{Kind: pack.KindBlob, Size: size}.Append(nil))
	if err == nil {
		err = write(s)
	}
	if err == nil {
		err = s.write(s.blocks.Finish(s.out[:0]))
	}
	there := false
	if err == nil {
		there, err = q.has(ctx, s.row.ID)
	}
	if err != nil || there {
		w.Rewind(start)
		return s.row.ID, err
	}
	w.AddBlocks(s.row.ID, s.blocks.Table(), s.sums)
	q.pending.add(s.row, segment.NoOrdinal, nil)
	return s.row.ID, nil
}

// streamWriter writes one blob as a pack entry whose zlib stream consists of independent blocks.
// One goroutine at a time uses it.
type streamWriter struct {
	w      *segment.Writer
	allow  func(more int64) error
	row    segment.Row
	blocks pack.Blocks
	sums   []uint32
	out    []byte
}

// run hashes r and writes it, while all cores compress.
func (s *streamWriter) run(ctx context.Context, r io.Reader) error {
	hasher := object.NewHasher(object.TypeBlob, s.row.Size)
	pipe := segment.NewBlockPipe(ctx, func(b *segment.StreamBlock) error { return s.add(b.Block) })
	for done := int64(0); done < s.row.Size; {
		b := segment.NewStreamBlock(min(pack.BlockSize, s.row.Size-done))
		if _, err := io.ReadFull(r, b.Content); err != nil {
			pipe.Abort()
			return fmt.Errorf("read blob: %w", unexpectedEnd(err))
		}
		_, _ = hasher.Write(b.Content) // a hash does not fail
		done += int64(len(b.Content))
		if !pipe.Push(b) {
			break
		}
	}
	if err := pipe.Finish(); err != nil {
		return err
	}
	return s.identify(hasher)
}

// identify computes the blob's ID from the hash of its content.
func (s *streamWriter) identify(hasher *object.Hasher) (err error) {
	if s.row.ID, err = hasher.Sum(); err != nil {
		return fmt.Errorf("hash blob: %w", err)
	}
	return nil
}

// add appends a block.
func (s *streamWriter) add(b pack.Block) error {
	s.sums = append(s.sums, crc32.Checksum(b.Packed, castagnoli))
	s.out = s.blocks.Append(s.out[:0], b)
	if err := s.allow(int64(len(s.out))); err != nil {
		return err
	}
	return s.write(s.out)
}

// write appends bytes of the entry.
func (s *streamWriter) write(p []byte) error {
	s.row.CRC32 = crc32.Update(s.row.CRC32, crc32.IEEETable, p)
	s.row.PackedSize += int64(len(p))
	_, err := s.w.Write(p)
	return err
}
