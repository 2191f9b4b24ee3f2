package file

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sealed is an open file of a Dir.
type sealed struct {
	size int64

	mu   sync.RWMutex // guards file; shared by readers
	file vfs.File     // nil when closed
}

// ReadAt implements ReaderAt. It looks at ctx only before it reads: the disk does not let go of a
// read that it has begun.
func (s *sealed) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return 0, ErrClosed
	}
	if offset < 0 {
		return 0, ErrRange
	}
	return s.file.ReadAt(p, offset)
}

// Size returns the size of the file.
func (s *sealed) Size() int64 { return s.size }

// Close waits for running reads.
func (s *sealed) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return ErrClosed
	}
	file := s.file
	s.file = nil
	return file.Close()
}
