package file

import (
	"errors"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/pack/invariants"
)

const (
	// spoolBytes is the size of the write buffer.
	spoolBytes = 256 << 10
	// syncAheadBytes is the amount of dirty data after which the system is asked to begin writeback.
	// So the sync at the end is short, and so are concurrent syncs of other files, which wait for the
	// same disk.
	syncAheadBytes = 256 << 10
)

var spoolBuffers = sync.Pool{New: func() any { return new([spoolBytes]byte) }}

// spool appends to a file through a buffer, and reads back what was appended.
type spool struct {
	scratch bool // WriteAt may reach beyond the end, and the content need not be durable

	mu      sync.RWMutex // guards the fields below; shared by readers
	file    vfs.File     // nil when finished
	buffer  *[spoolBytes]byte
	fill    int   // of buffer
	flushed int64 // bytes before the buffer
	ahead   int64 // bytes in writeback
	err     error // of a write; sticky
}

func newSpool(file vfs.File, scratch bool) *spool {
	return &spool{file: file, scratch: scratch, buffer: spoolBuffers.Get().(*[spoolBytes]byte)}
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return 0, ErrClosed
	}
	written := 0
	for len(p) > 0 {
		if s.fill == spoolBytes {
			if err := s.flush(); err != nil {
				return written, err
			}
		}
		n := len(p) - len(p)%spoolBytes
		if s.fill == 0 && n > 0 {
			if err := s.writeOut(p[:n]); err != nil {
				return written, err
			}
		} else {
			n = copy(s.buffer[s.fill:], p)
			s.fill += n
		}
		written += n
		p = p[n:]
	}
	return written, s.err
}

// WriteAt implements io.WriterAt.
func (s *spool) WriteAt(p []byte, offset int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return 0, ErrClosed
	}
	end := offset + int64(len(p))
	if offset < 0 || (end > s.size() && !s.scratch) {
		return 0, ErrRange
	}
	switch {
	case len(p) == 0:
		return 0, s.err
	case offset >= s.flushed && end <= s.size():
		return copy(s.buffer[offset-s.flushed:], p), s.err
	case end > s.flushed:
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.WriteAt(p, offset)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.flushed = max(s.flushed, offset+int64(n))
	return n, s.err
}

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(p []byte, offset int64) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return 0, ErrClosed
	}
	if offset < 0 {
		return 0, ErrRange
	}
	if offset >= s.size() {
		return 0, io.EOF
	}
	n := 0
	if offset < s.flushed {
		n = int(min(int64(len(p)), s.flushed-offset))
		if m, err := s.file.ReadAt(p[:n], offset); m < n {
			return m, err
		}
	}
	if n < len(p) {
		n += copy(p[n:], s.buffer[offset+int64(n)-s.flushed:s.fill])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size returns the number of bytes written.
func (s *spool) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size()
}

func (s *spool) size() int64 { return s.flushed + int64(s.fill) }

// finish closes the file, after a sync if durable, and returns the buffer to the pool; ErrClosed
// the second time.
func (s *spool) finish(durable bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return ErrClosed
	}
	var err error
	if durable {
		if err = s.flush(); err == nil {
			err = s.file.SyncData()
		}
	}
	err = errors.Join(err, s.file.Close())
	s.file = nil
	spoolBuffers.Put(s.buffer)
	s.buffer = nil
	return err
}

// flush writes the buffer to the file.
func (s *spool) flush() error {
	if s.err != nil || s.fill == 0 {
		return s.err
	}
	if err := s.writeOut(s.buffer[:s.fill]); err != nil {
		return err
	}
	s.fill = 0
	return nil
}

// writeOut writes p to the end of the file. The buffer is empty, or p itself.
func (s *spool) writeOut(p []byte) error {
	if s.err != nil {
		return s.err
	}
	if invariants.Enabled {
		invariants.Check(s.fill == 0 || s.fill == len(p) && &p[0] == &s.buffer[0],
			"file: %d bytes in the buffer are overtaken", s.fill)
		invariants.Check(s.ahead <= s.flushed, "file: %d bytes of %d are being written back", s.ahead, s.flushed)
	}
	n, err := s.file.WriteAt(p, s.flushed)
	if err != nil {
		s.err = err
		return err
	}
	s.flushed += int64(n)
	if !s.scratch && s.flushed-s.ahead >= syncAheadBytes {
		s.ahead = s.flushed
		_, s.err = s.file.SyncTo(s.flushed)
	}
	return s.err
}
