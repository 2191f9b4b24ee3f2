package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/inorder"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// copier puts files into the folder of a backup.
type copier struct {
	source   Source
	dest     file.Store
	older    []Summary
	hold     Hold
	tables   kv.Reader // of the checkpoint
	report   Report
	damage   []Damage
	progress func(Report)

	recording sync.Mutex       // guards recorded
	recorded  map[string]entry // what older backups say of files of pools; nil before it was needed
}

// rows counts the rows that were read so far.
func (c *copier) rows(count int64) {
	c.report.RowCount = count
	c.tell()
}

// known walks the files of pools in the newest backup that can be read.
func (c *copier) known(ctx context.Context) iter.Seq2[entry, error] {
	for i := range c.older {
		if s := &c.older[len(c.older)-1-i]; s.Damage == nil {
			return entries(ctx, c.dest, s.Number, new(head))
		}
	}
	return func(func(entry, error) bool) {}
}

// wanted walks the files that pools use, with what the newest backup says of them. Both walks are
// in the order of names, so that they are compared as they go.
func (c *copier) wanted(ctx context.Context) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		next, stop := iter.Pull2(c.known(ctx))
		defer stop()
		old, err, more := next()
		for name, listed := range odb.UsedFiles(ctx, c.tables) {
			for listed == nil && more && err == nil && (old.kind == kindLost || old.kind == kindFile && old.name < name) {
				old, err, more = next()
			}
			is := entry{kind: kindFile, name: name}
			if more && old.kind == kindFile && old.name == name {
				is = old
			}
			if !yield(is, errors.Join(listed, err)) {
				return
			}
		}
	}
}

// remoteAtOnce is the number of files that are copied at a time over a network.
const remoteAtOnce = 4

// files copies the files that pools use.
func (c *copier) files(ctx context.Context, w *manifestWriter) error {
	options := inorder.Options{Workers: 1, Ahead: 1}
	if c.source.Remote {
		options = inorder.Options{Workers: remoteAtOnce, Ahead: 4 * remoteAtOnce}
	}
	for copied, err := range inorder.Map(ctx, c.wanted(ctx), options, c.file) {
		if err != nil {
			return err
		}
		is := copied.is
		if copied.damage != nil {
			if is, err = c.salvage(ctx, is.name, copied.damage); err != nil {
				return fmt.Errorf("copy %s: %w", copied.is.name, err)
			}
		}
		if is.kind != kindLost {
			c.done(is, copied.written)
		}
		if err := w.add(is); err != nil {
			return err
		}
	}
	return nil
}

// copied is what became of a file of pools.
type copied struct {
	is      entry
	written bool         // by this run
	damage  *sourceError // of the store's file
}

// sourceError says that the source of a copy could not be read, or is damaged.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// blame returns err, of a source, as a sourceError, unless the store could not be reached.
func blame(err error) error {
	if errors.Is(err, file.ErrUnavailable) {
		return err
	}
	return &sourceError{err}
}

// file copies a file of pools into the folder; is.sum is set when the newest backup has it. It is
// called concurrently.
func (c *copier) file(ctx context.Context, is entry) (copied, error) {
	known := is
	written, err := c.fileCopied(ctx, &is)
	if _, bad := errors.AsType[*sourceError](err); bad && c.source.Remote && ctx.Err() == nil {
		is = known // it may have been damaged on its way
		written, err = c.fileCopied(ctx, &is)
	}
	if damage, bad := errors.AsType[*sourceError](err); bad && ctx.Err() == nil {
		return copied{is: known, damage: damage}, nil
	}
	if err != nil {
		return copied{}, fmt.Errorf("copy %s: %w", is.name, err)
	}
	return copied{is: is, written: written}, nil
}

