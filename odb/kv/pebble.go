package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/pack/invariants"
)

// PebbleOptions adjusts a Pebble store. The zero value works.
type PebbleOptions struct {
	// FS holds the directory; nil is the file system of the machine.
	FS vfs.FS
	// MemoryBytes bounds block cache and memtables together; 0 means 128 MiB.
	MemoryBytes int64
	// Logger receives the messages of Pebble; nil is slog.Default().
	Logger *slog.Logger
	// OnFatal is called once when the log cannot be synced any more; nil logs the error and ends the
	// process with status 1.
	//
	// After a failed sync the content of the disk is unknown, so no call may succeed. An OnFatal that
	// returns, in a test, leaves a store whose calls fail with ErrFailed; an Apply that was inside
	// Pebble at that instant, and the goroutine that called OnFatal, never return.
	OnFatal func(error)
	// Block, if not nil, runs each wait of a call.
	Block Block
	// OpenFilesMax is about the most files that are open at a time, at least 80; 0 means 1,000.
	OpenFilesMax int
	// RestAfter is the idle time after which the store syncs its mark, so that damage to the last
	// synced bytes is detected. 0 means 100 ms.
	RestAfter time.Duration
	// MarkEvery is the interval at which a busy store writes its mark. 0 means a second.
	MarkEvery time.Duration
	// SnapshotAge shortens the life of snapshots; 0 means SnapshotAgeMax, which is also the most.
	SnapshotAge time.Duration
}

// Pebble is a Store in a directory of one machine.
type Pebble struct {
	db          *pebble.DB
	fs          vfs.FS
	dir         string
	lock        *pebble.Lock
	logger      *slog.Logger
	snapshotAge time.Duration
	restAfter   time.Duration
	markEvery   time.Duration
	onFatal     func(error)
	block       Block

	// life is held shared by every call into Pebble, which panics after its Close.
	life   sync.RWMutex
	closed atomic.Bool // set under life
	opened atomic.Bool

	stripes *stripes
	syncing chan *commit  // in the order in which they became visible, or nearly so
	synced  chan struct{} // closed when the syncer has ended
	settled uint64        // commits, by the syncer
	witness witness
	mark    mark
	stirred chan struct{} // holds one when the manifest has changed
	failed  chan struct{} // closed after a failure
	failing sync.Once

	snapshots   snapshotSet
	checkpoints atomic.Uint64 // were made

	// begun and ended count the batches that go into Pebble, and those that are through: while they
	// are equal, nothing becomes visible.
	begun, ended atomic.Uint64

	commits          atomic.Uint64
	rested           atomic.Uint64
	conflicts        atomic.Uint64
	waits            atomic.Uint64
	unsynced         atomic.Int64
	writeStalls      atomic.Uint64
	backgroundErrors atomic.Uint64
	corruptions      atomic.Uint64
	damaged          atomic.Pointer[string] // path of the first table that was found damaged
}

var _ Checkpointer = (*Pebble)(nil)

// OpenPebble opens the store in dir, which is made if it does not exist.
//
// Errors: [ErrLocked] while another process has it open, [ErrCorrupt] when a file is damaged or
// missing, which is a [LossError] when a log or a manifest has lost its end.
func OpenPebble(dir string, options PebbleOptions) (*Pebble, error) {
	p := &Pebble{
		dir:         dir,
		logger:      options.Logger,
		snapshotAge: options.SnapshotAge,
		restAfter:   cmp.Or(options.RestAfter, restAfterDefault),
		markEvery:   cmp.Or(options.MarkEvery, markEveryDefault),
		onFatal:     options.OnFatal,
		block:       options.Block,
		stripes:     &stripes{seed: maphash.MakeSeed()},
		syncing:     make(chan *commit, 4096),
		synced:      make(chan struct{}),
		stirred:     make(chan struct{}, 1),
		failed:      make(chan struct{}),
	}
	if options.FS == nil {
		options.FS = vfs.Default
	}
	p.fs = options.FS
	if p.logger == nil {
		p.logger = slog.Default()
	}
	p.mark = mark{fs: p.fs, dir: dir, logger: p.logger}
	if p.snapshotAge <= 0 || p.snapshotAge > SnapshotAgeMax {
		p.snapshotAge = SnapshotAgeMax
	}
	if p.onFatal == nil {
		p.onFatal = func(error) { os.Exit(1) }
	}
	if err := p.open(dir, options); err != nil {
		return nil, fmt.Errorf("open key-value store %s: %w", dir, translate(err))
	}
	go p.syncLoop() // bare: without it nothing becomes durable, and the process has to end
	return p, nil
}

// InUse reports whether a store of this or another process has a directory open. It makes nothing.
// A store that is opened at the same instant may find it in use.
func InUse(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, lockFile)); err != nil {
		return false
	}
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err != nil {
		_, ok := errors.AsType[*fs.PathError](err)
		return !ok
	}
	_ = lock.Close() // it was only asked for
	return false
}

