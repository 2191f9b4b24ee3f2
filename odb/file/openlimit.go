package file

import (
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenLimit bounds the files that are open at a time in some file systems together, so that
// descriptors are left for everything else. Nil is no limit. Its methods may be called
// concurrently.
type OpenLimit struct {
	max  int64
	open atomic.Int64
}

// NewOpenLimit returns a limit of countMax files.
func NewOpenLimit(countMax int) *OpenLimit { return &OpenLimit{max: int64(countMax)} }

// Created returns under, nil for the file system of the machine, with the limit for created files.
// Beyond it Create fails with [ErrManyOpen].
func (l *OpenLimit) Created(under vfs.FS) vfs.FS {
	if l == nil {
		return under
	}
	return &createLimitFS{l.orMachine(under), l}
}

// Opened is Created with the limit for files that are opened to be read, too. Beyond it Create and
// Open fail with [ErrManyOpen].
func (l *OpenLimit) Opened(under vfs.FS) vfs.FS {
	if l == nil {
		return under
	}
	return &openLimitFS{createLimitFS{l.orMachine(under), l}}
}

func (l *OpenLimit) orMachine(under vfs.FS) vfs.FS {
	if under == nil {
		return vfs.Default
	}
	return under
}

// count counts the file that open opens.
func (l *OpenLimit) count(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if l.open.Add(1) > l.max {
		l.open.Add(-1)
		return nil, fmt.Errorf("open %s: %w", name, ErrManyOpen)
	}
	f, err := open()
	if err != nil {
		l.open.Add(-1)
		return nil, err
	}
	return &countedFile{File: f, limit: l}, nil
}

type createLimitFS struct {
	vfs.FS
	limit *OpenLimit
}

// Create implements vfs.FS.
func (s *createLimitFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.limit.count(name, func() (vfs.File, error) { return s.FS.Create(name, category) })
}

// Unwrap implements vfs.FS.
func (s *createLimitFS) Unwrap() vfs.FS { return s.FS }

type openLimitFS struct{ createLimitFS }

// Open implements vfs.FS.
func (s *openLimitFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return s.limit.count(name, func() (vfs.File, error) { return s.FS.Open(name, options...) })
}

// countedFile counts until it is closed.
type countedFile struct {
	vfs.File
	limit  *OpenLimit
	closed atomic.Bool
}

// Close implements vfs.File.
func (f *countedFile) Close() error {
	if !f.closed.Swap(true) {
		defer f.limit.open.Add(-1)
	}
	return f.File.Close()
}