func (c *copier) fileCopied(ctx context.Context, is *entry) (written bool, err error) {
	if c.source.Remote {
		if ok, err := c.hasWhole(ctx, is); ok || err != nil {
			return false, err
		}
	}
	content, err := c.source.Files.Open(ctx, is.name)
	if errors.Is(err, file.ErrNotFound) {
		return false, &sourceError{errors.New("it is missing")}
	}
	if err != nil {
		return false, blame(err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if is.sum != (sum{}) {
		if is.size != content.Size() {
			return false, &sourceError{fmt.Errorf("it has %d bytes, and had %d when it was backed up", content.Size(), is.size)}
		}
		if ok, err := c.has(ctx, *is); ok || err != nil {
			return false, err
		}
	}
	is.size = content.Size()
	out, err := c.dest.Create(ctx, is.stored())
	if errors.Is(err, file.ErrExists) {
		return c.replace(ctx, is, content)
	}
	if err != nil {
		return false, err
	}
	return true, c.write(ctx, is, content, out)
}

// hasWhole reports whether the folder has a file whose source is dear to read: one of the newest
// backup with its size, or another one, which an interrupted backup may have left, that passes all
// checks.
func (c *copier) hasWhole(ctx context.Context, is *entry) (bool, error) {
	if is.sum != (sum{}) {
		return c.has(ctx, *is)
	}
	stored, err := c.dest.Open(ctx, is.stored())
	if errors.Is(err, file.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found := entry{kind: kindFile, name: is.name, size: stored.Size()}
	found.sum, err = sumFile(ctx, is.name, stored, io.Discard)
	err = errors.Join(err, stored.Close())
	if _, bad := errors.AsType[*sourceError](err); bad && ctx.Err() == nil {
		return false, nil // it is copied again
	}
	if err != nil {
		return false, err
	}
	recorded, err := c.recordedAs(ctx, is.name)
	if err != nil || recorded.sum != (sum{}) && recorded != found {
		return false, err
	}
	*is = found
	return true, nil
}

// replace replaces a file that exists already: one of an interrupted or an older backup, maybe
// damaged. A file that equals the source stays.
func (c *copier) replace(ctx context.Context, is *entry, content file.File) (written bool, err error) {
	found := *is
	if found.sum, err = sumFile(ctx, is.name, content, io.Discard); err != nil {
		return false, err
	}
	recorded, err := c.recordedAs(ctx, is.name)
	if err != nil {
		return false, err
	}
	if recorded.sum != (sum{}) && (recorded.sum != found.sum || recorded.size != found.size) {
		return false, &sourceError{errors.New("it is not what was backed up before")}
	}
	*is = found
	if checkStored(ctx, c.dest, *is, io.Discard) == nil {
		return false, nil
	}
	// The existing file is damaged: no backup can be restored with it, and those that name the file
	// get it back.
	if err := c.dest.Delete(ctx, is.stored()); err != nil {
		return false, err
	}
	out, err := c.dest.Create(ctx, is.stored())
	if err != nil {
		return false, err
	}
	return true, c.write(ctx, is, content, out)
}

// write copies a file of pools to out, checks it against its own checksums on the way, and fills in
// its SHA-256. A file that fails is not stored.
func (c *copier) write(ctx context.Context, is *entry, content file.File, out file.Writer) (err error) {
	defer func() { err = errors.Join(err, out.Abort()) }() // nothing, after Seal
	got, err := sumFile(ctx, is.name, content, out)
	if err != nil {
		return err
	}
	if is.sum != (sum{}) && is.sum != got {
		return &sourceError{errors.New("it is not what was backed up before")}
	}
	is.sum = got
	if err := out.Seal(ctx); err != nil {
		return err
	}
	return file.Settle(ctx, c.dest, is.stored())
}

// readBytes is the number of bytes that are read at once, which may be one request to a bucket.
const readBytes = 8 << 20

// sumFile copies a file of pools to w and returns its SHA-256. Errors: a sourceError when it cannot
// be read or fails its own checksums.
func sumFile(ctx context.Context, name string, content file.File, w io.Writer) (sum, error) {
	check, err := segment.CheckFile(ctx, name, content)
	if err != nil {
		return sum{}, blame(err)
	}
	hash := sha256.New()
	source := bufio.NewReaderSize(sourceReader{file.NewReader(ctx, content)}, int(min(content.Size(), readBytes)))
	if err := copyBytes(ctx, io.MultiWriter(sourceWriter{check}, hash, w), source, content.Size()); err != nil {
		return sum{}, err
	}
	if err := check.End(); err != nil {
		return sum{}, blame(err)
	}
	return sum(hash.Sum(nil)), nil
}

// sourceReader and sourceWriter make sourceErrors of their errors.
type (
	sourceReader struct{ io.Reader }
	sourceWriter struct{ io.Writer }
)

func (r sourceReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = blame(err)
	}
	return n, err
}

func (w sourceWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = blame(err)
	}
	return n, err
}

// salvage says what becomes of a file that is damaged in the store: the copy of an older backup, if
// that is right, or nothing.
func (c *copier) salvage(ctx context.Context, name string, why error) (entry, error) {
	if err := c.hold.Check(ctx); err != nil {
		return entry{}, err // so it may be whole, and deleted
	}
	damage := Damage{File: name, Why: why.Error()}
	pools, err := odb.FilePools(ctx, c.tables, name)
	if err != nil {
		return entry{}, err
	}
	owners, err := c.source.Owners(ctx, c.tables, pools)
	if err != nil {
		return entry{}, err
	}
	for _, pool := range pools {
		if owner, ok := owners[pool]; ok {
			damage.Repositories = append(damage.Repositories, owner)
		}
	}
	is, err := c.recordedAs(ctx, name)
	if err != nil {
		return entry{}, err
	}
	if is.sum != (sum{}) {
		err := checkCopy(ctx, c.dest, is)
		if damage.Kept = err == nil; !damage.Kept && !errors.Is(err, ErrDamaged) {
			return entry{}, err
		}
	}
	c.damage = append(c.damage, damage)
	if damage.Kept {
		return is, nil
	}
	c.report.LostCount++
	return entry{kind: kindLost, name: name}, nil
}

// recordedAs returns what older backups say of a file of pools, or an entry without a sum. Memory:
// some hundred bytes for each file that they name, once a file is in doubt.
func (c *copier) recordedAs(ctx context.Context, name string) (entry, error) {
	c.recording.Lock()
	defer c.recording.Unlock()
	if c.recorded == nil {
		c.recorded = make(map[string]entry)
		for i := range c.older {
			if c.older[i].Damage != nil {
				continue
			}
			for e, err := range entries(ctx, c.dest, c.older[i].Number, new(head)) {
				if err != nil {
					return entry{}, err
				}
				if e.kind == kindFile {
					c.recorded[e.name] = e
				}
			}
		}
	}
	return c.recorded[name], nil
}

// keys copies the files of the key-value store.
func (c *copier) keys(ctx context.Context, checkpoint kv.Checkpoint, w *manifestWriter) error {
	for _, f := range checkpoint.Files() {
		is := entry{kind: kindKeys, name: f.Name, size: f.Size}
		written, err := c.keysFile(ctx, checkpoint, &is)
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Name, err)
		}
		c.done(is, written)
		if err := w.add(is); err != nil {
			return err
		}
	}
	return nil
}

