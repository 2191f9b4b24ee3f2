package file

import "github.com/cockroachdb/pebble/v2/vfs"

// Spool is a file on the local disk that is written through a buffer and read back. A store that
// keeps its files elsewhere completes them in spools. Its methods may be called concurrently.
type Spool struct{ spool *spool }

// NewSpool returns an empty spool in f, which it closes. WriteAt reaches beyond the end only if
// gaps is set, and a gap reads as zeros.
func NewSpool(f vfs.File, gaps bool) *Spool { return &Spool{newSpool(f, gaps)} }

// Write appends p.
func (s *Spool) Write(p []byte) (int, error) { return s.spool.Write(p) }

// WriteAt replaces written bytes; [ErrRange] beyond them, unless gaps are allowed.
func (s *Spool) WriteAt(p []byte, offset int64) (int, error) { return s.spool.WriteAt(p, offset) }

// ReadAt reads written bytes, also those that are in the buffer.
func (s *Spool) ReadAt(p []byte, offset int64) (int, error) { return s.spool.ReadAt(p, offset) }

// Size returns the number of bytes written.
func (s *Spool) Size() int64 { return s.spool.Size() }

// Flush writes the buffer to the file, which is not synced.
func (s *Spool) Flush() error {
	s.spool.mu.Lock()
	defer s.spool.mu.Unlock()
	if s.spool.file == nil {
		return ErrClosed
	}
	return s.spool.flush()
}

// Close closes the file without flushing the buffer. The other methods then fail with [ErrClosed],
// and so does Close.
func (s *Spool) Close() error { return s.spool.finish(false) }
