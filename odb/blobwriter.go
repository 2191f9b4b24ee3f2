package odb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// arrivingBytesMax is the memory of a quarantine for the contents of its blob writers. Contents
// that find no room in it go to a scratch file.
const arrivingBytesMax = 512 * kibibyte

// BlobWriter quarantines a blob that comes in pieces and whose size is not known before its end:
// git hashes the size first (docs/invariants.md 12). It belongs to the goroutine of its quarantine,
// which closes it before the quarantine.
//
// The content is in memory while those of all writers of the quarantine have 512 KiB, and otherwise
// in a scratch file that they share. Once a blob has more than 1 MiB, all cores compress it while
// it arrives, in blocks of 1 MiB, into the same file: one blob of the quarantine at a time, others
// at their end.
type BlobWriter struct {
	quarantine  *Quarantine
	predecessor object.ID
	content     *file.SpillBuffer
	held        int // bytes in memory

	packed file.Scratch       // nil unless the blob is compressed while it arrives
	pipe   *segment.BlockPipe // nil without packed, and behind its last block
	piped  int64              // bytes of the content that have been given to the pipe
	kept   []keptBlock        // by the pipe, until it has finished

	keptBytes atomic.Int64 // of the blocks in kept
	counted   int64        // for the limit of the quarantine
}

// keptBlock is a block in packed. A block stored without compression lies only in the content.
type keptBlock struct {
	block  pack.Block // without Packed
	offset int64
	size   int
}

// NewBlob begins a blob. Up to 1 MiB it is stored as [Quarantine.Write] stores it, with that
// predecessor.
func (q *Quarantine) NewBlob(predecessor object.ID) *BlobWriter {
	if q.arriving.files == nil {
		q.arriving.files = file.NewSharedScratch(q.store.Files)
	}
	return &BlobWriter{
		quarantine: q, predecessor: predecessor, content: file.NewSpillBuffer(q.arriving.files, arrivingBytesMax),
	}
}

// Close discards the content. Only the first call has an effect.
func (w *BlobWriter) Close() error {
	if w.pipe != nil {
		w.pipe.Abort()
		w.pipe = nil
	}
	w.hold(-w.held)
	w.count(0)
	err := w.content.Close()
	if w.packed != nil {
		err = errors.Join(err, w.packed.Close())
		w.packed = nil
		w.quarantine.arriving.compressed = false
	}
	return err
}

// Write appends p, which it does not keep. It waits while more blocks are to be compressed than
// there are cores. ctx bounds the compression, also after Write has returned. A writer that failed
// can only be closed. Errors: [ErrTooLarge].
func (w *BlobWriter) Write(ctx context.Context, p []byte) error {
	start := w.content.Size()
	size := start + int64(len(p))
	if err := w.quarantine.checkBlobSize(size); err != nil {
		return err
	}
	if err := w.keep(ctx, p); err != nil {
		return err
	}
	if start <= streamedMin && size > streamedMin && !w.quarantine.arriving.compressed {
		if err := w.compress(ctx); err != nil {
			return err
		}
	}
	for w.pipe != nil && size-w.piped >= pack.BlockSize {
		if err := w.push(pack.BlockSize, start, p); err != nil {
			return err
		}
	}
	switch {
	case w.packed != nil:
		w.count(w.keptBytes.Load())
	case size > streamedMin: // how small it will become is not known yet
		w.count(size)
	}
	return w.quarantine.Allow(0)
}

// count makes the blob count for size bytes while it arrives.
func (w *BlobWriter) count(size int64) {
	w.quarantine.arriving.size += size - w.counted
	w.counted = size
}

// keep appends p to the content.
func (w *BlobWriter) keep(ctx context.Context, p []byte) error {
	if _, ok := w.content.InMemory(); ok && w.quarantine.arriving.held+len(p) <= arrivingBytesMax {
		w.hold(len(p))
	} else if ok {
		if err := w.content.Spill(ctx); err != nil {
			return fmt.Errorf("keep blob: %w", err)
		}
		w.hold(-w.held)
	}
	if err := w.content.Write(ctx, p); err != nil {
		return fmt.Errorf("keep blob: %w", err)
	}
	return nil
}

// hold takes count bytes of the quarantine's memory for contents.
func (w *BlobWriter) hold(count int) {
	w.held += count
	w.quarantine.arriving.held += count
}

// compress begins to compress the blob while it arrives.
func (w *BlobWriter) compress(ctx context.Context) error {
	packed, err := w.quarantine.arriving.files.Scratch(ctx)
	if err != nil {
		return fmt.Errorf("make scratch file: %w", err)
	}
	w.packed = packed
	w.quarantine.arriving.compressed = true
	w.pipe = segment.NewBlockPipe(ctx, w.add)
	return nil
}

