package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/inorder"
	"packhorse/odb/segment"
)

const (
	// filesAtOnce is the number of files that are copied at a time.
	filesAtOnce = 4
	// pieceBytes is the number of bytes that are read at once, which may be one request to a bucket.
	pieceBytes = 8 << 20
	// stillEvery is the number of files between two looks at the marks.
	stillEvery = 256
)

// copied is what became of a file.
type copied struct {
	size    int64
	written bool // by this run
}

// copyFiles makes the files of the target those that rows of the source name. What an earlier run
// has copied is read and compared, not copied again.
func (m *migration) copyFiles(ctx context.Context) error {
	options := inorder.Options{Workers: filesAtOnce, Ahead: 4 * filesAtOnce}
	for c, err := range inorder.Map(ctx, odb.UsedFiles(ctx, m.from.Keys), options, m.copyFile) {
		if err == nil && m.report.FileCount%stillEvery == stillEvery-1 {
			err = m.still(ctx)
		}
		if err != nil {
			return err
		}
		m.report.FileCount++
		m.report.FileBytes += c.size
		if c.written {
			m.report.CopiedCount++
			m.report.CopiedBytes += c.size
		}
		m.tell()
	}
	return nil
}

// copyFile copies a file, unless the target has it.
func (m *migration) copyFile(ctx context.Context, name string) (_ copied, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy file %s: %w", name, err)
		}
	}()
	content, err := m.from.Files.Open(ctx, name)
	if err != nil {
		return copied{}, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	done := copied{size: content.Size()}
	equal, err := m.compare(ctx, name, content)
	if err != nil || equal {
		return done, err
	}
	done.written = true
	return done, m.write(ctx, name, content)
}

// write stores a file in the target.
func (m *migration) write(ctx context.Context, name string, content file.File) (err error) {
	out, err := m.to.Files.Create(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }() // nothing, after Seal
	if err := read(ctx, name, content, out); err != nil {
		return err
	}
	if err := out.Seal(ctx); err != nil {
		return err
	}
	return file.Settle(ctx, m.to.Files, name)
}

// compare reports whether the target has a file with the same bytes. One with others, which was
// damaged since it was copied, is removed.
func (m *migration) compare(ctx context.Context, name string, content file.File) (equal bool, err error) {
	stored, err := m.to.Files.Open(ctx, name)
	if errors.Is(err, file.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = errDiffers
	if stored.Size() == content.Size() {
		err = read(ctx, name, content, &comparer{ctx: ctx, want: stored})
	}
	err = errors.Join(err, stored.Close())
	switch {
	case errors.Is(err, errDiffers):
		return false, m.to.Files.Delete(ctx, name)
	case err != nil:
		return false, err
	}
	return true, file.Settle(ctx, m.to.Files, name)
}

// read passes a file of the source on to w, and checks it against its own checksums on the way.
// Errors: [odb.ErrCorrupt], and those of w.
func read(ctx context.Context, name string, content file.File, w io.Writer) error {
	check, err := segment.CheckFile(ctx, name, content)
	if err != nil {
		return err
	}
	all := io.MultiWriter(check, w)
	piece := make([]byte, min(content.Size(), pieceBytes))
	for at := int64(0); at < content.Size(); at += int64(len(piece)) {
		piece = piece[:min(content.Size()-at, pieceBytes)]
		if err := segment.ReadFull(ctx, content, piece, at); err != nil {
			return err
		}
		if _, err := all.Write(piece); err != nil {
			return err
		}
	}
	return check.End()
}

// errDiffers says that two files have different bytes.
var errDiffers = errors.New("the copy has other bytes")

// comparer is a writer of bytes that must be those of a file.
type comparer struct {
	ctx    context.Context // of the call that writes
	want   file.File
	at     int64
	buffer []byte
}

func (c *comparer) Write(p []byte) (int, error) {
	if len(c.buffer) < len(p) {
		c.buffer = make([]byte, len(p))
	}
	want := c.buffer[:len(p)]
	if err := segment.ReadFull(c.ctx, c.want, want, c.at); err != nil {
		return 0, err
	}
	if !bytes.Equal(want, p) {
		return 0, errDiffers
	}
	c.at += int64(len(p))
	return len(p), nil
}

// removeFiles removes the files that an earlier run has copied and that no row of the source names
// any more, since the source was used in between.
func (m *migration) removeFiles(ctx context.Context) error {
	if !m.marks.resumed {
		return nil
	}
	if err := m.still(ctx); err != nil {
		return err
	}
	options := inorder.Options{Workers: filesAtOnce, Ahead: 4 * filesAtOnce}
	for removed, err := range inorder.Map(ctx, m.to.Files.List(ctx), options, m.removeFile) {
		if err != nil {
			return err
		}
		if removed {
			m.report.RemovedCount++
			m.tell()
		}
	}
	return nil
}

// removeFile removes a file of the target, unless a row of the source names it.
func (m *migration) removeFile(ctx context.Context, info file.Info) (removed bool, err error) {
	pools, err := odb.FilePools(ctx, m.from.Keys, info.Name)
	if err == nil && len(pools) == 0 {
		removed, err = true, m.to.Files.Delete(ctx, info.Name)
	}
	if err != nil {
		return false, fmt.Errorf("remove file %s: %w", info.Name, err)
	}
	return removed, nil
}
