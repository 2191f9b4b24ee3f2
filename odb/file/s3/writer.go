package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

// writer is a file that is not sealed. All of it lies in a spool. While it grows, whole parts are
// sent, but the first and the last two: the header and the trailer of a pack are written again at
// the end. A part that is changed after it was sent is sent again.
type writer struct {
	store *Store
	name  string
	path  string // of the spool
	spool *file.Spool
	token string // of this attempt to write the file, in the metadata of the object
	// intent is noted durably before anything is sent.
	intent file.Intent

	ctx      context.Context // of parts that are sent while the file grows
	cancel   context.CancelFunc
	sending  sync.WaitGroup // these parts
	starting sync.Mutex     // held while the multipart upload is begun and noted

	mu     sync.Mutex // guards the fields below
	ended  bool       // by Seal or Abort
	left   error      // why an object that is not sealed may be there
	parts  []part
	behind int    // goroutines that send parts while the file grows
	next   int    // the first part that none of them has taken
	upload string // the ID of the multipart upload; "" while there is none
	noted  bool   // upload is in the intent
}

// Create implements file.Store. It sends nothing: whether the name is stored already is noticed by
// Seal, if the service knows conditional writes.
func (s *Store) Create(ctx context.Context, name string) (file.Writer, error) {
	return s.CreateIntended(ctx, name, noIntent{})
}

// noIntent is the intent of a file that nobody has noted.
type noIntent struct{}

func (noIntent) Begin(context.Context) error          { return nil }
func (noIntent) Upload(context.Context, string) error { return nil }
func (noIntent) End(error)                            {}

// CreateIntended implements file.Remote, as Create.
func (s *Store) CreateIntended(ctx context.Context, name string, intent file.Intent) (file.Writer, error) {
	if err := s.claim(ctx, name); err != nil {
		return nil, err
	}
	path, made, err := s.local.create()
	if err != nil {
		s.unclaim(name)
		return nil, fmt.Errorf("create file %s: %w", name, err)
	}
	w := &writer{
		store: s, name: name, path: path, spool: file.NewSpool(made, false), token: rand.Text(), next: 1, intent: intent,
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return w, nil
}

// claim reserves name for one writer.
func (s *Store) claim(ctx context.Context, name string) error {
	if err := s.check(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.writing[name]; taken {
		return fmt.Errorf("%w: %s", file.ErrExists, name)
	}
	s.writing[name] = struct{}{}
	return nil
}

func (s *Store) unclaim(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, name)
}

// Write implements file.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.spool.Size()+int64(len(p)) > sizeMax {
		return 0, fmt.Errorf("write file %s: more than %d bytes", w.name, int64(sizeMax))
	}
	n, err := w.spool.Write(p)
	if err == nil {
		w.grown()
	}
	return n, err
}

// WriteAt implements file.Writer.
func (w *writer) WriteAt(p []byte, offset int64) (int, error) {
	n, err := w.spool.WriteAt(p, offset)
	// Behind the write: a part that has read the bytes before is sent again.
	if n > 0 {
		w.changed(offset, int64(n))
	}
	return n, err
}

// ReadAt implements file.Writer.
func (w *writer) ReadAt(p []byte, offset int64) (int, error) { return w.spool.ReadAt(p, offset) }

// Size implements file.Writer.
func (w *writer) Size() int64 { return w.spool.Size() }

// Seal implements file.Writer.
//
// Errors: [file.ErrExists] when the name is stored, [file.ErrUnavailable], those of the local disk,
// and the error of ctx.
func (w *writer) Seal(ctx context.Context) error {
	if err := w.seal(ctx); err != nil {
		return err
	}
	defer w.store.unclaim(w.name)
	return w.leaveSpool()
}

// leaveSpool removes the spool of a file that is stored. If that fails, so does Seal.
func (w *writer) leaveSpool() error {
	err := w.removeSpool(nil)
	if err != nil {
		w.intent.End(err)
	}
	return err
}

// SealTo is Seal, and leaves the spool as a file at path on the file system of the local folder.
// kept is false if that cannot be: the file is sealed then, too.
func (w *writer) SealTo(ctx context.Context, path string) (kept bool, err error) {
	if err := w.seal(ctx); err != nil {
		return false, err
	}
	defer w.store.unclaim(w.name)
	err = errors.Join(w.spool.Flush(), w.spool.Close())
	if err == nil {
		err = w.store.local.fs.Rename(w.path, path)
	}
	if err == nil {
		return true, nil
	}
	return false, w.leaveSpool()
}

// seal stores the object. If it fails after it has begun, nothing is stored and the writer is at
// its end.
func (w *writer) seal(ctx context.Context) error {
	if err := w.store.begin(ctx); err != nil {
		return err
	}
	if !w.end() {
		return file.ErrClosed
	}
	stop := context.AfterFunc(ctx, w.cancel)
	err := rescue.Do(func() error { return w.put(ctx) }) // behind a panic, too, the rest is done
	stop()
	if err == nil {
		w.cancel()
		return nil
	}
	return w.discard(err)
}

// end reports whether this call ends the writer.
func (w *writer) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.ended = true
	return true
}

// Abort implements file.Writer. What was sent is removed behind it.
func (w *writer) Abort() error {
	if !w.end() {
		return nil
	}
	return w.discard(nil)
}

// discard removes the remains of the writer, and joins its errors to cause.
func (w *writer) discard(cause error) error {
	defer w.store.unclaim(w.name)
	w.cancel()
	w.sending.Wait()
	w.clear()
	if err := w.removeSpool(cause); err != nil {
		return fmt.Errorf("write file %s: %w", w.name, err)
	}
	return nil
}

// removeSpool closes and removes the spool, and joins its errors to cause.
func (w *writer) removeSpool(cause error) error {
	if err := w.spool.Close(); err != nil && !errors.Is(err, file.ErrClosed) {
		cause = errors.Join(cause, err)
	}
	return errors.Join(cause, w.store.local.fs.Remove(w.path))
}
