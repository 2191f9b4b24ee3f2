package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// copier puts files into the folder of a backup.
type copier struct {
	source   Source
	dest     file.Store
	older    []Summary
	tables   kv.Reader // of the checkpoint
	report   Report
	damage   []Damage
	progress func(Report)

	recorded map[string]entry // what older backups say of files of pools; nil before it was needed
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

// files copies the files that pools use. Both walks are in the order of names, so that they are
// compared as they go.
func (c *copier) files(ctx context.Context, w *manifestWriter) error {
	next, stop := iter.Pull2(c.known(ctx))
	defer stop()
	old, err, more := next()
	for name, listed := range odb.UsedFiles(ctx, c.tables) {
		if listed != nil {
			return listed
		}
		for more && err == nil && (old.kind == kindLost || old.kind == kindFile && old.name < name) {
			old, err, more = next()
		}
		if err != nil {
			return err
		}
		is := entry{kind: kindFile, name: name}
		if more && old.kind == kindFile && old.name == name {
			is = old
		}
		if is, err = c.file(ctx, is); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		if err := w.add(is); err != nil {
			return err
		}
	}
	return nil
}

// sourceError says that the source of a copy could not be read, or is damaged.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// file copies a file of pools into the folder, and returns its manifest entry; is.sum is set when
// the newest backup has it.
func (c *copier) file(ctx context.Context, is entry) (entry, error) {
	known := is
	copied, err := c.fileCopied(ctx, &is)
	if err != nil && ctx.Err() == nil && c.copyAgain(ctx, is.name, err) {
		is = known
		copied, err = c.fileCopied(ctx, &is)
	}
	if damaged, ok := errors.AsType[*sourceError](err); ok && ctx.Err() == nil {
		return c.salvage(ctx, is.name, damaged)
	}
	return is, c.done(is, copied, err)
}

// copyAgain reports whether the source of a failed copy is itself a copy, and makes the next read
// fetch it again.
func (c *copier) copyAgain(ctx context.Context, name string, cause error) bool {
	if _, ok := errors.AsType[*sourceError](cause); !ok {
		return false
	}
	content, err := c.source.Files.Open(ctx, name)
	if err != nil {
		return false
	}
	again := file.Forget(content, 0, content.Size())
	return content.Close() == nil && again
}

func (c *copier) fileCopied(ctx context.Context, is *entry) (copied bool, err error) {
	content, err := c.source.Files.Open(ctx, is.name)
	if errors.Is(err, file.ErrNotFound) {
		return false, &sourceError{errors.New("it is missing")}
	}
	if err != nil {
		return false, &sourceError{err}
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

// replace replaces a file that exists already: one of an interrupted or an older backup, maybe
// damaged. A file that equals the source stays.
func (c *copier) replace(ctx context.Context, is *entry, content file.File) (copied bool, err error) {
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

// sumFile copies a file of pools to w and returns its SHA-256. Errors: a sourceError when it cannot
// be read or fails its own checksums.
func sumFile(ctx context.Context, name string, content file.File, w io.Writer) (sum, error) {
	check, err := segment.CheckFile(ctx, name, content)
	if err != nil {
		return sum{}, &sourceError{err}
	}
	hash := sha256.New()
	source := sourceReader{file.NewReader(ctx, content)}
	if err := copyBytes(ctx, io.MultiWriter(sourceWriter{check}, hash, w), source, content.Size()); err != nil {
		return sum{}, err
	}
	if err := check.End(); err != nil {
		return sum{}, &sourceError{err}
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
		err = &sourceError{err}
	}
	return n, err
}

func (w sourceWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = &sourceError{err}
	}
	return n, err
}

// salvage says what becomes of a file that is damaged in the store: the copy of an older backup, if
// that is right, or nothing.
func (c *copier) salvage(ctx context.Context, name string, why error) (entry, error) {
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
		return is, c.done(is, false, nil)
	}
	c.report.LostCount++
	return entry{kind: kindLost, name: name}, nil
}

// recordedAs returns what older backups say of a file of pools, or an entry without a sum. Memory:
// some hundred bytes for each file that they name, once a file is in doubt.
func (c *copier) recordedAs(ctx context.Context, name string) (entry, error) {
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

// keysFile copies a file of the key-value store under its SHA-256, once it has passed its own
// checks.
func (c *copier) keysFile(ctx context.Context, checkpoint kv.Checkpoint, is *entry) (copied bool, err error) {
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

// done counts a file, unless err says that it does not exist.
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
