package file

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The folders of a Dir, and the marks that no name can carry: a file that is being written ends in one, scratch files begin with it.
const (
	incomingName = "incoming"
	settledName  = "settled"
	lockName     = "LOCK"
	mark         = "~"
)

// writeCategory files the bytes under Pebble's accounting of writes.
const writeCategory = vfs.WriteCategoryUnspecified

// DirOptions adjusts a Dir. The zero value works.
type DirOptions struct {
	// FS holds the directory; nil is the file system of the machine.
	FS vfs.FS
	// ServerID names the folder under incoming; servers that share a directory have different ones, and keep them over
	// restarts. Empty means "local".
	ServerID string
}

// Dir is a Store in a directory:
//
//	incoming/<server id>/LOCK      held by the process that writes there
//	incoming/<server id>/<name>    sealed
//	incoming/<server id>/<name>~   being written
//	incoming/<server id>/~<n>      scratch
//	settled/<hh>/<name>            in its place, hh two hexadecimal digits of the name's hash
type Dir struct {
	fs       vfs.FS
	root     string
	incoming string // of this server
	lock     io.Closer
	scratch  atomic.Uint64

	mu      sync.Mutex // guards what follows
	writing map[string]struct{}
	fanout  map[string]struct{} // folders under settled that are known to be durable
	closed  bool

	order sync.RWMutex        // guards moved; shared while a folder under incoming is synced
	moved map[string]struct{} // folders under settled with entries that may not be durable
}

var _ Store = (*Dir)(nil)

// OpenDir opens the store in dir, which is made if it does not exist, and removes unsealed and scratch files that a crash has left
// under the server id.
//
// Errors: [ErrName] for a bad server id, [ErrLocked] while it is in use.
func OpenDir(dir string, options DirOptions) (*Dir, error) {
	if options.FS == nil {
		options.FS = vfs.Default
	}
	if options.ServerID == "" {
		options.ServerID = "local"
	}
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
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("open file store %s: %w", dir, err)
	}
	return d, nil
}

// prepare makes the folders durable, takes the lock and removes what cannot be of use.
func (d *Dir) prepare() error {
	for _, folder := range []string{d.fs.PathJoin(d.root, settledName), d.incoming} {
		if err := d.makeFolder(folder); err != nil {
			return err
		}
	}
	lock, err := d.fs.Lock(d.fs.PathJoin(d.incoming, lockName))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	d.lock = lock
	if err := d.sweep(); err != nil {
		return errors.Join(err, lock.Close())
	}
	return nil
}

// sweep removes the unsealed and scratch files of this server.
func (d *Dir) sweep() error {
	names, err := d.fs.List(d.incoming)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, mark) || strings.HasSuffix(name, mark) {
			if err := d.fs.Remove(d.fs.PathJoin(d.incoming, name)); err != nil {
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
		f, err = d.fs.Open(d.settledPath(name), vfs.RandomReadsOption) // moved in between
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
		return 0, fmt.Errorf("ask for free space: %w", err)
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
	return d.lock.Close()
}

// begin returns why a call cannot begin.
func (d *Dir) begin(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// settledPath returns where name lies when it is settled.
func (d *Dir) settledPath(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	return d.fs.PathJoin(d.root, settledName, fmt.Sprintf("%02x", byte(h.Sum32())), name)
}

// find returns where name lies, or ErrNotFound. A file moves in one direction only, from incoming to settled, so whoever looks in
// this order, and at the end once more in its place, does not miss it.
func (d *Dir) find(ctx context.Context, name string) (string, error) {
	if err := d.begin(ctx); err != nil {
		return "", err
	}
	if err := CheckName(name); err != nil {
		return "", err
	}
	settled := d.settledPath(name)
	if ok, err := d.exists(settled); ok || err != nil {
		return settled, err
	}
	path, err := d.findIncoming(ctx, name)
	if !errors.Is(err, ErrNotFound) {
		return path, err
	}
	if ok, err := d.exists(settled); ok || err != nil {
		return settled, err
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, name)
}

// findIncoming looks under incoming, in the folder of this server first.
func (d *Dir) findIncoming(ctx context.Context, name string) (string, error) {
	own := d.fs.PathJoin(d.incoming, name)
	if ok, err := d.exists(own); ok || err != nil {
		return own, err
	}
	servers, err := d.servers(ctx)
	if err != nil {
		return "", err
	}
	for _, server := range servers {
		path := d.fs.PathJoin(server, name)
		if ok, err := d.exists(path); ok || err != nil {
			return path, err
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, name)
}

// servers returns the folders of all servers.
func (d *Dir) servers(ctx context.Context) ([]string, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	all := d.fs.PathJoin(d.root, incomingName)
	names, err := d.fs.List(all)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", all, err)
	}
	for i, name := range names {
		names[i] = d.fs.PathJoin(all, name)
	}
	return names, nil
}

func (d *Dir) exists(path string) (bool, error) {
	_, err := d.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// makeFolder makes a folder, with all above it, that survives a crash. One that exists may be what another crash left of the
// attempt, so its entry is synced too; what is above it was then synced by whoever made it.
func (d *Dir) makeFolder(path string) error {
	_, err := d.fs.Stat(path)
	made := errors.Is(err, fs.ErrNotExist)
	if err != nil && !made {
		return err
	}
	if err := d.fs.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for parent := d.fs.PathDir(path); ; parent = d.fs.PathDir(parent) {
		if err := d.syncFolder(parent); err != nil || !made || parent == d.fs.PathDir(parent) {
			return err
		}
	}
}

// syncFolder makes the entries of a folder durable.
func (d *Dir) syncFolder(path string) error {
	folder, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// failed tells which operation on which file failed.
func failed(verb, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s file %s: %w", verb, name, ErrNotFound)
	}
	return fmt.Errorf("%s file %s: %w", verb, name, err)
}
