package kv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Restoration makes a store from the files of a [Checkpoint]: [NewRestoration], then Write for each
// file, then Finish. Before Finish has returned there is no store, and the folder may be removed.
type Restoration struct {
	fs     vfs.FS
	dir    string
	logger *slog.Logger
}

// NewRestoration begins a store in dir. It uses only FS and Logger of the options. Errors:
// [fs.ErrExist] when dir exists.
func NewRestoration(dir string, options PebbleOptions) (*Restoration, error) {
	r := &Restoration{fs: options.FS, dir: dir, logger: options.Logger}
	if r.fs == nil {
		r.fs = vfs.Default
	}
	if r.logger == nil {
		r.logger = slog.Default()
	}
	if _, err := r.fs.Stat(dir); err == nil {
		return nil, fmt.Errorf("restore key-value store %s: %w", dir, fs.ErrExist)
	}
	if err := makeFolder(r.fs, dir); err != nil {
		return nil, fmt.Errorf("restore key-value store %s: %w", dir, err)
	}
	return r, nil
}

// fileNameBytesMax is more than any name of Pebble's takes.
const fileNameBytesMax = 100

// CheckFileName returns an error unless name may be that of a file in a checkpoint.
func CheckFileName(name string) error {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	stranger := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune(allowed, r) })
	if name == "" || len(name) > fileNameBytesMax || name[0] == '.' || name == lockFile || stranger >= 0 {
		return fmt.Errorf("%w: %q is not a file name", ErrCorrupt, name)
	}
	return nil
}

// Write adds a file and makes it durable.
func (r *Restoration) Write(name string, content io.Reader) (err error) {
	if err := CheckFileName(name); err != nil {
		return err
	}
	f, err := r.fs.Create(r.fs.PathJoin(r.dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// Finish makes the store durable, in a form that [OpenPebble] opens. Errors: [ErrCorrupt] when the
// files are not a complete checkpoint.
func (r *Restoration) Finish() error {
	folder, err := r.fs.OpenDir(r.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	// Opening begins a new log and manifest, and fails if a table is missing.
	db, err := openCopy(r.fs, r.dir, r.logger, false)
	if err != nil {
		return fmt.Errorf("open restored store: %w", translate(err))
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close restored store: %w", translate(err))
	}
	return nil
}
