package file

import (
	"context"
	"errors"
	"fmt"

	"packhorse/pack/invariants"
)

// writer is an unsealed file of a Dir.
type writer struct {
	*spool
	dir  *Dir
	name string
}

// Create implements Store.
func (d *Dir) Create(ctx context.Context, name string) (Writer, error) {
	if d.readOnly {
		return nil, failed("create", name, ErrReadOnly)
	}
	if err := d.claim(name); err != nil {
		return nil, err
	}
	_, err := d.find(ctx, name)
	switch {
	case err == nil:
		err = fmt.Errorf("%w: %s", ErrExists, name)
	case errors.Is(err, ErrNotFound):
		w := &writer{dir: d, name: name}
		file, openErr := d.fs.Create(w.path(), writeCategory)
		if openErr == nil {
			w.spool = newSpool(file, false)
			return w, nil
		}
		err = failed("create", name, openErr)
	}
	d.unclaim(name)
	return nil, err
}

// claim reserves name for one writer.
func (d *Dir) claim(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if _, taken := d.writing[name]; taken {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	d.writing[name] = struct{}{}
	return nil
}

func (d *Dir) unclaim(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if invariants.Enabled {
		_, claimed := d.writing[name]
		invariants.Check(claimed, "file: %s is given up by who does not write it", name)
	}
	delete(d.writing, name)
}

// path returns the path of the unsealed file.
func (w *writer) path() string { return w.dir.fs.PathJoin(w.dir.incoming, w.name+mark) }

// Seal implements Writer.
func (w *writer) Seal(ctx context.Context) error {
	if err := w.dir.begin(ctx); err != nil {
		return err
	}
	if err := w.finish(true); err != nil {
		if errors.Is(err, ErrClosed) {
			return err
		}
		return w.discard(err)
	}
	sealed := w.dir.fs.PathJoin(w.dir.incoming, w.name)
	if err := w.dir.fs.Rename(w.path(), sealed); err != nil {
		return w.discard(err)
	}
	if err := w.dir.syncIncoming(w.dir.incoming); err != nil {
		return errors.Join(w.discard(err), w.dir.fs.Remove(sealed))
	}
	w.dir.unclaim(w.name)
	return nil
}

// Abort implements Writer.
func (w *writer) Abort() error {
	if err := w.finish(false); errors.Is(err, ErrClosed) {
		return nil
	}
	return w.discard(nil)
}

// discard removes the unsealed file and joins its errors to cause.
func (w *writer) discard(cause error) error {
	defer w.dir.unclaim(w.name)
	if ok, err := w.dir.exists(w.path()); ok || err != nil {
		cause = errors.Join(cause, err, w.dir.fs.Remove(w.path()))
	}
	if cause != nil {
		return fmt.Errorf("write file %s: %w", w.name, cause)
	}
	return nil
}
