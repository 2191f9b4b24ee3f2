// Package cache keeps blocks of files that are stored elsewhere on the local disk.
//
// Start at [Open]: a [Store] is a file.Store over another one. Files never change, and their names
// are never used again, so that a block which was copied once stays right. docs/formats.md has the
// layout of the folder. It may be deleted at any time, also under a running process: blocks that
// are gone are copied again.
//
// A missing block is copied together with its neighbours (fetch.go). A reader that goes forward has
// several requests under way (reader.go). A file that was sealed through the cache enters it whole
// (writer.go). When the cache is full, files leave it in the order of their last use (evict.go).
// Bytes from afar are checked for their length; what they mean is known to those who read them, who
// tell the cache to forget a block that fails their checks.
package cache

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

const (
	bytesDefault   = 50 << 30
	filesDefault   = 200_000
	fetchesDefault = 32
	// flushTime is the time between two rounds that write what is known about files.
	flushTime = 5 * time.Second
	// closeTime is how long Close waits for requests under way before it cancels them.
	closeTime = 10 * time.Second
)

// Options adjusts a Store. Store is needed; all else may be zero.
type Options struct {
	// Store holds the files. The cache closes it. If it is a [Ranger], a file is read by few requests.
	Store file.Store
	// Bytes is how much of the disk the cache takes; 0 is 50 GiB.
	Bytes int64
	// Files is how many files are known; 0 is 200,000. Each takes about 500 bytes of memory, and a
	// bit for each MiB.
	Files int
	// Fetches is the number of requests under way at a time; 0 is 32. Each takes 256 KiB of memory.
	Fetches int
	// Block, if not nil, runs each wait of a reader for the store.
	Block func(ctx context.Context, wait func() error) error
	// FS holds the folder; nil is the file system of the machine.
	FS vfs.FS
	// Log receives what fails behind a caller's back; nil discards it.
	Log *slog.Logger
}

// Ranger is implemented by a store that delivers ranges of files as streams. The context ends all
// reading, and the caller closes the readers. Reading returns all of the range or an error.
type Ranger interface {
	// OpenTail returns the size of a file, and a reader of its last tailBytes or of all of it.
	OpenTail(ctx context.Context, name string, tailBytes int64) (size int64, tail io.ReadCloser, err error)
	// OpenStream returns a reader of size bytes from offset on of a file of fileSize bytes.
	OpenStream(ctx context.Context, name string, fileSize, offset, size int64) (io.ReadCloser, error)
}

// Stats are counters since the start and sizes.
type Stats struct {
	Hits         uint64 // reads from the disk
	Misses       uint64 // reads that waited for a request
	Direct       uint64 // reads past the cache, because it was full or its disk failed
	Fetches      uint64 // requests for blocks
	FetchedBytes uint64
	Evictions    uint64 // files that left because the cache was full
	Bytes        int64  // on the disk
	Files        int64  // known
}

// Store is a store of immutable files with a cache before it. Its methods may be called
// concurrently.
type Store struct {
	remote   file.Store
	ranger   Ranger
	fs       vfs.FS
	dir      string
	bytesMax int64
	filesMax int
	log      *slog.Logger
	block    func(ctx context.Context, wait func() error) error

	slots  chan struct{} // a place for each request under way
	clock  atomic.Int64  // counts uses of files
	failed atomic.Int64  // when the disk refused a write, in Unix nanoseconds

	hits, misses, direct, fetches, fetched, evictions atomic.Uint64

	ctx     context.Context // of requests, which several readers may wait for
	cancel  context.CancelFunc
	closing chan struct{} // closed by Close
	running sync.WaitGroup

	evicting sync.Mutex // held by the one that makes room; before mu

	mu      sync.Mutex // guards the fields below, and those of entries that say so
	entries map[string]*entry
	bytes   int64 // of blocks that are there or being written
	closed  bool
}

var (
	_ file.Store   = (*Store)(nil)
	_ file.Caching = (*Store)(nil)
)

