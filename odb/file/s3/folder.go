package s3

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
)

// lockName is the file that is locked while a process uses a folder.
const lockName = "LOCK"

// folder is the folder of a store on the local disk:
//
//	LOCK    held by the process that uses it
//	~<n>    a spool; a scratch file has its name for an instant only
type folder struct {
	fs    vfs.FS
	path  string
	lock  io.Closer
	count atomic.Uint64 // of files made
}

// openFolder takes the folder at path, which is made if it is missing, and empties it.
func openFolder(fs vfs.FS, path string) (*folder, error) {
	if err := fs.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	lock, err := fs.Lock(fs.PathJoin(path, lockName))
	if _, ok := errors.AsType[*iofs.PathError](err); ok { // its file cannot be made or opened: nobody was asked
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", file.ErrLocked, err)
	}
	f := &folder{fs: fs, path: path, lock: lock}
	if err := f.sweep(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// sweep removes what a crash has left.
func (f *folder) sweep() error {
	names, err := f.fs.List(f.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name[0] == '~' {
			if err := f.fs.Remove(f.fs.PathJoin(f.path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes a file and returns its path.
func (f *folder) create() (string, vfs.File, error) {
	path := f.fs.PathJoin(f.path, "~"+strconv.FormatUint(f.count.Add(1), 10))
	made, err := f.fs.Create(path, vfs.WriteCategoryUnspecified)
	return path, made, err
}

// scratch makes a scratch file, whose name is deleted so that the system frees it in any case.
func (f *folder) scratch() (file.Scratch, error) {
	path, made, err := f.create()
	if err != nil {
		return nil, fmt.Errorf("create scratch file: %w", err)
	}
	if err := f.fs.Remove(path); err != nil {
		return nil, fmt.Errorf("create scratch file: %w", errors.Join(err, made.Close()))
	}
	return file.NewSpool(made, true), nil
}

// free returns the free space in bytes, the largest number if it is unknown.
func (f *folder) free() (uint64, error) {
	usage, err := f.fs.GetDiskUsage(f.path)
	if errors.Is(err, vfs.ErrUnsupported) {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get free space: %w", err)
	}
	return usage.AvailBytes, nil
}

func (f *folder) close() error { return f.lock.Close() }
