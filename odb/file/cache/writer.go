package cache

import (
	"context"

	"packhorse/odb/file"
)

// Keeper is implemented by a writer that has its file on the local disk and can leave it there.
type Keeper interface {
	// SealTo is Seal, and leaves the file at path. kept is false if that cannot be: the file is sealed
	// then, too.
	SealTo(ctx context.Context, path string) (kept bool, err error)
}

// writer is a writer whose file enters the cache when it is sealed.
type writer struct {
	file.Writer
	store  *Store
	name   string
	keeper Keeper
}

// Create implements file.Store.
func (s *Store) Create(ctx context.Context, name string) (file.Writer, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	w, err := s.remote.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.keep(w, name), nil
}

// keep returns the writer of a file that enters the cache, if the store behind can leave it there.
func (s *Store) keep(w file.Writer, name string) file.Writer {
	if keeper, ok := w.(Keeper); ok {
		return &writer{Writer: w, store: s, name: name, keeper: keeper}
	}
	return w
}

// AsRemote returns the store behind the cache as a file.Remote whose files pass through the cache;
// nil if it is none.
func (s *Store) AsRemote() file.Remote {
	behind := file.AsRemote(s.remote)
	if behind == nil {
		return nil
	}
	return &remote{store: s, behind: behind}
}

// remote is a file.Remote with a cache before it.
type remote struct {
	store  *Store
	behind file.Remote
}

// CreateIntended implements file.Remote.
func (r *remote) CreateIntended(ctx context.Context, name string, intent file.Intent) (file.Writer, error) {
	if err := r.store.check(ctx, name); err != nil {
		return nil, err
	}
	w, err := r.behind.CreateIntended(ctx, name, intent)
	if err != nil {
		return nil, err
	}
	return r.store.keep(w, name), nil
}

// Discard implements file.Remote.
func (r *remote) Discard(ctx context.Context, name, upload string) error {
	if err := r.store.check(ctx, name); err != nil {
		return err
	}
	err := r.behind.Discard(ctx, name, upload)
	if err == nil {
		r.store.forgetFile(name)
	}
	return err
}

// Seal implements file.Writer.
func (w *writer) Seal(ctx context.Context) error {
	s := w.store
	e := newEntry(s, w.name)
	e.know(w.Size())
	cost := e.blocks.fullCost()
	if w.Size() > s.bytesMax/2 || !s.reserve(e, cost) {
		return w.Writer.Seal(ctx)
	}
	adopted := false
	defer func() {
		if !adopted { // also after a panic
			s.release(e, cost)
		}
	}()
	path := s.path(w.name)
	unfinished := path + "~" // in no name, so that a crash leaves nothing that looks whole
	kept := false
	err := s.fs.MkdirAll(s.fs.PathDir(path), 0o700)
	if err != nil {
		err = w.Writer.Seal(ctx)
	} else {
		kept, err = w.keeper.SealTo(ctx, unfinished)
	}
	adopted = err == nil && kept && s.adopt(e, unfinished, path)
	return err
}

// adopt gives a file that was sealed just now its place in the cache. It reports false if the cache
// knows the file already.
func (s *Store) adopt(e *entry, from, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.name] != nil || s.closed {
		_ = s.fs.Remove(from) // or the next start does
		return false
	}
	if err := s.fs.Rename(from, path); err != nil {
		s.log.Warn("cache: failed to keep a file", "file", e.name, "error", err)
		return false
	}
	e.blocks.fill()
	e.changed()
	s.entries[e.name] = e
	return true
}
