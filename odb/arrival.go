package odb

import (
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Arrival is a blob that is still being uploaded. All cores compress its content meanwhile, in
// blocks of 1 MiB, into a scratch file. Only the hash, which begins with the size, must wait for
// the end. It is used by one goroutine, which closes it.
type Arrival struct {
	quarantine *Quarantine
	content    io.ReaderAt
	size       int64        // of the content that has been given to the pipe
	pipe       *blockPipe   // nil before the first block, and behind the last
	packed     file.Scratch // nil before the first block
	kept       []keptBlock  // by the pipe, until it has finished
}

// keptBlock is a block in the scratch file of an arrival. A block stored without compression lies
// only in the content.
type keptBlock struct {
	block  pack.Block // without Packed
	offset int64
	size   int
}

// NewArrival begins a blob whose bytes can be read from content as they come.
func (q *Quarantine) NewArrival(content io.ReaderAt) *Arrival {
	return &Arrival{quarantine: q, content: content}
}

// Close discards an unfinished arrival.
func (a *Arrival) Close() error {
	if a.pipe != nil {
		a.pipe.abort()
		a.pipe = nil
	}
	if a.packed == nil {
		return nil
	}
	return a.packed.Close()
}

// Grow says that the content has size bytes now. It waits while more blocks are to be compressed
// than there are cores. ctx bounds the compression, also after Grow has returned. An arrival that
// failed can only be closed.
func (a *Arrival) Grow(ctx context.Context, size int64) error {
	for size-a.size >= pack.BlockSize {
		if err := a.push(ctx, pack.BlockSize); err != nil {
			return err
		}
	}
	return nil
}

// push gives the next bytes of the content to the pipe.
func (a *Arrival) push(ctx context.Context, size int64) error {
	if a.packed == nil {
		packed, err := a.quarantine.store.Files.Scratch(ctx)
		if err != nil {
			return fmt.Errorf("open scratch file: %w", err)
		}
		a.packed = packed
		a.pipe = newBlockPipe(ctx, a.keep)
	}
	b := newStreamBlock(size)
	if err := a.read(b.content, a.size); err != nil {
		return err
	}
	a.size += size
	if !a.pipe.push(b) {
		return a.drain()
	}
	return nil
}

// drain returns when all blocks are kept.
func (a *Arrival) drain() error {
	pipe := a.pipe
	a.pipe = nil
	return pipe.finish()
}

func (a *Arrival) read(p []byte, offset int64) error {
	if n, err := a.content.ReadAt(p, offset); n < len(p) {
		return fmt.Errorf("read blob: %w", unexpectedEnd(err))
	}
	return nil
}

// keep writes a block to the scratch file.
func (a *Arrival) keep(b *streamBlock) error {
	kept := keptBlock{block: b.block, offset: a.packed.Size(), size: len(b.block.Packed)}
	kept.block.Packed = nil
	if !b.block.Stored {
		if _, err := a.packed.Write(b.block.Packed); err != nil {
			return fmt.Errorf("write block: %w", err)
		}
	}
	a.kept = append(a.kept, kept)
	return nil
}

// Finish quarantines the blob, whose content ends at size, and returns its ID. It reads the content
// once more. Errors: those of [Quarantine.WriteBlobFrom].
func (a *Arrival) Finish(ctx context.Context, size int64) (object.ID, error) {
	q := a.quarantine
	if a.packed == nil {
		return q.WriteBlobFrom(ctx, io.NewSectionReader(a.content, 0, size), size)
	}
	if size > q.store.limits.ObjectBytes {
		return object.ZeroID, fmt.Errorf("blob of %d bytes: %w", size, ErrTooLarge)
	}
	err := a.Grow(ctx, size)
	if rest := size - a.size; err == nil && rest > 0 {
		err = a.push(ctx, rest)
	}
	if err != nil {
		return object.ZeroID, err
	}
	if err := q.toSegment(ctx); err != nil {
		return object.ZeroID, err
	}
	return q.writeStream(ctx, size, func(s *streamWriter) error { return a.write(ctx, s) })
}

// write appends the blocks, while another core hashes the content.
func (a *Arrival) write(ctx context.Context, s *streamWriter) error {
	group, ctx := rescue.WithContext(ctx)
	hasher := object.NewHasher(object.TypeBlob, s.row.Size)
	group.Go(func() error {
		b := newStreamBlock(pack.BlockSize)
		defer b.release()
		for done := int64(0); done < s.row.Size; done += int64(len(b.content)) {
			b.content = b.content[:min(pack.BlockSize, s.row.Size-done)]
			if err := errors.Join(ctx.Err(), a.read(b.content, done)); err != nil {
				return err
			}
			_, _ = hasher.Write(b.content) // a hash does not fail
		}
		return nil
	})
	group.Go(func() error { return a.append(ctx, s) })
	if err := group.Wait(); err != nil {
		return err
	}
	return s.identify(hasher)
}

// append waits for the last block to be compressed, and appends all of them.
func (a *Arrival) append(ctx context.Context, s *streamWriter) error {
	if err := a.drain(); err != nil {
		return err
	}
	b := newStreamBlock(pack.BlockSize)
	defer b.release()
	for i, kept := range a.kept {
		if err := ctx.Err(); err != nil {
			return err
		}
		if kept.block.Stored {
			b.content = b.content[:kept.block.Size]
			if err := a.read(b.content, int64(i)*pack.BlockSize); err != nil {
				return err
			}
			b.block = pack.StoreBlock(b.packed[:0], b.content, kept.block.Adler)
		} else {
			b.block = kept.block
			b.block.Packed = b.packed[:kept.size]
			if _, err := a.packed.ReadAt(b.block.Packed, kept.offset); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read block: %w", err)
			}
		}
		if err := s.add(b.block); err != nil {
			return err
		}
	}
	return nil
}
