package clonecache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// open opens the file of an entry. Errors: errDamaged; errFile, when it may be whole; that of ctx.
func (c *Cache) open(ctx context.Context, e *entry) (*Pack, error) {
	file, err := c.fs.Open(c.path(e.key.String()), vfs.SequentialReadsOption)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	t, err := c.tailOf(ctx, e, file)
	if err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return &Pack{cache: c, entry: e, file: file, tail: t}, nil
}

// tailOf returns the tail of an entry. If this process has neither written nor checked its file, it
// first verifies the whole file.
func (c *Cache) tailOf(ctx context.Context, e *entry, file vfs.File) (*tail, error) {
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
	buffer := blockBuffers.Get().(*[blockSize]byte)
	defer blockBuffers.Put(buffer)
	if err := t.blocks(file, buffer[:], func([]byte) error { return ctx.Err() }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.tail = t
	return t, nil
}
