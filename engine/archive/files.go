package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"

	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/odb/inorder"
	"packhorse/pack/object"
)

// FilesOptions select files of a tree, and how much of them is read. Filter is required.
type FilesOptions struct {
	Filter *pathspec.Filter
	// BlobBytesMax leaves larger contents unread; 0 leaves none.
	BlobBytesMax int64
	// Known are blobs whose content is not read.
	Known map[object.ID]bool
	// HoldLinks holds the target of a symbolic link whatever its size, for a header.
	HoldLinks bool
	// Turn waits until a file may be read, and returns what ends that. It is called by several
	// goroutines. nil never waits.
	Turn func(ctx context.Context) (release func(), err error)
	// Idle, if not nil, is called before a wait for a file that is still being read. Its error ends
	// the sequence.
	Idle func() error
}

// Content says where the content of a [File] is.
type Content uint8

// Where a content is.
const (
	NoContent Content = iota // folders and submodules have none
	Held                     // in File.Data
	Stored                   // in the object database: File.WriteTo
	TooLarge                 // not read because of FilesOptions.BlobBytesMax
	Known                    // not read because of FilesOptions.Known
)

// File is an entry of a tree with its content.
type File struct {
	pathspec.Entry
	Content Content
	Size    int64 // of the content, read or not
	Data    []byte

	view *odb.View
}

// Files up to wholeBytes are read ahead, so many for each core.
const (
	wholeBytes = 1 << 20
	readAhead  = 16
)

// Files yields the selected files of the tree root in the order of trees, and before the files of a
// folder the folder, even if nothing in it turns out to be selected. Small files are read ahead by
// several goroutines; of a large one nothing is read yet.
//
// Errors: [pathspec.ErrDepth], and those of view.
func Files(ctx context.Context, view *odb.View, root object.ID, o FilesOptions) iter.Seq2[File, error] {
	if o.Turn == nil {
		o.Turn = func(context.Context) (func(), error) { return func() {}, nil }
	}
	return inorder.Map(ctx, pathspec.Walk(ctx, view, root, o.Filter, ""),
		inorder.Options{Ahead: readAhead * runtime.GOMAXPROCS(0), Idle: o.Idle},
		func(ctx context.Context, entry pathspec.Entry) (File, error) {
			f := File{Entry: entry, view: view}
			if entry.Mode.IsTree() || entry.Mode.IsGitlink() {
				return f, nil
			}
			release, err := o.Turn(ctx)
			if err != nil {
				return f, err
			}
			defer release()
			if err := f.read(ctx, &o); err != nil {
				return f, fmt.Errorf("read %q: %w", entry.Path, err)
			}
			return f, nil
		})
}

// read reads the size of a file, and its content if that is to be held.
func (f *File) read(ctx context.Context, o *FilesOptions) error {
	info, err := f.view.Stat(ctx, f.ID)
	if err != nil {
		return err
	}
	f.Size = info.Size
	switch {
	case o.Known[f.ID]:
		f.Content = Known
	case o.BlobBytesMax > 0 && f.Size > o.BlobBytesMax:
		f.Content = TooLarge
	case f.Size > wholeBytes && (!o.HoldLinks || !f.Mode.IsSymlink()):
		f.Content = Stored
	default:
		f.Content = Held
		_, f.Data, err = f.view.Read(ctx, f.ID)
	}
	return err
}

// WriteTo writes a content that is [Held] or [Stored]. After an error, the output must not be used.
func (f *File) WriteTo(ctx context.Context, w io.Writer) (int64, error) {
	if f.Content == Held {
		n, err := w.Write(f.Data)
		return int64(n), err
	}
	content, err := f.view.Open(ctx, f.ID)
	if err != nil {
		return 0, fmt.Errorf("open %q: %w", f.Path, err)
	}
	n, err := content.WriteTo(w)
	if err = errors.Join(err, content.Close()); err != nil {
		return n, fmt.Errorf("read %q: %w", f.Path, err)
	}
	return n, nil
}
