// Package s3 is the store of large immutable files in a bucket of Amazon S3, or of another service
// that speaks its protocol.
//
// Start at [Open]. A file is an object; docs/formats.md has the layout of a bucket. A writer spools
// to the local disk and sends parts while the file grows (writer.go). A sealed file is read by
// ranges, and a range that breaks off is asked for again from where it ended (stream.go).
// [Store.Probe] tries what a store needs of a service, and [Store.Claim] marks the bucket as that
// of one installation.
//
// Nothing depends on conditional writes, on the order or age of a listing, or on modification
// times: the names of files are never used again, and the database says which of them count.
// Conditional writes are used where the service knows them, and notice a name that is taken.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

// uploadsDefault is the number of parts under way at a time, see [Options].
const uploadsDefault = 8

// Options adjusts a Store. Location and Dir are needed; all else may be zero.
type Options struct {
	Location
	// Dir is the folder on the local disk for spools and scratch files. It belongs to one process at a
	// time; what an earlier one has left in it is removed. Empty: [Store.Occupy] names it.
	Dir string
	// FS holds the folder; nil is the file system of the machine.
	FS vfs.FS
	// Credentials are by default what the tools of Amazon find: the environment, profiles, and the
	// roles of machines and containers.
	Credentials aws.CredentialsProvider
	// Uploads is the number of parts that all writers together have under way; 0 is 8.
	Uploads int
	// Backoff is the rest before a request is repeated for the first time; 0 is 100 ms. It doubles
	// each time, and is shortened at random by up to a half.
	Backoff time.Duration
	// Request, if not nil, is called with the time of each request, repeated ones included: until its
	// answer begins for the ranges of a stream, else until its end. Any goroutine calls it.
	Request func(took time.Duration)
	// Log receives what fails behind a caller's back, and at debug level what the client of the
	// service tells; nil discards it.
	Log *slog.Logger
}

// Store holds files in a bucket. Its methods may be called concurrently.
type Store struct {
	location Location
	client   *s3.Client
	fs       vfs.FS
	local    *folder // nil before Occupy
	backoff  time.Duration
	log      *slog.Logger
	request  func(took time.Duration) // tells the time of a request; not nil

	uploads       chan struct{} // a place for each part under way
	unconditional atomic.Bool   // the service refuses conditional writes

	running sync.WaitGroup // requests that tidy up behind aborted writers

	mu      sync.Mutex // guards the fields below
	writing map[string]struct{}
	closed  bool
}

var (
	_ file.Store  = (*Store)(nil)
	_ file.Remote = (*Store)(nil)
)

// Open returns the store at a location. It looks for credentials and asks nothing of the bucket:
// see [Store.Probe] and [Store.Claim].
//
// Errors: [file.ErrLocked] while another process uses the local folder; [file.ErrUnavailable]
// without credentials.
func Open(ctx context.Context, options Options) (*Store, error) {
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	client, err := newClient(ctx, &options)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", options.Location, err)
	}
	if options.FS == nil {
		options.FS = vfs.Default
	}
	if options.Request == nil {
		options.Request = func(time.Duration) {}
	}
	s := &Store{
		location: options.Location,
		client:   client,
		fs:       options.FS,
		backoff:  cmp.Or(options.Backoff, 100*time.Millisecond),
		log:      options.Log,
		request:  options.Request,
		uploads:  make(chan struct{}, cmp.Or(options.Uploads, uploadsDefault)),
		writing:  make(map[string]struct{}),
	}
	if options.Dir != "" {
		if err := s.Occupy(options.Dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Occupy takes the local folder of a store that was opened without one. Files, scratch files and
// free space must not be asked for before. Errors: [file.ErrLocked] while another process uses the
// folder.
func (s *Store) Occupy(dir string) (err error) {
	if s.local, err = openFolder(s.fs, dir); err != nil {
		return fmt.Errorf("open %s: %w", s.location, err)
	}
	return nil
}

// String returns the location without its settings.
func (s *Store) String() string { return s.location.String() }

// Scratch implements file.Store.
func (s *Store) Scratch(ctx context.Context) (file.Scratch, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	return s.local.scratch()
}

// Free implements file.Store: it returns the free space on the disk of the local folder.
func (s *Store) Free(ctx context.Context) (uint64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	return s.local.free()
}

// Delete implements file.Store. It returns nil if there is no such file. A file that is open can be
// read on only as far as it was copied before.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.check(ctx, name); err != nil {
		return err
	}
	if err := s.remove(ctx, s.key(name)); err != nil {
		return fmt.Errorf("delete file %s: %w", name, err)
	}
	return nil
}

// Discard implements file.Remote. It also looks for other uploads under the name, which the intent
// of a killed writer lacks; what a service does not list stays.
func (s *Store) Discard(ctx context.Context, name, upload string) error {
	if err := s.check(ctx, name); err != nil {
		return err
	}
	key := s.key(name)
	if upload != "" {
		if err := s.abortUpload(ctx, key, upload); err != nil {
			return fmt.Errorf("discard file %s: %w", name, err)
		}
	}
	if err := s.abortListed(ctx, key); err != nil {
		s.log.InfoContext(ctx, "failed to look for uploads of a file", "file", name, "error", err)
	}
	// After the uploads: none of them can become an object any more.
	if err := s.remove(ctx, key); err != nil {
		return fmt.Errorf("discard file %s: %w", name, err)
	}
	return nil
}

// remove deletes an object, whether there is one or not.
func (s *Store) remove(ctx context.Context, key string) error {
	err := s.try(ctx, 0, func(ctx context.Context) error {
		_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.location.Bucket, Key: &key})
		return err
	})
	if errors.Is(err, file.ErrNotFound) {
		return nil
	}
	return err
}

// Close implements file.Store. It waits until what aborted writers have sent is removed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return file.ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	if s.local == nil {
		return nil
	}
	return s.local.close()
}

// begin returns an error if a call cannot begin.
func (s *Store) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return file.ErrClosed
	}
	return ctx.Err()
}

// check returns an error if a call about a name cannot begin.
func (s *Store) check(ctx context.Context, name string) error {
	if err := file.CheckName(name); err != nil {
		return err
	}
	return s.begin(ctx)
}

// behind runs work that nobody waits for but Close, for at most ten seconds. It calls done with its
// error.
func (s *Store) behind(what, name string, work func(ctx context.Context) error, done func(error)) {
	failed := func(err error) {
		s.log.Warn("failed to "+what, "file", name, "error", err)
		done(err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		failed(file.ErrClosed)
		return
	}
	defer s.mu.Unlock()
	rescue.Go(&s.running, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
		defer cancel()
		if err := work(ctx); err != nil {
			return err
		}
		done(nil)
		return nil
	}, failed)
}

// key returns the key of a file. The two digits before the name spread files, whose names begin
// with their time, over the servers of a service.
func (s *Store) key(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	return s.under(fmt.Sprintf("%02x/%s", byte(h.Sum32()), name))
}

// under returns the key of what lies under the prefix.
func (s *Store) under(path string) string {
	if s.location.Prefix == "" {
		return path
	}
	return s.location.Prefix + "/" + path
}
