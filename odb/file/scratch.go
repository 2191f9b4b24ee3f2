package file

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scratch is a temporary file of a Dir. Its name is already deleted, so that the system frees it in
// any case.
type scratch struct{ *spool }

// Scratch implements Store.
func (d *Dir) Scratch(ctx context.Context) (Scratch, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	if d.readOnly {
		return nil, fmt.Errorf("create scratch file: %w", ErrReadOnly)
	}
	path := d.scratchPath()
	file, err := d.fs.Create(path, writeCategory)
	if err != nil {
		return nil, fmt.Errorf("create scratch file: %w", err)
	}
	if err := d.fs.Remove(path); err != nil {
		return nil, fmt.Errorf("create scratch file: %w", errors.Join(err, file.Close()))
	}
	return scratch{newSpool(file, true)}, nil
}

func (d *Dir) scratchPath() string {
	return d.fs.PathJoin(d.incoming, mark+strconv.FormatUint(d.scratch.Add(1), 10))
}

// ScratchFolder returns the path of a folder that does not exist yet, and the file system in which
// the caller makes it, and removes it when it has served. The next [OpenDir] removes what a crash
// has left. Errors: [ErrClosed], [ErrReadOnly].
func (d *Dir) ScratchFolder(ctx context.Context) (vfs.FS, string, error) {
	if err := d.begin(ctx); err != nil {
		return nil, "", err
	}
	if d.readOnly {
		return nil, "", fmt.Errorf("create scratch folder: %w", ErrReadOnly)
	}
	return d.fs, d.scratchPath(), nil
}

// Close implements Scratch.
func (s scratch) Close() error { return s.finish(false) }
