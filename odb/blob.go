package odb

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"packhorse/pack"
	"packhorse/pack/object"
)

// WriteBlobFrom quarantines a blob of size bytes read from r and returns its ID. Above 1 MiB the quarantine becomes a segment, which the
// blob joins as a stream of blocks: hashed and compressed on all cores as it is read, in a few MiB of memory whatever its size.
//
// Errors: [ErrTooLarge], [object.ErrCollision], [io.ErrUnexpectedEOF] when r ends before size, and those of r.
func (q *Quarantine) WriteBlobFrom(ctx context.Context, r io.Reader, size int64) (object.ID, error) {
	if size > q.store.limits.ObjectBytes {
		return object.ZeroID, fmt.Errorf("blob of %d bytes: %w", size, ErrTooLarge)
	}
	if size <= streamedMin {
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return object.ZeroID, fmt.Errorf("read blob: %w", unexpectedEnd(err))
		}
		return q.Write(ctx, object.TypeBlob, data, object.ZeroID)
	}
	if q.pending == nil {
		if err := q.spill(ctx); err != nil {
			return object.ZeroID, err
		}
	}
	if err := q.pending.room(); err != nil {
		return object.ZeroID, err
	}
	return q.writeStream(ctx, r, size)
}

func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeStream appends a block stream to the pending segment, or nothing at all if it fails or the blob is there already.
func (q *Quarantine) writeStream(ctx context.Context, r io.Reader, size int64) (object.ID, error) {
	w := q.pending.w
	start := w.Size()
	s := &streamWriter{w: w, row: segmentRow{Type: object.TypeBlob, Size: size, Offset: start, Base: -1}}
	err := s.run(ctx, r, size)
	there := false
	if err == nil {
		there, err = q.has(ctx, s.row.ID)
	}
	if err != nil || there {
		w.Rewind(start)
		return s.row.ID, err
	}
	w.AddBlocks(s.row.ID, s.blocks.Table(), s.sums)
	q.pending.add(s.row, nil)
	return s.row.ID, nil
}

// streamWriter writes one blob as a pack entry whose zlib stream consists of independent blocks.
//
// One goroutine reads and hashes, one per core compresses, and the caller's writes in order. A fixed number of block buffers goes around
// between them; that is what bounds the memory.
type streamWriter struct {
	w      *segmentWriter
	row    segmentRow
	blocks pack.Blocks
	sums   []uint32
	out    []byte
}

// streamBlock is a block on its way from the reader through a compressor to the writer.
type streamBlock struct {
	content []byte
	packed  []byte
	block   pack.Block
	done    chan struct{} // closed when block is there
}

var streamBlocks = sync.Pool{New: func() any {
	return &streamBlock{content: make([]byte, pack.BlockSize), packed: make([]byte, 0, pack.BlockSize+kibibyte)}
}}

func (s *streamWriter) run(ctx context.Context, r io.Reader, size int64) error {
	header := pack.EntryHeader{Kind: pack.KindBlob, Size: size}.Append(nil)
	if err := s.write(header); err != nil {
		return err
	}
	cores := runtime.GOMAXPROCS(0)
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan *streamBlock)
	ordered := make(chan *streamBlock, cores) // with those in the hands of goroutines, 2*cores+2 blocks at most
	hasher := object.NewHasher(object.TypeBlob, size)
	group.Go(func() error {
		defer close(work)
		defer close(ordered)
		return readBlocks(ctx, r, size, hasher, work, ordered)
	})
	for range cores {
		group.Go(func() error {
			for b := range work {
				b.block = pack.EncodeBlock(b.packed[:0], b.content, segmentLevel)
				close(b.done)
			}
			return nil
		})
	}
	group.Go(func() error { return s.writeBlocks(ctx, ordered) })
	if err := group.Wait(); err != nil {
		return err
	}
	id, err := hasher.Sum()
	if err != nil {
		return fmt.Errorf("hash blob: %w", err)
	}
	s.row.ID = id
	return s.write(s.blocks.Finish(s.out[:0]))
}

// readBlocks cuts r into blocks and gives each to a compressor and, in order, to the writer.
func readBlocks(ctx context.Context, r io.Reader, size int64, hasher io.Writer, work, ordered chan<- *streamBlock) error {
	for done := int64(0); done < size; {
		b := streamBlocks.Get().(*streamBlock)
		b.content = b.content[:min(pack.BlockSize, size-done)]
		b.done = make(chan struct{})
		if _, err := io.ReadFull(r, b.content); err != nil {
			return fmt.Errorf("read blob: %w", unexpectedEnd(err))
		}
		_, _ = hasher.Write(b.content) // a hash does not fail
		done += int64(len(b.content))
		for _, to := range []chan<- *streamBlock{work, ordered} {
			select {
			case to <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (s *streamWriter) writeBlocks(ctx context.Context, ordered <-chan *streamBlock) error {
	for b := range ordered {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.sums = append(s.sums, crc32.Checksum(b.block.Packed, castagnoli))
		s.out = s.blocks.Append(s.out[:0], b.block)
		if err := s.write(s.out); err != nil {
			return err
		}
		b.packed = b.block.Packed
		streamBlocks.Put(b)
	}
	return nil
}

// write appends bytes of the entry.
func (s *streamWriter) write(p []byte) error {
	s.row.CRC32 = crc32.Update(s.row.CRC32, crc32.IEEETable, p)
	s.row.PackedSize += int64(len(p))
	_, err := s.w.Write(p)
	return err
}
