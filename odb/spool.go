package odb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"packhorse/odb/file"
	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// spooled is an object built in a scratch file because it, or an object or delta of its chain, is
// too large for memory.
type spooled struct {
	Info
	io.ReaderAt
	scratch file.Scratch // nil when the object is in memory
}

func (s *spooled) Close() error {
	if s.scratch == nil {
		return nil
	}
	return s.scratch.Close()
}

// spool builds the object at a location in a scratch file (docs/invariants.md 13): at most two
// scratch files exist at a time, and memory does not depend on the sizes of objects.
func (v *View) spool(ctx context.Context, at Location) (*spooled, error) {
	chain, base, err := v.descend(ctx, at, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	built, err := v.spoolBottom(ctx, &base)
	if err != nil {
		return nil, err
	}
	for i := len(chain) - 1; i >= 0; i-- {
		next, err := v.spoolLink(ctx, &chain[i], built)
		if err = errors.Join(err, built.Close()); err != nil {
			if next != nil {
				err = errors.Join(err, next.Close())
			}
			return nil, err
		}
		built = next
	}
	return built, nil
}

func (v *View) spoolBottom(ctx context.Context, base *bottom) (*spooled, error) {
	if base.inMemory {
		return &spooled{Info: base.Info, ReaderAt: bytes.NewReader(base.data)}, nil
	}
	content, err := base.at.layer.stream(ctx, base.at)
	if err != nil {
		return nil, err
	}
	defer content.Close() //nolint:errcheck // it was only read
	return v.fillScratch(ctx, base.Info, func(w io.Writer) error {
		n, err := io.Copy(w, content)
		if err == nil && n != base.Size {
			err = v.store.damage.Corrupt(base.at.layer.layerID(), base.at.id, "it has %d bytes instead of %d", n, base.Size)
		}
		return err
	})
}

// spoolLink applies the delta at a link to the object built below it.
func (v *View) spoolLink(ctx context.Context, link *chainLink, base *spooled) (*spooled, error) {
	at := link.at
	program, err := at.layer.stream(ctx, at)
	if err != nil {
		return nil, err
	}
	defer program.Close() //nolint:errcheck // it was only read
	return v.fillScratch(ctx, link.Info, func(w io.Writer) error {
		source := bufio.NewReaderSize(program, 64*kibibyte)
		n, err := delta.ApplyAt(w, base, base.Size, source, link.Size)
		if err == nil && n != link.Size {
			err = fmt.Errorf("%w: delta builds %d bytes instead of %d", segment.ErrFormat, n, link.Size)
		}
		if err != nil && ctx.Err() == nil {
			err = v.store.damaged(at.layer.layerID(), at.id, err)
		}
		return err
	})
}

// fillScratch returns a scratch file with the output of write.
func (v *View) fillScratch(ctx context.Context, info Info, write func(io.Writer) error) (*spooled, error) {
	scratch, err := v.store.Files.Scratch(ctx)
	if err != nil {
		return nil, fmt.Errorf("make scratch file: %w", err)
	}
	if err := write(scratch); err != nil {
		return nil, errors.Join(err, scratch.Close())
	}
	return &spooled{Info: info, ReaderAt: scratch, scratch: scratch}, nil
}

// readSpooled is ReadAt for an object that fits into memory while a part of its chain does not.
func (v *View) readSpooled(ctx context.Context, at Location) (object.Type, []byte, error) {
	s, err := at.layer.step(ctx, at)
	if err != nil {
		return 0, nil, err
	}
	if s.Size > segment.WholeMax {
		return 0, nil, fmt.Errorf("it has %d bytes: %w", s.Size, ErrTooLarge)
	}
	built, err := v.spool(ctx, at)
	if err != nil {
		return 0, nil, err
	}
	data := make([]byte, built.Size)
	err = segment.ReadFullAt(built, data, 0)
	if err = errors.Join(err, built.Close()); err != nil {
		return 0, nil, fmt.Errorf("read scratch file: %w", err)
	}
	v.keep(&at, segment.CacheEntry{Kind: built.Type, Data: data}, false)
	return built.Type, data, nil
}
