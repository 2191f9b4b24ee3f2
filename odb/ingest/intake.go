package ingest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"packhorse/odb"
	"packhorse/odb/segment"
)

// intake stores the bytes of a pack as they come: in memory until spill, then in a segment.
type intake struct {
	ctx     context.Context //nolint:containedctx // of the ingest whose io.Writer this is
	store   *odb.Store
	full    func(ctx context.Context) error // called before the memory exceeds fullAt; spills
	fullAt  int                             // in bytes
	allow   func(more int64) error          // the limit of the segment's size
	memory  []byte
	segment *segment.Writer // nil: the pack is in memory
	size    atomic.Int64
}

// Write implements [io.Writer].
func (k *intake) Write(p []byte) (int, error) {
	if err := k.ctx.Err(); err != nil {
		return 0, context.Cause(k.ctx)
	}
	k.size.Add(int64(len(p)))
	if k.segment == nil && len(k.memory)+len(p) > k.fullAt {
		if err := k.full(k.ctx); err != nil {
			return 0, err
		}
	}
	if k.segment == nil {
		k.memory = append(k.memory, p...)
		return len(p), nil
	}
	if err := k.allow(k.size.Load()); err != nil {
		return 0, err
	}
	return k.segment.Write(p)
}

// spill begins a segment with the bytes in memory.
func (k *intake) spill() error {
	seg, err := segment.NewWriter(k.ctx, k.store.Env())
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	k.segment = seg
	_, err = seg.Write(k.memory)
	k.memory = nil
	return err
}

// ReadAt implements [io.ReaderAt] over the pack, once it has been read.
func (k *intake) ReadAt(p []byte, off int64) (int, error) {
	if k.segment != nil {
		return k.segment.ReadAt(p, off)
	}
	if off >= int64(len(k.memory)) {
		return 0, io.EOF
	}
	n := copy(p, k.memory[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// abort removes the stored bytes.
func (k *intake) abort() error {
	k.memory = nil
	if k.segment == nil {
		return nil
	}
	return k.segment.Abort()
}
