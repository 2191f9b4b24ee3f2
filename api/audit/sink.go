package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// sink is where lines go. One goroutine at a time uses it.
type sink interface {
	// write writes lines, each ended by a newline, and returns how many of them it has written whole.
	write(lines []byte) (whole int, err error)
	// reopen goes on with what the destination's name leads to now. After an error the sink goes on as
	// before.
	reopen() error
	close() error
}

// stream is a file, or standard output.
type stream struct {
	path string // "" for standard output
	to   io.Writer
	torn bool // the last line that was written is not whole
}

// openFile opens a file to append to, which nobody else may read if it is new.
func openFile(path string) (*stream, error) {
	s := &stream{path: path}
	return s, s.open()
}

func (s *stream) open() error {
	f, err := OpenFile(s.path, os.O_CREATE)
	if err != nil {
		return err
	}
	s.to, s.torn = f, endsTorn(s.path)
	return nil
}

// OpenFile opens the file of an audit log to append to, with more flags of the os package. It does
// not wait for the reader of a FIFO: without one it fails.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK|flags, 0o600)
	if errors.Is(err, syscall.ENXIO) {
		err = fmt.Errorf("%w: it is a FIFO that nobody reads", err)
	}
	return f, err
}

// endsTorn reports whether a file ends in a line that a killed server has not finished. It is false
// for what is no file, or cannot be read.
func endsTorn(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// write ends a torn line before it begins another one.
func (s *stream) write(lines []byte) (whole int, err error) {
	if s.torn {
		if _, err := s.to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.torn = false
	}
	n, err := s.to.Write(lines)
	if n > 0 {
		s.torn = lines[n-1] != '\n'
	}
	if n < len(lines) {
		err = cmp.Or(err, io.ErrShortWrite)
	}
	return bytes.Count(lines[:n], []byte{'\n'}), err
}

func (s *stream) reopen() error {
	if s.path == "" {
		return nil
	}
	before := s.to
	if err := s.open(); err != nil {
		return err
	}
	return closeStream(before)
}

func (s *stream) close() error {
	if s.path == "" {
		return nil
	}
	return closeStream(s.to)
}

// closeStream closes a file when its content is durable. Pipes and the like cannot be synced.
func closeStream(to io.Writer) error {
	f, ok := to.(*os.File)
	if !ok {
		return nil
	}
	var syncErr error
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		syncErr = f.Sync()
	}
	return errors.Join(syncErr, f.Close())
}
