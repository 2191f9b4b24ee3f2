package file

import (
	"context"
	"io"
	"sync"
)

// sharedPageBytes is the size of a page of a [SharedScratch]. Bytes of a page that nobody has
// written take no room on the disk.
const sharedPageBytes = 1 << 20

// SharedScratch makes any number of scratch files that lie in one of a store, so that they take one
// descriptor and one write buffer together. Each takes pages as it grows. The file of the store
// exists while one of the others does. Its methods may be called concurrently.
type SharedScratch struct {
	files Scratcher

	mu        sync.Mutex // guards the fields below
	under     Scratch    // nil while users is 0
	users     int
	pageCount int64   // of under
	free      []int64 // offsets of pages that nobody uses
}

// NewSharedScratch returns a source of scratch files that takes the file which they share from
// files.
func NewSharedScratch(files Scratcher) *SharedScratch { return &SharedScratch{files: files} }

// Scratch returns an empty scratch file.
func (s *SharedScratch) Scratch(ctx context.Context) (Scratch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == nil {
		under, err := s.files.Scratch(ctx)
		if err != nil {
			return nil, err
		}
		s.under = under
	} else if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.users++
	return &pagedScratch{from: s, under: s.under}, nil
}

// page returns the offset of a page, whose bytes are any.
func (s *SharedScratch) page() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		offset := s.free[last]
		s.free = s.free[:last]
		return offset
	}
	s.pageCount++
	return (s.pageCount - 1) * sharedPageBytes
}

// release takes back the pages of a file that is closed.
func (s *SharedScratch) release(pages []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, pages...)
	if s.users--; s.users > 0 {
		return nil
	}
	under := s.under
	s.under, s.pageCount, s.free = nil, 0, nil
	return under.Close()
}

// pagedScratch is a scratch file in pages of another one.
type pagedScratch struct {
	from  *SharedScratch
	under Scratch

	mu     sync.RWMutex // guards the fields below; shared by readers
	pages  []int64      // their offsets in under
	size   int64
	closed bool
}

// Write implements io.Writer.
func (f *pagedScratch) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, ErrClosed
	}
	return f.write(p, f.size)
}

// WriteAt implements io.WriterAt.
func (f *pagedScratch) WriteAt(p []byte, offset int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, ErrClosed
	case offset < 0:
		return 0, ErrRange
	}
	for len(p) > 0 && f.size < offset { // a page may hold what another file left
		zeros := make([]byte, min(offset-f.size, spoolBytes))
		if _, err := f.write(zeros, f.size); err != nil {
			return 0, err
		}
	}
	return f.write(p, offset)
}

// write writes p at an offset within the file or at its end.
func (f *pagedScratch) write(p []byte, offset int64) (int, error) {
	for n := 0; n < len(p); {
		if offset == int64(len(f.pages))*sharedPageBytes {
			f.pages = append(f.pages, f.from.page())
		}
		piece, at := f.piece(p[n:], offset)
		if _, err := f.under.WriteAt(piece, at); err != nil {
			return n, err
		}
		n += len(piece)
		offset += int64(len(piece))
		f.size = max(f.size, offset)
	}
	return len(p), nil
}

// piece returns the part of p that lies in the page of an offset, and where that is in under.
func (f *pagedScratch) piece(p []byte, offset int64) (piece []byte, at int64) {
	start := offset % sharedPageBytes
	return p[:min(int64(len(p)), sharedPageBytes-start)], f.pages[offset/sharedPageBytes] + start
}

// ReadAt implements io.ReaderAt.
func (f *pagedScratch) ReadAt(p []byte, offset int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return 0, ErrClosed
	case offset < 0:
		return 0, ErrRange
	}
	wanted := p[:max(0, min(int64(len(p)), f.size-offset))]
	for n := 0; n < len(wanted); {
		piece, at := f.piece(wanted[n:], offset)
		m, err := f.under.ReadAt(piece, at)
		n += m
		if m < len(piece) {
			return n, err
		}
		offset += int64(m)
	}
	if len(wanted) < len(p) || len(p) == 0 && offset >= f.size {
		return len(wanted), io.EOF
	}
	return len(wanted), nil
}

// Size returns the number of bytes written.
func (f *pagedScratch) Size() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size
}

// Close implements Scratch.
func (f *pagedScratch) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	f.closed = true
	return f.from.release(f.pages)
}
