package file

import (
	"errors"
	"io/fs"
)

// makeFolder makes a folder, with all above it, that survives a crash. One that exists may be what
// another crash left of the attempt, so its entry is synced too; what is above it was then synced
// by whoever made it.
func (d *Dir) makeFolder(path string) error {
	_, err := d.fs.Stat(path)
	made := errors.Is(err, fs.ErrNotExist)
	if err != nil && !made {
		return err
	}
	if err := d.fs.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for parent := d.fs.PathDir(path); ; parent = d.fs.PathDir(parent) {
		if err := d.syncFolder(parent); err != nil || !made || parent == d.fs.PathDir(parent) {
			return err
		}
	}
}

// syncFolder makes the entries of a folder durable.
func (d *Dir) syncFolder(path string) error {
	folder, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
