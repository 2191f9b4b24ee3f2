package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"packhorse/odb/file"
)

// Spool buffers writes until they are read back: up to 1 MiB in memory, more in a scratch file. It
// belongs to one goroutine, which closes it.
type Spool struct {
	ctx     context.Context // of the request that it belongs to
	files   file.Store
	small   bytes.Buffer
	scratch file.Scratch // nil while all is in memory
	size    int64
}

const spoolHeldMax = 1 << 20

// NewSpool returns an empty spool for output that is sent later.
func (r *Repository) NewSpool(ctx context.Context) *Spool {
	return &Spool{ctx: ctx, files: r.host.files}
}

// Write keeps p.
func (s *Spool) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	if s.scratch == nil && s.size <= spoolHeldMax {
		return s.small.Write(p)
	}
	if s.scratch == nil {
		scratch, err := s.files.Scratch(s.ctx)
		if err != nil {
			return 0, fmt.Errorf("open spool file: %w", err)
		}
		s.scratch = scratch
		if _, err := scratch.Write(s.small.Bytes()); err != nil {
			return 0, fmt.Errorf("spool: %w", err)
		}
		s.small = bytes.Buffer{}
	}
	n, err := s.scratch.Write(p)
	if err != nil {
		return n, fmt.Errorf("spool: %w", err)
	}
	return n, nil
}

// WriteTo writes all that was kept.
func (s *Spool) WriteTo(w io.Writer) (int64, error) {
	if s.scratch == nil {
		n, err := w.Write(s.small.Bytes())
		return int64(n), err
	}
	return io.Copy(w, io.NewSectionReader(s.scratch, 0, s.size))
}

// Close discards the content.
func (s *Spool) Close() error {
	if s.scratch == nil {
		return nil
	}
	return s.scratch.Close()
}