// push gives the next size bytes of the content to the pipe. Those from start on begin p.
func (w *BlobWriter) push(size, start int64, p []byte) error {
	b := segment.NewStreamBlock(size)
	before := max(0, min(size, start-w.piped))
	if err := w.read(b.Content[:before], w.piped); err != nil {
		return err
	}
	copy(b.Content[before:], p[w.piped+before-start:])
	w.piped += size
	if !w.pipe.Push(b) {
		return w.drain()
	}
	return nil
}

// drain returns when all blocks are kept.
func (w *BlobWriter) drain() error {
	pipe := w.pipe
	w.pipe = nil
	return pipe.Finish()
}

// read reads a part of the content.
func (w *BlobWriter) read(p []byte, offset int64) error {
	if n, err := w.content.ReadAt(p, offset); n < len(p) {
		return fmt.Errorf("read blob: %w", unexpectedEnd(err))
	}
	return nil
}

// add takes a block of the pipe.
func (w *BlobWriter) add(b *segment.StreamBlock) error {
	kept := keptBlock{block: b.Block, offset: w.packed.Size(), size: len(b.Block.Packed)}
	kept.block.Packed = nil
	if !b.Block.Stored {
		if _, err := w.packed.Write(b.Block.Packed); err != nil {
			return fmt.Errorf("write block: %w", err)
		}
	}
	w.kept = append(w.kept, kept)
	w.keptBytes.Add(int64(kept.size))
	return nil
}

// Commit quarantines the blob and returns its ID. It is the last call before Close. It reads a
// content from its scratch file once. Errors: those of [Quarantine.Write].
func (w *BlobWriter) Commit(ctx context.Context) (object.ID, error) {
	q, size := w.quarantine, w.content.Size()
	w.count(0) // what it becomes is counted
	switch {
	case size <= streamedMin:
		data, err := w.whole()
		if err != nil {
			return object.ZeroID, err
		}
		return q.Write(ctx, object.TypeBlob, data, w.predecessor)
	case w.packed == nil:
		return q.WriteBlobFrom(ctx, io.NewSectionReader(w.content, 0, size), size)
	}
	if rest := size - w.piped; rest > 0 {
		if err := w.push(rest, size, nil); err != nil {
			return object.ZeroID, err
		}
	}
	if err := q.toSegment(ctx); err != nil {
		return object.ZeroID, err
	}
	return q.writeStream(ctx, size, func(s *streamWriter) error { return w.write(ctx, s) })
}

// whole returns a small content.
func (w *BlobWriter) whole() ([]byte, error) {
	if data, ok := w.content.InMemory(); ok {
		return data, nil
	}
	data := make([]byte, w.content.Size())
	return data, w.read(data, 0)
}

// write appends the blocks, while another core hashes the content.
func (w *BlobWriter) write(ctx context.Context, s *streamWriter) error {
	group, ctx := rescue.WithContext(ctx)
	hasher := object.NewHasher(object.TypeBlob, s.row.Size)
	group.Go(func() error {
		b := segment.NewStreamBlock(pack.BlockSize)
		defer b.Release()
		for done := int64(0); done < s.row.Size; done += int64(len(b.Content)) {
			b.Content = b.Content[:min(pack.BlockSize, s.row.Size-done)]
			if err := errors.Join(ctx.Err(), w.read(b.Content, done)); err != nil {
				return err
			}
			_, _ = hasher.Write(b.Content) // a hash does not fail
		}
		return nil
	})
	group.Go(func() error { return w.append(ctx, s) })
	if err := group.Wait(); err != nil {
		return err
	}
	return s.identify(hasher)
}

// append waits for the last block to be compressed, and appends all of them.
func (w *BlobWriter) append(ctx context.Context, s *streamWriter) error {
	if err := w.drain(); err != nil {
		return err
	}
	b := segment.NewStreamBlock(pack.BlockSize)
	defer b.Release()
	for i, kept := range w.kept {
		if err := ctx.Err(); err != nil {
			return err
		}
		if kept.block.Stored {
			b.Content = b.Content[:kept.block.Size]
			if err := w.read(b.Content, int64(i)*pack.BlockSize); err != nil {
				return err
			}
			b.Block = pack.StoreBlock(b.Buffer[:0], b.Content, kept.block.Adler)
		} else {
			b.Block = kept.block
			b.Block.Packed = b.Buffer[:kept.size]
			if _, err := w.packed.ReadAt(b.Block.Packed, kept.offset); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read block: %w", err)
			}
		}
		if err := s.add(b.Block); err != nil {
			return err
		}
	}
	return nil
}
