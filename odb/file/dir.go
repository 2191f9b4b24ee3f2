package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The folders of a Dir, and the marks that no name can contain: the name of an unsealed file ends
// in one, that of a scratch file begins with it.
const (
	incomingName = "incoming"
	settledName  = "settled"
	lockName     = "LOCK"
	mark         = "~"
)

// writeCategory puts the bytes under Pebble's accounting of writes.
const writeCategory = vfs.WriteCategoryUnspecified

// DirOptions adjusts a Dir. The zero value works.
type DirOptions struct {
	// FS holds the directory; nil is the file system of the machine.
	FS vfs.FS
	// ServerID names the folder under incoming; servers that share a directory have different ones,
	// and keep them over restarts. Empty means "local".
	ServerID string
	// ReadOnly opens an existing store without a lock, even beside a writing server, and changes
	// nothing in it. Calls that would change something fail.
	ReadOnly bool
}

// Dir is a Store in a directory:
//
//	incoming/<server id>/LOCK      held by the process that writes there
//	incoming/<server id>/<name>    sealed
//	incoming/<server id>/<name>~   being written
//	incoming/<server id>/~<n>      scratch, a file or a folder
//	settled/<hh>/<name>            in its place, hh two hexadecimal digits of the name's hash
type Dir struct {
	fs       vfs.FS
	root     string
	incoming string // of this server
	lock     io.Closer
	readOnly bool
	scratch  atomic.Uint64

	mu      sync.Mutex // guards the fields below
	writing map[string]struct{}
	fanout  map[string]struct{} // folders under settled that are known to be durable
	closed  bool

	order sync.RWMutex        // guards moved; shared while a folder under incoming is synced
	moved map[string]struct{} // folders under settled with entries that may not be durable
}

var (
	_ Store    = (*Dir)(nil)
	_ Incoming = (*Dir)(nil)
)

// Folders returns the names of all folders in the directory of a Dir.
func Folders() []string { return []string{incomingName, settledName} }

// OpenDir opens the store in dir, which is created if missing, and removes what a crash has left
// under the server id: unsealed and scratch files, and scratch folders.
//
// Errors: [ErrName] for a bad server id, [ErrLocked] while it is in use.
func OpenDir(dir string, options DirOptions) (*Dir, error) {
	if options.FS == nil {
		options.FS = vfs.Default
	}
	options.ServerID = cmp.Or(options.ServerID, "local")
	if err := CheckName(options.ServerID); err != nil {
		return nil, fmt.Errorf("server id: %w", err)
	}
	d := &Dir{
		fs:      options.FS,
		root:    dir,
		writing: make(map[string]struct{}),
		fanout:  make(map[string]struct{}),
		moved:   make(map[string]struct{}),
	}
	d.incoming = d.fs.PathJoin(dir, incomingName, options.ServerID)
	prepare := d.prepare
	if options.ReadOnly {
		d.readOnly, prepare = true, d.look
	}
	if err := prepare(); err != nil {
		return nil, fmt.Errorf("open file store %s: %w", dir, err)
	}
	return d, nil
}

// look checks that there is a store.
func (d *Dir) look() error {
	for _, folder := range []string{settledName, incomingName} {
		if _, err := d.fs.Stat(d.fs.PathJoin(d.root, folder)); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the folders durable, takes the lock and removes leftovers.
func (d *Dir) prepare() error {
	for _, folder := range []string{d.fs.PathJoin(d.root, settledName), d.incoming} {
		if err := d.makeFolder(folder); err != nil {
			return err
		}
	}
	lock, err := d.fs.Lock(d.fs.PathJoin(d.incoming, lockName))
	if _, ok := errors.AsType[*fs.PathError](err); ok { // its file cannot be made or opened: nobody was asked
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	d.lock = lock
	if err := d.sweep(); err != nil {
		return errors.Join(err, lock.Close())
	}
	return nil
}

// sweep removes the unsealed files of this server, and its scratch files and folders.
func (d *Dir) sweep() error {
	names, err := d.fs.List(d.incoming)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, mark) || strings.HasSuffix(name, mark) {
			if err := d.fs.RemoveAll(d.fs.PathJoin(d.incoming, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open implements Store.
func (d *Dir) Open(ctx context.Context, name string) (File, error) {
	path, err := d.find(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := d.fs.Open(path, vfs.RandomReadsOption)
	if errors.Is(err, fs.ErrNotExist) && path != d.settledPath(name) {
		f, err = d.fs.Open(d.settledPath(name), vfs.RandomReadsOption) // moved by a concurrent Settle
	}
	if err != nil {
		return nil, failed("open", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, failed("open", name, errors.Join(err, f.Close()))
	}
	return &sealed{file: f, size: info.Size()}, nil
}

// Delete implements Store.
func (d *Dir) Delete(ctx context.Context, name string) error {
	if d.readOnly {
		return failed("delete", name, ErrReadOnly)
	}
	for removed := false; ; removed = true {
		path, err := d.find(ctx, name)
		if errors.Is(err, ErrNotFound) && removed {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed("delete", name, err)
		}
		if err := d.syncIncoming(d.fs.PathDir(path)); err != nil {
			return failed("delete", name, err)
		}
	}
}

// Free implements Store.
func (d *Dir) Free(ctx context.Context) (uint64, error) {
	if err := d.begin(ctx); err != nil {
		return 0, err
	}
	usage, err := d.fs.GetDiskUsage(d.root)
	if errors.Is(err, vfs.ErrUnsupported) {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get free space: %w", err)
	}
	return usage.AvailBytes, nil
}

// Close implements Store.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.closed = true
	if d.readOnly {
		return nil
	}
	return d.lock.Close()
}

// begin returns an error if a call cannot begin.
func (d *Dir) begin(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// failed adds the operation and the file to err.
func failed(verb, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s file %s: %w", verb, name, ErrNotFound)
	}
	return fmt.Errorf("%s file %s: %w", verb, name, err)
}