// keysFile copies a file of the key-value store under its SHA-256, once it has passed its own
// checks.
func (c *copier) keysFile(ctx context.Context, checkpoint kv.Checkpoint, is *entry) (written bool, err error) {
	if err := checkpoint.Check(is.name); err != nil {
		return false, err
	}
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
	// One of another size is damaged: its name is the SHA-256 that it had.
	if err := c.dest.Delete(ctx, is.stored()); err != nil && !errors.Is(err, file.ErrNotFound) {
		return false, err
	}
	return true, withFile(checkpoint, is.name, func(content io.Reader) error { return c.writeKeys(ctx, is, content) })
}

func (c *copier) writeKeys(ctx context.Context, is *entry, content io.Reader) (err error) {
	out, err := c.dest.Create(ctx, is.stored())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }() // nothing, after Seal
	hash := sha256.New()
	if err := copyBytes(ctx, io.MultiWriter(hash, out), content, is.size); err != nil {
		return err
	}
	if sum(hash.Sum(nil)) != is.sum {
		return fmt.Errorf("%w: it has changed while it was copied", kv.ErrCorrupt)
	}
	if err := out.Seal(ctx); err != nil {
		return err
	}
	return file.Settle(ctx, c.dest, is.stored())
}

// withFile calls use with a file of a checkpoint.
func withFile(checkpoint kv.Checkpoint, name string, use func(io.Reader) error) error {
	content, err := checkpoint.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(use(content), content.Close())
}

// done counts a file.
func (c *copier) done(is entry, written bool) {
	c.report.FileCount++
	c.report.Bytes += is.size
	if written {
		c.report.CopiedCount++
		c.report.CopiedBytes += is.size
	}
	c.tell()
}

// tell reports how far the backup has come.
func (c *copier) tell() {
	if c.progress != nil {
		c.progress(c.report)
	}
}
