// Package backup copies the stores of a host into a folder, and makes stores of such a copy.
//
// A backup is of one instant: a checkpoint of the key-value store, and the files that it names. Files are immutable, so that the next backup
// into the same folder copies only new ones. Start at [Write] and [Restore].
//
// # In the folder
//
// It is a [file.Store] of its own. Files of pools lie in it under their names, files of the key-value store under the SHA-256 of
// their content, and each backup is a manifest, written last, that names all files with their checksums. So a backup that was
// interrupted is none, and those before it stay as they are.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// Facts that a caller decides on.
var (
	// ErrNone says that a folder holds no backup, or not the one that was asked for.
	ErrNone = errors.New("backup: no backup is there")
	// ErrDamaged says that a file of a backup is missing or not what was written; the error is a [DamagedError].
	ErrDamaged = errors.New("backup: damaged")
)

// DamagedError is [ErrDamaged] with its evidence.
type DamagedError struct{ File, Why string }

func (e *DamagedError) Error() string { return fmt.Sprintf("backup: file %s %s", e.File, e.Why) }

// Is reports whether target is [ErrDamaged].
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Options are the settings of [Write] and [Restore]. The zero value works.
type Options struct {
	// Prune removes the other backups of the folder, and what only they name, once the new one is complete.
	Prune bool
	// Number is the backup to restore; the newest when 0.
	Number uint64
	// Time is recorded in the backup.
	Time time.Time
	// Progress, if not nil, hears of every file that is done. It is not called concurrently.
	Progress func(Report)
}

// Report is what was done.
type Report struct {
	// Number counts the backups of a folder, from 1.
	Number uint64
	// FileCount and Bytes are the size of the backup.
	FileCount, Bytes int64
	// CopiedCount and CopiedBytes are what was written of it; the rest was there already.
	CopiedCount, CopiedBytes int64
	// PrunedCount is how many files were removed.
	PrunedCount int64
}

// Source is what a backup is made of.
type Source struct {
	Keys  kv.Checkpointer
	Files file.Store
	// Hold keeps files from being removed until release is called.
	Hold func() (release func())
}

// Write adds a backup of source to dest, and returns when it is durable. It may run while the stores are used.
func Write(ctx context.Context, source Source, dest file.Store, options Options) (_ Report, err error) {
	newest, err := newest(ctx, dest)
	if err != nil && !errors.Is(err, ErrNone) {
		return Report{}, err
	}
	release := source.Hold() // before the checkpoint, so that what it names stays
	defer release()
	checkpoint, err := source.Keys.Checkpoint(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, checkpoint.Close()) }()

	w, err := beginManifest(ctx, dest, newest+1, options.Time)
	if err != nil {
		return Report{}, fmt.Errorf("backup: begin manifest: %w", err)
	}
	defer func() { err = errors.Join(err, w.out.Abort()) }() // nothing, after the end
	c := &copier{dest: dest, report: Report{Number: newest + 1}, progress: options.Progress}
	if err := c.files(ctx, source.Files, checkpoint, known(ctx, dest, newest), w); err != nil {
		return c.report, fmt.Errorf("backup: %w", err)
	}
	if err := c.keys(ctx, checkpoint, w); err != nil {
		return c.report, fmt.Errorf("backup: %w", err)
	}
	if err := w.end(ctx); err != nil {
		return c.report, fmt.Errorf("backup: end manifest: %w", err)
	}
	if options.Prune {
		if c.report.PrunedCount, err = prune(ctx, dest, newest+1); err != nil {
			return c.report, fmt.Errorf("prune backups: %w", err)
		}
	}
	return c.report, nil
}

// known walks the files of pools in the newest backup. One that is damaged knows nothing.
func known(ctx context.Context, dest file.Store, number uint64) iter.Seq2[entry, error] {
	if number == 0 || verifyManifest(ctx, dest, number) != nil {
		return func(func(entry, error) bool) {}
	}
	return entries(ctx, dest, number)
}

// copier puts files into the folder of a backup.
type copier struct {
	dest     file.Store
	report   Report
	progress func(Report)
}

// files copies the files that pools use. Both walks are in the order of names, so that they are compared as they go.
func (c *copier) files(ctx context.Context, from file.Store, tables kv.Reader, before iter.Seq2[entry, error], w *manifestWriter) error {
	next, stop := iter.Pull2(before)
	defer stop()
	old, err, more := next()
	for name, listed := range odb.UsedFiles(ctx, tables) {
		if listed != nil {
			return listed
		}
		for more && err == nil && (old.kind != kindFile || old.name < name) {
			old, err, more = next()
		}
		if err != nil {
			return err
		}
		is := entry{kind: kindFile, name: name}
		if more && old.name == name {
			is = old
		}
		if is, err = c.file(ctx, from, is); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		if err := w.add(is); err != nil {
			return err
		}
	}
	return nil
}

// file copies a file of pools, unless one of the right size is there and its checksum is known.
func (c *copier) file(ctx context.Context, from file.Store, is entry) (_ entry, err error) {
	content, err := from.Open(ctx, is.name)
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	open := func() io.Reader { return io.NewSectionReader(content, 0, content.Size()) }
	if is.sum != (sum{}) && is.size == content.Size() {
		if ok, err := c.has(ctx, is); ok || err != nil {
			return is, c.done(is, false, err)
		}
	}
	is.size = content.Size()
	copied, err := c.copy(ctx, &is, open)
	return is, c.done(is, copied, err)
}

// keys copies the files of the key-value store.
func (c *copier) keys(ctx context.Context, checkpoint kv.Checkpoint, w *manifestWriter) error {
	for _, f := range checkpoint.Files() {
		is := entry{kind: kindKeys, name: f.Name, size: f.Size}
		copied, err := c.keysFile(ctx, checkpoint, &is)
		if err := c.done(is, copied, err); err != nil {
			return fmt.Errorf("copy %s: %w", f.Name, err)
		}
		if err := w.add(is); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) keysFile(ctx context.Context, checkpoint kv.Checkpoint, is *entry) (copied bool, err error) {
	err = withFile(checkpoint, is.name, func(content io.Reader) error {
		is.sum, err = sumOf(ctx, content, is.size)
		return err
	})
	if err != nil {
		return false, err
	}
	if ok, err := c.has(ctx, *is); ok || err != nil {
		return false, err
	}
	err = withFile(checkpoint, is.name, func(content io.Reader) error {
		copied, err = c.copy(ctx, is, func() io.Reader { return content })
		return err
	})
	return copied, err
}

// withFile calls use with a file of a checkpoint.
func withFile(checkpoint kv.Checkpoint, name string, use func(io.Reader) error) error {
	content, err := checkpoint.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(use(content), content.Close())
}

// done counts a file, unless err says that it is not there.
func (c *copier) done(is entry, copied bool, err error) error {
	if err != nil {
		return err
	}
	c.report.FileCount++
	c.report.Bytes += is.size
	if copied {
		c.report.CopiedCount++
		c.report.CopiedBytes += is.size
	}
	if c.progress != nil {
		c.progress(c.report)
	}
	return nil
}
