package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Checkpointer is a Store that can copy its files as of one instant.
type Checkpointer interface {
	Store

	// Checkpoint returns the store, durable or not, at one instant between the call and the return:
	// with everything that was visible at the call. Its time does not grow with the store, and at
	// first it takes no disk space: it shares files with the store, which never modifies files. The
	// caller closes it. After a crash the next start removes its remains.
	Checkpoint(ctx context.Context) (Checkpoint, error)
}

// Checkpoint is a store at one instant: to be read, without a limit of time, and as the files from
// which a [Restoration] makes a store.
type Checkpoint interface {
	Reader

	// Files returns the files in the order of their names.
	Files() []CheckpointFile

	// Open opens one of them. The caller closes it.
	Open(name string) (io.ReadCloser, error)

	// Check reads a table to its end and verifies its checksums. Other files were verified when the
	// checkpoint was made. Errors: [ErrCorrupt].
	Check(name string) error

	// Close removes the checkpoint.
	Close() error
}

// CheckpointFile is a file of a [Checkpoint].
type CheckpointFile struct {
	Name string // of letters, digits, dots, dashes and underscores
	Size int64
}

// checkpointPrefix begins the names of the folders of checkpoints, inside the folder of the store.
const checkpointPrefix = "checkpoint-"

// lockFile is the name of the file with Pebble's lock on a folder.
const lockFile = "LOCK"

// checkpoint is a Checkpoint in a folder of its own.
type checkpoint struct {
	fs    vfs.FS
	dir   string
	files []CheckpointFile
	db    *pebble.DB
}

// Checkpoint implements Checkpointer.
func (p *Pebble) Checkpoint(ctx context.Context) (_ Checkpoint, err error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.life.RUnlock()
	// All visible batches go into tables, so that the checkpoint needs no log.
	flushed, err := p.db.AsyncFlush()
	if err != nil {
		return nil, fmt.Errorf("flush for a checkpoint: %w", translate(err))
	}
	select {
	case <-flushed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &checkpoint{fs: p.fs, dir: p.fs.PathJoin(p.dir, fmt.Sprintf("%s%d", checkpointPrefix, p.checkpoints.Add(1)))}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := errors.Join(c.write(p.db), c.removeLogs()); err != nil {
		return nil, fmt.Errorf("make a checkpoint: %w", translate(err))
	}
	if err := c.open(p.logger); err != nil {
		return nil, err
	}
	return c, nil
}

// open opens the files, which are complete.
func (c *checkpoint) open(logger *slog.Logger) (err error) {
	if c.files, err = filesIn(c.fs, c.dir); err != nil {
		return fmt.Errorf("list a checkpoint: %w", err)
	}
	if c.db, err = openCopy(c.fs, c.dir, logger, true); err != nil {
		return fmt.Errorf("open a checkpoint: %w", translate(err))
	}
	return nil
}

// write makes the files. Pebble panics when it cannot sync a folder, which here is no folder of the
// store.
func (c *checkpoint) write(db *pebble.DB) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			cause, ok := reason.(error)
			if !ok {
				panic(reason)
			}
			err = cause
		}
	}()
	return db.Checkpoint(c.dir)
}

// removeLogs removes the copies of logs. They are made while the log is written, into a file that
// was used before: a piece from before a write with one from behind it looks like damage, up to
// version 2.1.7 of Pebble. The tables alone are the store as of their last flush.
func (c *checkpoint) removeLogs() error {
	names, err := c.fs.List(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // write has failed
	}
	for _, name := range names {
		if _, ok := logNumber(name); ok {
			err = errors.Join(err, c.fs.Remove(c.fs.PathJoin(c.dir, name)))
		}
	}
	return err
}

// openCopy opens a copy made by [pebble.DB.Checkpoint]. It does not check the statements in the log
// of the copy, because they describe the files of the original store.
func openCopy(fileSystem vfs.FS, dir string, logger *slog.Logger, readOnly bool) (db *pebble.DB, err error) {
	p := newCopied(logger)
	err = p.recovered(func() error {
		db, err = pebble.Open(dir, p.copyOptions(fileSystem, readOnly))
		return err
	})
	return db, err
}

// newCopied returns what hears of the failures of a copy, which are errors.
func newCopied(logger *slog.Logger) *Pebble {
	return &Pebble{logger: logger, failed: make(chan struct{})}
}

func (p *Pebble) copyOptions(fileSystem vfs.FS, readOnly bool) *pebble.Options {
	return &pebble.Options{
		FS:                          fileSystem,
		ReadOnly:                    readOnly,
		CacheSize:                   copyCacheBytes,
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		DisableAutomaticCompactions: true,
		Logger:                      pebbleLogger{p},
		EventListener:               p.listener(),
	}
}

// copyCacheBytes is enough to read a copy once, from its first key to its last.
const copyCacheBytes = 8 << 20

// filesIn lists a folder without the lock in it.
func filesIn(fileSystem vfs.FS, dir string) ([]CheckpointFile, error) {
	names, err := fileSystem.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var files []CheckpointFile
	for _, name := range names {
		if name == lockFile {
			continue
		}
		info, err := fileSystem.Stat(fileSystem.PathJoin(dir, name))
		if err != nil {
			return nil, err
		}
		files = append(files, CheckpointFile{Name: name, Size: info.Size()})
	}
	return files, nil
}

// removeCheckpoints removes the checkpoints left by a crash.
func removeCheckpoints(fileSystem vfs.FS, dir string) error {
	names, err := fileSystem.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, checkpointPrefix) {
			err = errors.Join(err, fileSystem.RemoveAll(fileSystem.PathJoin(dir, name)))
		}
	}
	return err
}

// Files implements Checkpoint.
func (c *checkpoint) Files() []CheckpointFile { return c.files }

// Open implements Checkpoint.
func (c *checkpoint) Open(name string) (io.ReadCloser, error) {
	return c.fs.Open(c.fs.PathJoin(c.dir, name), vfs.SequentialReadsOption)
}

// Check implements Checkpoint.
func (c *checkpoint) Check(name string) error {
	if !isTable(name) {
		return nil
	}
	return checkTable(c.fs, c.fs.PathJoin(c.dir, name))
}

// Get implements Reader.
func (c *checkpoint) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return get(c.db, key)
}

// Read implements Reader.
func (c *checkpoint) Read(ctx context.Context, set ReadSet) (Rows, error) {
	if err := ctx.Err(); err != nil {
		return Rows{}, err
	}
	return read(ctx, c.db, set)
}

// Scan implements Reader.
func (c *checkpoint) Scan(ctx context.Context, options ScanOptions) iter.Seq2[Pair, error] {
	return scan(options, func(into *page, options ScanOptions) error { return into.fill(ctx, c.db, options) })
}

// Close implements Checkpoint.
func (c *checkpoint) Close() error {
	var err error
	if c.db != nil {
		err = c.db.Close()
	}
	return errors.Join(err, c.fs.RemoveAll(c.dir))
}
