package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

const (
	// tidyTime bounds a change of a row that nobody waits for.
	tidyTime = 10 * time.Second
	// restFirst and restMost are the rests between attempts to end an intent while the store is away.
	restFirst, restMost = time.Second, time.Minute
)

// Files is a file.Store that notes an intent for each file. A file leaves its intent when it is
// deleted, its writer has ended without it, or it is registered: the owner of the registrations
// adds [Files.Require] to their batch, and calls [Files.Registered] when that was committed. Its
// methods may be called concurrently.
type Files struct {
	file.Store
	remote  file.Remote
	keys    kv.Store
	servers Servers
	log     *slog.Logger

	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup // changes of rows that nobody waits for

	collecting collecting

	mu       sync.Mutex // guards the fields below
	pending  map[string]*pending
	again    []*pending // whose end could not be noted
	retrying bool       // a goroutine goes through again
	closed   bool
}

// Open returns a store over files, which remote leads to. The caller closes keys and files after
// [Files.End].
func Open(keys kv.Store, files file.Store, remote file.Remote, servers Servers, log *slog.Logger) *Files {
	f := &Files{
		Store: files, remote: remote, keys: keys, servers: servers, log: log, pending: make(map[string]*pending),
	}
	f.collecting.since = make(map[string]time.Time)
	f.closing, f.close = context.WithCancel(context.Background())
	return f
}

// End waits for changes of rows under way. Intents that are left are those of a server that has
// gone.
func (f *Files) End() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.close()
	f.running.Wait()
}

// Reserve notes one intent for files that are about to be created. It does not wait for the row.
func (f *Files) Reserve(ctx context.Context, names ...string) {
	p := newPending(f, names)
	f.mu.Lock()
	for _, name := range names {
		f.pending[name] = p
	}
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(f.closing, cancel)
	f.behind(func() {
		defer cancel()
		defer stop()
		p.store(ctx)
	}, p.failed)
}

// Release ends the reservation of a file that is not created after all.
func (f *Files) Release(name string) { f.left(name, nil) }

// Create implements file.Store. A file that is not reserved gets an intent of its own.
func (f *Files) Create(ctx context.Context, name string) (file.Writer, error) {
	if err := file.CheckName(name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	_, reserved := f.pending[name]
	f.mu.Unlock()
	if !reserved {
		f.Reserve(ctx, name)
	}
	f.mu.Lock()
	p := f.pending[name]
	if p == nil || p.open[name] {
		f.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", file.ErrExists, name)
	}
	p.open[name] = true
	f.mu.Unlock()
	w, err := f.remote.CreateIntended(ctx, name, &noting{p, name})
	if err != nil {
		f.left(name, nil)
		return nil, err
	}
	return w, nil
}

// Delete implements file.Store. If it fails for a file that is not registered, a collector goes on.
func (f *Files) Delete(ctx context.Context, name string) error {
	err := f.Store.Delete(ctx, name)
	if errors.Is(err, file.ErrNotFound) {
		f.left(name, nil)
	} else {
		f.left(name, err)
	}
	return err
}

// find returns the intent of a file, nil if there is none.
func (f *Files) find(name string) *pending {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pending[name]
}

// Require has b register files: b requires that their intents are not taken, and removes them.
// Errors: [ErrTaken].
func (f *Files) Require(b *kv.Batch, names ...string) error {
	var last *pending
	for _, name := range names {
		p := f.find(name)
		if p == nil {
			return fmt.Errorf("register file %s: %w", name, ErrTaken)
		}
		if p == last {
			continue
		}
		last = p
		value := p.stored()
		b.Require(p.key, value)
		b.Delete(p.key)
	}
	return nil
}

// Stand returns an error unless the intents of files are as [Files.Require] expects them. Errors:
// [ErrTaken].
func (f *Files) Stand(ctx context.Context, names ...string) error {
	for _, name := range names {
		p := f.find(name)
		if p == nil {
			return fmt.Errorf("register file %s: %w", name, ErrTaken)
		}
		value, err := f.keys.Get(ctx, p.key)
		if errors.Is(err, kv.ErrNotFound) || err == nil && string(value) != string(p.stored()) {
			err = ErrTaken
		}
		if err != nil {
			return fmt.Errorf("register file %s: %w", name, err)
		}
	}
	return nil
}

// IsConflict reports whether a batch has failed because an intent that it required was taken.
func IsConflict(err error) bool {
	conflict, ok := errors.AsType[*kv.ConflictError](err)
	return ok && len(conflict.Key) == keySize && conflict.Key[0] == Table
}

// Registered says that the batch that registers files was committed.
func (f *Files) Registered(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if p := f.pending[name]; p != nil {
			p.over = true
			f.forget(p)
		}
	}
}

