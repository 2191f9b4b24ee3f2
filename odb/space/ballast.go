package space

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ballastName is the name of the ballast file. No other package uses it in the folder.
const ballastName = "ballast"

// ballast is a file that reserves disk space.
type ballast struct {
	fs    vfs.FS
	path  string
	there bool
}

// find looks for the file of an earlier process.
func (b *ballast) find() error {
	_, err := b.fs.Stat(b.path)
	b.there = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// create makes a file of size bytes. Its blocks are reserved, not written: a file system without
// that operation gets an empty ballast.
func (b *ballast) create(size int64) error {
	f, err := b.fs.Create(b.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Preallocate(0, size), f.Close()); err != nil {
		return errors.Join(err, b.fs.Remove(b.path))
	}
	b.there = true
	return nil
}

// remove deletes the file. It is no error if it is gone already.
func (b *ballast) remove() error {
	b.there = false
	if err := b.fs.Remove(b.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