// Open returns a cache in dir, which is made if it is missing, and which one process uses at a
// time. What an earlier one has copied is used again.
func Open(dir string, options Options) (*Store, error) {
	s := &Store{
		remote:   options.Store,
		fs:       options.FS,
		dir:      dir,
		bytesMax: cmp.Or(options.Bytes, bytesDefault),
		filesMax: cmp.Or(options.Files, filesDefault),
		log:      cmp.Or(options.Log, slog.New(slog.DiscardHandler)),
		slots:    make(chan struct{}, cmp.Or(options.Fetches, fetchesDefault)),
		block:    options.Block,
		closing:  make(chan struct{}),
		entries:  make(map[string]*entry),
	}
	if s.fs == nil {
		s.fs = vfs.Default
	}
	if s.block == nil {
		s.block = func(_ context.Context, wait func() error) error { return wait() }
	}
	var ok bool
	if s.ranger, ok = options.Store.(Ranger); !ok {
		s.ranger = sections{options.Store}
	}
	if err := s.scan(); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.makeRoom(nil, 0)
	rescue.Keep(s.ctx, &s.running, flushTime, s.flushAlways, func(err error) {
		s.log.Error("cache: failed to write the maps of files", "error", err)
	})
	return s, nil
}

// Open implements file.Store. It sends one request for a file that is not known, which also brings
// all of a file of up to 8 MiB, and the end of a larger one.
func (s *Store) Open(ctx context.Context, name string) (file.File, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	e, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
		err = e.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.leave(e)
		return nil, err
	}
	return &reader{entry: e}, nil
}

// Delete implements file.Store. The file leaves the cache; one that is open stays readable as far
// as it was copied.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.check(ctx, name); err != nil {
		return err
	}
	err := s.remote.Delete(ctx, name)
	if err == nil || errors.Is(err, file.ErrNotFound) {
		s.forgetFile(name)
	}
	return err
}

// Remote implements file.Caching.
func (s *Store) Remote() file.Store { return s.remote }

// List implements file.Store.
func (s *Store) List(ctx context.Context) iter.Seq2[file.Info, error] { return s.remote.List(ctx) }

// Scratch implements file.Store.
func (s *Store) Scratch(ctx context.Context) (file.Scratch, error) { return s.remote.Scratch(ctx) }

// Free implements file.Store. What the cache could give up does not count.
func (s *Store) Free(ctx context.Context) (uint64, error) { return s.remote.Free(ctx) }

// Stats returns counters and sizes.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	bytes, files := s.bytes, len(s.entries)
	s.mu.Unlock()
	return Stats{
		Hits: s.hits.Load(), Misses: s.misses.Load(), Direct: s.direct.Load(), Fetches: s.fetches.Load(),
		FetchedBytes: s.fetched.Load(), Evictions: s.evictions.Load(), Bytes: bytes, Files: int64(files),
	}
}

// Close implements file.Store: it closes the store behind the cache, too. Requests under way have
// ten seconds to end. Open files stay readable as far as the other store allows.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return file.ErrClosed
	}
	s.closed = true
	close(s.closing)
	s.mu.Unlock()
	timer := time.AfterFunc(closeTime, s.cancel)
	s.running.Wait()
	timer.Stop()
	s.cancel()
	s.flush()
	return s.remote.Close()
}

// check returns an error if a call about a name cannot begin.
func (s *Store) check(ctx context.Context, name string) error {
	if err := file.CheckName(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return file.ErrClosed
	}
	return ctx.Err()
}

// sections makes a Ranger of any store.
type sections struct{ store file.Store }

func (s sections) OpenTail(ctx context.Context, name string, tailBytes int64) (int64, io.ReadCloser, error) {
	f, err := s.store.Open(ctx, name)
	if err != nil {
		return 0, nil, err
	}
	size := f.Size()
	begin := max(0, size-tailBytes)
	return size, section{file.NewSectionReader(ctx, f, begin, size-begin), f}, nil
}

func (s sections) OpenStream(ctx context.Context, name string, _, offset, size int64) (io.ReadCloser, error) {
	f, err := s.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return section{file.NewSectionReader(ctx, f, offset, size), f}, nil
}

// section reads a part of a file, and closes it.
type section struct {
	io.Reader
	io.Closer
}