// forget removes an intent from memory. mu is held.
func (f *Files) forget(p *pending) {
	for _, name := range p.names {
		if f.pending[name] == p {
			delete(f.pending, name)
		}
	}
}

// Take makes sure that a file whose registration may be under way is not registered any more: the
// caller then deletes it. It returns false if the file is registered, or a collector has taken it.
// After an error the file is left to a collector, unless it is registered.
func (f *Files) Take(ctx context.Context, name string) (bool, error) {
	p := f.find(name)
	if p == nil {
		return false, nil
	}
	taken, err := p.take(ctx)
	if taken {
		return true, nil
	}
	f.mu.Lock()
	p.over = true
	f.forget(p)
	f.mu.Unlock()
	if err != nil {
		f.later(p)
		return false, fmt.Errorf("take file %s: %w", name, err)
	}
	return false, nil
}

// left says that nothing is left of a file, or why something may be. When nothing is left of the
// last file, the intent goes; if something may be, a collector gets it.
func (f *Files) left(name string, err error) {
	f.mu.Lock()
	p := f.pending[name]
	if p == nil || p.over {
		f.mu.Unlock()
		return
	}
	delete(f.pending, name)
	delete(p.open, name)
	p.doubt = p.doubt || err != nil
	if len(p.open) > 0 {
		f.mu.Unlock()
		return
	}
	p.over = true
	f.forget(p)
	f.mu.Unlock()
	f.behind(func() {
		if f.finish(p) != nil {
			f.later(p)
		}
	}, func(error) { f.later(p) })
}

// finish notes the end of an intent.
func (f *Files) finish(p *pending) error {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	err := rescue.Do(func() error { return p.finish(ctx) }) // one that panics is tried again, too
	if err != nil {
		f.log.WarnContext(ctx, "failed to note that files were not stored", "files", p.names, "error", err)
	}
	return err
}

// later tries to note the end of an intent again, until the store is closed.
func (f *Files) later(p *pending) {
	f.mu.Lock()
	f.again = append(f.again, p)
	begin := !f.retrying && !f.closed
	f.retrying = f.retrying || begin
	f.mu.Unlock()
	if begin {
		f.behind(f.retry, func(err error) {
			f.log.Error("failed to note that files were not stored", "error", err)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.retrying = false
		})
	}
}

// retry goes through the intents whose end could not be noted.
func (f *Files) retry() {
	for rest := restFirst; ; rest = min(2*rest, restMost) {
		select {
		case <-time.After(rest):
		case <-f.closing.Done():
			return
		}
		f.mu.Lock()
		all := f.again
		f.again = nil
		f.mu.Unlock()
		var failed []*pending
		for _, p := range all {
			if f.closing.Err() != nil || f.finish(p) != nil {
				failed = append(failed, p)
			}
		}
		f.mu.Lock()
		f.again = append(f.again, failed...)
		if len(f.again) == 0 {
			f.retrying = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
	}
}

// behind does work that nobody waits for but End.
func (f *Files) behind(work func(), failed func(error)) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		failed(file.ErrClosed)
		return
	}
	defer f.mu.Unlock()
	rescue.Go(&f.running, func() error {
		work()
		return nil
	}, failed)
}
