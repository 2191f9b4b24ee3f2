package file

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	path := d.fs.PathJoin(d.incoming, mark+strconv.FormatUint(d.scratch.Add(1), 10))
	file, err := d.fs.Create(path, writeCategory)
	if err != nil {
		return nil, fmt.Errorf("create scratch file: %w", err)
	}
	if err := d.fs.Remove(path); err != nil {
		return nil, fmt.Errorf("create scratch file: %w", errors.Join(err, file.Close()))
	}
	return scratch{newSpool(file, true)}, nil
}

// Close implements Scratch.
func (s scratch) Close() error { return s.finish(false) }
