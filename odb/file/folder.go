package file

import (
	"errors"
	"io/fs"
)

// makeFolder makes a folder and its parents, durably. An existing folder may be the remains of a
// crashed attempt, so its entry is synced too; its parents were then synced by that attempt.
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
