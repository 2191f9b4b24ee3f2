package odbtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// Life is that of a process: it ends at a step, a change of the stores, before the change or behind
// it. The process changes nothing any more, and reads nothing.
type Life struct {
	mu    sync.Mutex // guards the fields below
	steps int
	last  int  // 0: none
	done  bool // the last step is done
	dead  bool
}

// NewLife returns a Life that ends at the step of a number, counted from 1 on, before it is done or
// behind that. It does not end with 0.
func NewLife(last int, done bool) *Life { return &Life{last: last, done: done} }

// Dead reports whether it has ended.
func (l *Life) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// End ends it.
func (l *Life) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// step does a step, unless the process is dead.
func (l *Life) step(do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	l.steps++
	if l.steps != l.last {
		return do()
	}
	l.dead = true
	if l.done {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

var errDead = fmt.Errorf("%w: the process is dead", kv.ErrUnavailable)

// check returns an error when the process is dead.
func (l *Life) check() error {
	if l.Dead() {
		return errDead
	}
	return nil
}

// Keys returns a process's view of a key-value store.
func (l *Life) Keys(keys kv.Store) kv.Store { return &mortalKeys{keys, l} }

type mortalKeys struct {
	kv.Store
	life *Life
}

func (k *mortalKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := k.life.check(); err != nil {
		return nil, err
	}
	return k.Store.Get(ctx, key)
}

func (k *mortalKeys) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	if err := k.life.check(); err != nil {
		return kv.Rows{}, err
	}
	return k.Store.Read(ctx, set)
}

func (k *mortalKeys) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	if err := k.life.check(); err != nil {
		return func(yield func(kv.Pair, error) bool) { yield(kv.Pair{}, err) }
	}
	return k.Store.Scan(ctx, options)
}

func (k *mortalKeys) Apply(ctx context.Context, b *kv.Batch) (commit kv.Commit, err error) {
	err = k.life.step(func() (err error) {
		commit, err = k.Store.Apply(ctx, b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return commit, nil
}

// Bucket is what several processes see of a file.Remote. What a writer has sealed stays, and so
// does the upload that it began.
type Bucket struct {
	testing.TB
	// Whole has writers store a file at once, and not as an upload.
	Whole bool
	files file.Store

	mu      sync.Mutex // guards the fields below
	uploads map[string]string
	count   int
}

// NewBucket returns an empty bucket, whose files lie in a store.
func NewBucket(tb testing.TB, files file.Store) *Bucket {
	tb.Helper()
	return &Bucket{TB: tb, files: files, uploads: make(map[string]string)}
}

// Open returns the bucket as a process sees it. Closing it does nothing.
func (b *Bucket) Open(life *Life) file.Store {
	return &mortalFiles{Store: b.files, bucket: b, life: life}
}

// Content returns the names of the files and those of uploads, sorted.
func (b *Bucket) Content() (names []string) {
	b.Helper()
	for info, err := range b.files.List(context.Background()) {
		Must(b.TB, err)
		names = append(names, info.Name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range maps.Keys(b.uploads) {
		names = append(names, "upload of "+name)
	}
	slices.Sort(names)
	return names
}

type mortalFiles struct {
	file.Store
	bucket *Bucket
	life   *Life
}

var _ file.Remote = (*mortalFiles)(nil)

func (f *mortalFiles) Create(ctx context.Context, name string) (file.Writer, error) {
	f.bucket.Errorf("file %s is created without an intent", name)
	return f.Store.Create(ctx, name)
}

func (f *mortalFiles) Open(ctx context.Context, name string) (file.File, error) {
	if err := f.life.check(); err != nil {
		return nil, err
	}
	return f.Store.Open(ctx, name)
}

// Delete implements file.Store. It does not tell whether there was a file.
func (f *mortalFiles) Delete(ctx context.Context, name string) error {
	return f.life.step(func() error { return f.remove(ctx, name) })
}

func (f *mortalFiles) remove(ctx context.Context, name string) error {
	if err := f.Store.Delete(ctx, name); !errors.Is(err, file.ErrNotFound) {
		return err
	}
	return nil
}

func (f *mortalFiles) Close() error { return nil }

// Discard implements file.Remote.
func (f *mortalFiles) Discard(ctx context.Context, name, upload string) error {
	return f.life.step(func() error {
		f.bucket.mu.Lock()
		if upload != "" && f.bucket.uploads[name] == upload {
			delete(f.bucket.uploads, name)
		}
		f.bucket.mu.Unlock()
		return f.remove(ctx, name)
	})
}

// CreateIntended implements file.Remote.
func (f *mortalFiles) CreateIntended(ctx context.Context, name string, intent file.Intent) (file.Writer, error) {
	w, err := f.Store.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return &mortalWriter{Writer: w, files: f, name: name, intent: intent}, nil
}

type mortalWriter struct {
	file.Writer
	files  *mortalFiles
	name   string
	intent file.Intent
	ended  bool
}

func (w *mortalWriter) Seal(ctx context.Context) error {
	if err := w.seal(ctx); err != nil {
		return w.end(err)
	}
	w.ended = true
	return nil
}

// seal stores the file as the one part of an upload.
func (w *mortalWriter) seal(ctx context.Context) error {
	if err := w.intent.Begin(ctx); err != nil {
		return err
	}
	b, life := w.files.bucket, w.files.life
	if b.Whole {
		return life.step(func() error { return w.Writer.Seal(ctx) })
	}
	b.mu.Lock()
	b.count++
	id := fmt.Sprint("upload-", b.count)
	b.mu.Unlock()
	if err := w.intent.Upload(ctx, id); err != nil {
		return err
	}
	err := life.step(func() error { // its parts
		b.mu.Lock()
		defer b.mu.Unlock()
		b.uploads[w.name] = id
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.intent.Begin(ctx); err != nil {
		return err
	}
	return life.step(func() error {
		b.mu.Lock()
		_, there := b.uploads[w.name]
		delete(b.uploads, w.name)
		b.mu.Unlock()
		if !there {
			return fmt.Errorf("%w: no such upload", file.ErrUnavailable)
		}
		return w.Writer.Seal(ctx)
	})
}

// end removes what was sent, and joins its errors to cause.
func (w *mortalWriter) end(cause error) error {
	if w.ended {
		return cause
	}
	w.ended = true
	_ = w.Writer.Abort() // of a file on the local disk
	b := w.files.bucket
	b.mu.Lock()
	_, sent := b.uploads[w.name]
	b.mu.Unlock()
	var err error
	if sent {
		err = w.files.life.step(func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.uploads, w.name)
			return nil
		})
	}
	w.intent.End(err)
	return cause
}

func (w *mortalWriter) Abort() error { return w.end(nil) }
