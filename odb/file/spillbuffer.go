package file

import (
	"context"
	"fmt"
	"io"
)

// SpillBuffer keeps what is written until it is read back: in memory while that is little, and all
// of it in a scratch file beyond. Reads between two writes may be concurrent; all else is for one
// goroutine. A buffer that failed to take a write can only be closed.
type SpillBuffer struct {
	files   Scratcher
	heldMax int
	held    []byte
	scratch Scratch // nil while all is in memory
}

// NewSpillBuffer returns an empty buffer that holds up to heldMax bytes in memory and takes its
// scratch file from files. The caller closes it.
func NewSpillBuffer(files Scratcher, heldMax int) *SpillBuffer {
	return &SpillBuffer{files: files, heldMax: heldMax}
}

// Write appends p, which it does not keep.
func (b *SpillBuffer) Write(ctx context.Context, p []byte) error {
	if b.scratch == nil && len(b.held)+len(p) <= b.heldMax {
		b.held = append(b.held, p...)
		return nil
	}
	if err := b.Spill(ctx); err != nil {
		return err
	}
	if _, err := b.scratch.Write(p); err != nil {
		return fmt.Errorf("write scratch file: %w", err)
	}
	return nil
}

// Spill moves the content to the scratch file, if it is in memory, and keeps it there.
func (b *SpillBuffer) Spill(ctx context.Context) error {
	if b.scratch != nil {
		return nil
	}
	scratch, err := b.files.Scratch(ctx)
	if err != nil {
		return fmt.Errorf("make scratch file: %w", err)
	}
	b.scratch = scratch
	if _, err := scratch.Write(b.held); err != nil {
		return fmt.Errorf("write scratch file: %w", err)
	}
	b.held = nil
	return nil
}

// Size returns the number of bytes written.
func (b *SpillBuffer) Size() int64 {
	if b.scratch != nil {
		return b.scratch.Size()
	}
	return int64(len(b.held))
}

// InMemory returns the content while it is in memory; false means that it has been spilled. The
// content is valid, and must not be modified, until the next write.
func (b *SpillBuffer) InMemory() (content []byte, ok bool) { return b.held, b.scratch == nil }

// ReadAt implements io.ReaderAt.
func (b *SpillBuffer) ReadAt(p []byte, offset int64) (int, error) {
	switch {
	case b.scratch != nil:
		return b.scratch.ReadAt(p, offset)
	case offset < 0:
		return 0, ErrRange
	case offset >= int64(len(b.held)):
		return 0, io.EOF
	}
	n := copy(p, b.held[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo implements io.WriterTo: it writes all of the content.
func (b *SpillBuffer) WriteTo(w io.Writer) (int64, error) {
	if b.scratch == nil {
		n, err := w.Write(b.held)
		return int64(n), err
	}
	return io.Copy(w, io.NewSectionReader(b.scratch, 0, b.scratch.Size()))
}

// Close discards the content. Only the first call has an effect.
func (b *SpillBuffer) Close() error {
	scratch := b.scratch
	b.held, b.scratch = nil, nil
	if scratch == nil {
		return nil
	}
	return scratch.Close()
}
