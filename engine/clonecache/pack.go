package clonecache

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pack is a pack that is stored or being generated. Its finder calls [Pack.Send] once, which also
// releases it.
type Pack struct {
	cache *Cache

	// Of a stored pack:
	entry *entry
	file  vfs.File
	tail  *tail

	// Of a pack that is being generated:
	flight *flight
	told   int // bytes of its lines that the request has been told
}

// Send writes the pack to w, and the lines of its generation to tell, which may be nil.
//
// Errors: [ErrUnsent] if nothing was written; those of the generation, of ctx and of w.
func (p *Pack) Send(ctx context.Context, w io.Writer, tell func(string)) error {
	var sent int64
	var err error
	if p.flight != nil {
		defer p.cache.leave(p.flight)
		sent, err = p.flight.send(ctx, w, tell, p.told)
	} else {
		sent, err = p.sendStored(ctx, w)
	}
	if sent == 0 && (errors.Is(err, errFile) || errors.Is(err, errDamaged)) {
		err = fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return err
}

// sendStored writes a stored pack to w and returns the number of bytes written. Errors: errDamaged.
func (p *Pack) sendStored(ctx context.Context, w io.Writer) (sent int64, err error) {
	defer p.file.Close() //nolint:errcheck // nothing was written
	buffer := blockBuffers.Get().(*[blockSize]byte)
	defer blockBuffers.Put(buffer)
	err = p.tail.blocks(p.file, buffer[:], func(block []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.Write(block)
		sent += int64(n)
		return err
	})
	switch {
	case err == nil:
		p.cache.count(&p.cache.stats.Hits)
	case errors.Is(err, errDamaged):
		p.cache.discard(p.entry, err)
	}
	return sent, err
}