// open locks the directory, looks for damage and opens the store.
func (p *Pebble) open(dir string, options PebbleOptions) error {
	if err := makeFolder(options.FS, dir); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(dir, options.FS)
	if _, ok := errors.AsType[*fs.PathError](err); ok { // its file cannot be made or opened: nobody was asked
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	err = removeCheckpoints(options.FS, dir)
	if err == nil {
		err = inspect(dir, &p.mark)
	}
	if err == nil {
		settings := pebbleOptions(options, p)
		settings.Lock = lock
		err = p.recovered(func() error {
			p.db, err = pebble.Open(dir, settings)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err) // a file that the manifest names
		}
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	p.lock = lock
	p.rest()
	p.opened.Store(true)
	if p.hasFailed() { // in the background, just before
		return ErrFailed
	}
	return nil
}

// makeFolder makes dir, if it does not exist, so that a crash does not take it away.
func makeFolder(fileSystem vfs.FS, dir string) error {
	if _, err := fileSystem.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fileSystem.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for parent := fileSystem.PathDir(dir); ; parent = fileSystem.PathDir(parent) {
		folder, err := fileSystem.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(folder.Sync(), folder.Close()); err != nil || parent == fileSystem.PathDir(parent) {
			return err
		}
	}
}

// Get implements Reader.
func (p *Pebble) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.life.RUnlock()
	return get(p.db, key)
}

// WaitDurable implements Store.
func (p *Pebble) WaitDurable(ctx context.Context, key []byte) error {
	if err := p.alive(ctx); err != nil {
		return err
	}
	if p.unsynced.Load() == 0 {
		return nil
	}
	pending := p.stripes.pending(key)
	if len(pending) > 0 {
		p.waits.Add(1)
	}
	for _, c := range pending {
		if err := c.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Damage returns an [ErrCorrupt] that names a table found damaged since the store was opened, or
// nil.
func (p *Pebble) Damage() error {
	if path := p.damaged.Load(); path != nil {
		return fmt.Errorf("%w: table %s", ErrCorrupt, p.fs.PathBase(*path))
	}
	return nil
}

// Close implements Store.
func (p *Pebble) Close() error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.closed.Swap(true) {
		return ErrClosed
	}
	close(p.syncing)
	p.snapshots.expireAll()
	select {
	case <-p.synced:
	case <-p.failed:
		return ErrFailed // Pebble's own Close would wait for work that does not end
	}
	if invariants.Enabled {
		invariants.Check(p.hasFailed() || p.unsynced.Load() == 0,
			"kv: closed with %d batches that are not durable", p.unsynced.Load())
	}
	// A store without a log to replay opens faster.
	err := errors.Join(p.db.Flush(), p.db.Close())
	if err == nil {
		p.rest()
	}
	if err := errors.Join(err, p.mark.close(), p.lock.Close()); err != nil {
		return fmt.Errorf("close key-value store: %w", translate(err))
	}
	return nil
}

// enter begins a call into Pebble, which ends with life.RUnlock.
func (p *Pebble) enter(ctx context.Context) error {
	if err := p.alive(ctx); err != nil {
		return err
	}
	p.life.RLock()
	if p.closed.Load() {
		p.life.RUnlock()
		return ErrClosed
	}
	return nil
}

// alive returns why a call cannot begin: its context has ended, or the store has failed or is
// closed.
func (p *Pebble) alive(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.hasFailed():
		return ErrFailed
	case p.closed.Load():
		return ErrClosed
	default:
		return nil
	}
}

func (p *Pebble) hasFailed() bool {
	select {
	case <-p.failed:
		return true
	default:
		return false
	}
}

// fail ends the life of the store, and by default the process. While the store is being opened,
// OpenPebble returns an error instead.
func (p *Pebble) fail(err error) {
	p.failing.Do(func() {
		close(p.failed)
		p.logger.Error("kv: failed to sync the log", "error", err)
		if p.opened.Load() {
			p.onFatal(err)
		}
	})
}

// logFailed is called by Pebble or its files when they cannot go on. It does not return: Pebble
// must not continue, and the process is about to end. Only during the opening of the store it
// returns, with an error.
func (p *Pebble) logFailed(err error) {
	p.fail(err)
	if p.opened.Load() {
		select {}
	}
}

// get reads one key and copies its value.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(key)
	if err != nil {
		return nil, translate(err)
	}
	owned := append(make([]byte, 0, len(value)), value...)
	if err := closer.Close(); err != nil {
		return nil, translate(err)
	}
	return owned, nil
}

// translate maps errors of Pebble to those of this package.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pebble.ErrNotFound):
		return ErrNotFound
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	default:
		return err
	}
}
