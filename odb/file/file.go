// Package file is the store of large immutable files, and its embedded implementation in a
// directory.
//
// A file is written once under a name, sealed, and never changed afterwards. Start at [Store] for
// the contract, at [OpenDir] for the implementation, and at package filetest for the tests that
// every implementation must pass. Readers tell a [Cached] file what they need next, through an
// [Ahead], and which bytes failed a check. What one request writes and reads back lies in a
// [SpillBuffer] or a [Scratch].
//
// # Life of a file
//
//	Create    written, found by nobody
//	Seal      durable and complete; found by Open; may now be named in a database
//	Settle    moved to its place, when the database names it
//	Delete    gone
//
// The database decides: a sealed file that it does not name is a leftover of a crash. A store that
// is [Incoming], such as [Dir], has files written in a folder of the server. Only that one can hold
// leftovers of the server, so a start scans it and not the store. In other stores a sealed file is
// in its place, and nothing is settled.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// NameBytesMax is the largest size of a name.
const NameBytesMax = 100

var (
	// ErrNotFound means that there is no sealed file of that name.
	ErrNotFound = errors.New("file: not found")
	// ErrExists means that a file of that name is stored or being written.
	ErrExists = errors.New("file: already exists")
	// ErrName means that a name or a server id does not match [a-z0-9][a-z0-9.-]* or is too long; the
	// error is a [NameError].
	ErrName = errors.New("file: invalid name")
	// ErrClosed means that a file, a writer or a store was used after it was closed.
	ErrClosed = errors.New("file: closed")
	// ErrLocked means that another process, or another store of this one, writes under the same server
	// id.
	ErrLocked = errors.New("file: server id is in use")
	// ErrReadOnly means that a change was requested of a store opened read-only.
	ErrReadOnly = errors.New("file: store is read-only")
	// ErrRange means that a WriteAt reaches beyond the written bytes.
	ErrRange = errors.New("file: write beyond the end")
	// ErrManyOpen means that no more files may be open at a time; see [OpenLimit].
	ErrManyOpen = errors.New("file: too many files are open")
	// ErrUnavailable means that the store cannot be reached, or refuses to work. A later call may
	// succeed.
	ErrUnavailable = errors.New("file: store is unavailable")
)

// NameError is a refused name. It matches [ErrName].
type NameError struct{ Name string }

// Error quotes the name.
func (e *NameError) Error() string { return fmt.Sprintf("%v %q", ErrName, e.Name) }

// Is reports whether target is ErrName.
func (e *NameError) Is(target error) bool { return target == ErrName }

// CheckName returns a [NameError] unless name matches [a-z0-9][a-z0-9.-]* and has at most
// NameBytesMax bytes.
func CheckName(name string) error {
	if len(name) == 0 || len(name) > NameBytesMax {
		return &NameError{Name: name}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '-'):
		default:
			return &NameError{Name: name}
		}
	}
	return nil
}

// Store holds large immutable files. Its methods may be called concurrently. All of them, and those
// of its files and writers, fail with [ErrUnavailable] while the store cannot be reached.
type Store interface {
	// Create begins a file. It is invisible until it is sealed, and vanishes in a crash.
	//
	// Errors: [ErrName], and [ErrExists] when a file of that name is being written in this store. When
	// one is stored, Create or Seal returns ErrExists.
	Create(ctx context.Context, name string) (Writer, error)

	// Open opens a sealed file of any server; [ErrNotFound] if there is none. The caller closes it.
	Open(ctx context.Context, name string) (File, error)

	// Delete removes a sealed file of any server, durably. If there is none it returns [ErrNotFound],
	// or nil where the store cannot tell. Open files of the same store stay readable; those of other
	// servers may fail with ErrNotFound from then on.
	Delete(ctx context.Context, name string) error

	// List walks all sealed files in no particular order. It may or may not show files that are
	// created or deleted during the walk.
	List(ctx context.Context) iter.Seq2[Info, error]

	Scratcher

	// Free returns the free disk space in bytes, [math.MaxUint64] if it is unknown.
	Free(ctx context.Context) (uint64, error)

	// Close releases the server id; open files stay usable.
	Close() error
}

// Incoming is implemented by a [Store] in which a sealed file lies in a folder of its server first,
// and is moved to its place when the database names it. What lies in that folder after a start was
// left by a crash, unless the database names it. In other stores a sealed file is in its place.
type Incoming interface {
	// Settle moves a sealed file, of any server, to its final place. Readers find it at every instant.
	// Settle is idempotent, so an interrupted one can be repeated; [ErrNotFound] if there is no such
	// file.
	Settle(ctx context.Context, name string) error

	// Leftovers walks the unsettled sealed files of this server: after a start, the leftovers of a
	// crash.
	Leftovers(ctx context.Context) iter.Seq2[Info, error]
}

// Settle moves a sealed file to its final place, if store is [Incoming].
func Settle(ctx context.Context, store Store, name string) error {
	if incoming, ok := store.(Incoming); ok {
		return incoming.Settle(ctx, name)
	}
	return nil
}

// Scratcher makes scratch files: a [Store], or a [SharedScratch] over one.
type Scratcher interface {
	// Scratch returns an unnamed temporary file, which is deleted when it is closed or the process
	// ends.
	Scratch(ctx context.Context) (Scratch, error)
}

// Writer writes one file. Its methods may be called concurrently.
type Writer interface {
	io.Writer // appends

	// ReadAt reads written bytes, including those that are not on the disk yet.
	io.ReaderAt

	// WriteAt replaces bytes that were already written; [ErrRange] beyond them.
	io.WriterAt

	// Size returns how many bytes were written.
	Size() int64

	// Seal makes the file durable, first its data and then its name, and ends the writer. If it fails
	// the file is not stored, and Abort removes the remains. It may return [ErrExists].
	Seal(ctx context.Context) error

	// Abort discards the file and ends the writer. After Seal or Abort it does nothing, so that it can
	// be deferred.
	Abort() error
}

// ReaderAt is [io.ReaderAt] with a context, which ends a read that has to wait. Only the end of the
// content is [io.EOF] or [io.ErrUnexpectedEOF]: bytes that end before it are taken for damage.
type ReaderAt interface {
	ReadAt(ctx context.Context, p []byte, offset int64) (int, error)
}

// File is a sealed file. Its methods may be called concurrently.
type File interface {
	ReaderAt
	Size() int64
	Close() error
}

// Scratch is a temporary file. Its methods may be called concurrently.
type Scratch interface {
	io.Writer // appends
	io.ReaderAt
	io.WriterAt // may reach beyond the end; a gap reads as zeros
	Size() int64
	Close() error
}

// Info describes a sealed file.
type Info struct {
	Name    string
	Size    int64
	Time    time.Time // of the last write
	Settled bool      // in its final place; set by an [Incoming] only
}
