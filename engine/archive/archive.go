// Package archive writes the files of a tree as a tar.gz, the same bytes for the same tree and
// options each time.
//
// Start at [Write], or at [Files], which reads the files for it and for others. The tar stream is
// the one of `git archive --format=tar`, byte for byte, as long as no .gitattributes of the tree
// says otherwise: attributes (export-ignore, export-subst, line ends) are ignored. It is compressed
// in blocks of a fixed size, so that several cores can work on it and the result does not depend on
// which of them is faster.
package archive

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/pack/object"
)

// ErrPrefix says that a prefix could lead out of the folder that an archive is extracted to.
var ErrPrefix = errors.New("archive: the prefix must be a relative path without . and .., and of at most 255 bytes")

// prefixBytesMax bounds a prefix: docs/invariants.md 44.
const prefixBytesMax = 255

// Options select the content and the form of an archive. Commit and Filter are required.
type Options struct {
	// Commit is recorded in the archive, and Seconds, its committer's time, is what everything in it
	// was modified at.
	Commit  object.ID
	Seconds int64
	// Filter selects the files. Folders are in the archive if a file in them is.
	Filter *pathspec.Filter
	// Prefix is prepended to every path: a folder if it ends in a slash.
	Prefix string
	// BlobBytesMax leaves out larger files; 0 leaves out none.
	BlobBytesMax int64
	// Turn waits until the archive may use a core for a moment, and returns what ends the moment. It
	// is called by several goroutines. nil never waits.
	Turn func(ctx context.Context) (release func(), err error)
}

// CheckPrefix returns [ErrPrefix] for a prefix that no archive may have.
func CheckPrefix(prefix string) error {
	if len(prefix) > prefixBytesMax || strings.ContainsAny(prefix, "\x00\\") {
		return ErrPrefix
	}
	if prefix == "" {
		return nil
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(prefix, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return ErrPrefix
		}
	}
	return nil
}

// Write writes the tree root as a tar.gz. After an error, the written data is an incomplete
// archive, and must not look complete.
//
// Errors: [ErrPrefix], [pathspec.ErrDepth], and those of view and of w.
func Write(ctx context.Context, view *odb.View, root object.ID, o Options, w io.Writer) error {
	if err := CheckPrefix(o.Prefix); err != nil {
		return err
	}
	return compress(ctx, w, o.Turn, func(ctx context.Context, w io.Writer) error {
		return WriteTar(ctx, view, root, o, w)
	})
}

// WriteTar is [Write] without the compression.
func WriteTar(ctx context.Context, view *odb.View, root object.ID, o Options, w io.Writer) error {
	a := archiver{options: &o, tar: tarWriter{w: w, seconds: o.Seconds}}
	if err := a.tar.global(o.Commit); err != nil {
		return err
	}
	if strings.HasSuffix(o.Prefix, "/") {
		if err := a.tar.entry(&member{path: o.Prefix, mode: object.ModeTree, id: root}); err != nil {
			return err
		}
	}
	files := FilesOptions{Filter: o.Filter, BlobBytesMax: o.BlobBytesMax, HoldLinks: true}
	if err := a.write(ctx, Files(ctx, view, root, files)); err != nil {
		return err
	}
	return a.tar.close()
}

// archiver lives as long as an archive is written.
type archiver struct {
	options *Options
	tar     tarWriter
	folders []pathspec.Entry // on the way to where the walk is, and not written yet
}

// write writes the files, and before the first file of a folder the folder.
func (a *archiver) write(ctx context.Context, files iter.Seq2[File, error]) error {
	for f, err := range files {
		if err != nil {
			return err
		}
		a.leaveFolders(f.Path)
		switch {
		case f.Mode.IsTree():
			a.folders = append(a.folders, f.Entry)
			continue
		case f.Content == TooLarge:
			continue
		}
		for i := range a.folders {
			if err := a.tar.entry(a.member(&File{Entry: a.folders[i]})); err != nil {
				return err
			}
		}
		a.folders = a.folders[:0]
		if err := a.writeFile(ctx, &f); err != nil {
			return err
		}
	}
	return nil
}

// leaveFolders forgets the folders that path is not in: nothing in them was archived.
func (a *archiver) leaveFolders(path string) {
	for n := len(a.folders); n > 0 && !strings.HasPrefix(path, a.folders[n-1].Path+"/"); n-- {
		a.folders = a.folders[:n-1]
	}
}

func (a *archiver) writeFile(ctx context.Context, f *File) error {
	if err := a.tar.entry(a.member(f)); err != nil {
		return err
	}
	if f.Content != Stored {
		return nil
	}
	n, err := f.WriteTo(ctx, a.tar.w)
	if err != nil {
		return err
	}
	return a.tar.pad(n)
}

// member returns the entry of a file in the tar stream.
func (a *archiver) member(f *File) *member {
	m := &member{path: a.options.Prefix + f.Path, mode: f.Mode, id: f.ID, size: f.Size, data: f.Data}
	if f.Mode.IsTree() || f.Mode.IsGitlink() {
		m.path += "/"
	}
	return m
}
