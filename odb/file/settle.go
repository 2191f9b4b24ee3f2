package file

import (
	"context"
	"errors"
	"io/fs"

	"packhorse/pack/invariants"
)

// Settle implements Incoming.
//
// The new entry is durable before the old one is removed. A crash in between can leave the file in
// both folders.
func (d *Dir) Settle(ctx context.Context, name string) error {
	if d.readOnly {
		return failed("settle", name, ErrReadOnly)
	}
	from, err := d.find(ctx, name)
	if err != nil {
		return err
	}
	to := d.settledPath(name)
	if from == to {
		from, err = d.findIncoming(ctx, name)
		if errors.Is(err, ErrNotFound) {
			return d.syncMoved()
		}
		if err != nil {
			return err
		}
	}
	if err := d.move(from, to); err != nil {
		return failed("settle", name, err)
	}
	return nil
}

// move renames a file into a folder under settled.
func (d *Dir) move(from, to string) error {
	folder := d.fs.PathDir(to)
	if err := d.makeFanout(folder); err != nil {
		return err
	}
	d.order.Lock()
	d.moved[folder] = struct{}{}
	err := d.fs.Rename(from, to)
	d.order.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		_, err = d.fs.Stat(to) // another call was faster
	}
	if err != nil {
		return err
	}
	return d.syncIncoming(d.fs.PathDir(from))
}

// syncIncoming makes the entries of a folder durable, and before them those of the folders into
// which files were moved: the removal of an old entry must not be durable before the new entry is.
func (d *Dir) syncIncoming(folder string) error {
	d.order.RLock()
	for len(d.moved) > 0 {
		d.order.RUnlock()
		if err := d.syncMoved(); err != nil {
			return err
		}
		d.order.RLock()
	}
	defer d.order.RUnlock()
	if invariants.Enabled { // or a crash could lose files: docs/invariants.md 14
		invariants.Check(len(d.moved) == 0,
			"file: %s is synced before %d folders that its files went to", folder, len(d.moved))
	}
	return d.syncFolder(folder)
}

// syncMoved makes the entries of moved files durable. If the sync of a folder fails, the next call
// repeats it.
func (d *Dir) syncMoved() error {
	d.order.Lock()
	defer d.order.Unlock()
	for folder := range d.moved {
		if err := d.syncFolder(folder); err != nil {
			return err
		}
		delete(d.moved, folder)
	}
	return nil
}

// makeFanout makes a folder under settled, durably.
func (d *Dir) makeFanout(folder string) error {
	d.mu.Lock()
	_, known := d.fanout[folder]
	d.mu.Unlock()
	if known {
		return nil
	}
	if err := d.makeFolder(folder); err != nil {
		return err
	}
	d.mu.Lock()
	d.fanout[folder] = struct{}{}
	d.mu.Unlock()
	return nil
}
