package clonecache

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// entry is a stored pack.
type entry struct {
	key      Key
	fileSize int64
	// tail is the parsed end of the file, nil until the whole file was verified against it. It is
	// guarded by Cache.mu and never changes once it is there.
	tail *tail
}

// foundEntry is a file that was there at the start.
type foundEntry struct {
	*entry
	time time.Time // of its last write
}

var blockBuffers = sync.Pool{New: func() any { return new([blockSize]byte) }}

// sendStored writes the pack of an entry to w and returns the number of bytes written. Errors:
// errDamaged.
func (c *Cache) sendStored(ctx context.Context, e *entry, w io.Writer) (sent int64, err error) {
	file, err := c.fs.Open(c.path(e.key.String()), vfs.SequentialReadsOption)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDamaged, err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	buffer := blockBuffers.Get().(*[blockSize]byte)
	defer blockBuffers.Put(buffer)
	t, err := c.tailOf(ctx, e, file, buffer[:])
	if err != nil {
		return 0, err
	}
	err = t.blocks(file, buffer[:], func(block []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.Write(block)
		sent += int64(n)
		return err
	})
	return sent, err
}

// tailOf returns the tail of an entry. If this process has neither written nor checked its file, it
// first verifies the whole file.
func (c *Cache) tailOf(ctx context.Context, e *entry, file vfs.File, buffer []byte) (*tail, error) {
	c.mu.Lock()
	t := e.tail
	c.mu.Unlock()
	if t != nil {
		return t, nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if t, err = readTail(file, info.Size(), e.key); err != nil {
		return nil, err
	}
	if err := t.blocks(file, buffer, func([]byte) error { return ctx.Err() }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.tail = t
	return t, nil
}
