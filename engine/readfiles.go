package engine

import (
	"context"
	"errors"

	"packhorse/engine/archive"
	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// ReadFilesRequest selects files whose contents are read.
type ReadFilesRequest struct {
	Namespace refs.Namespace
	// Ref is a branch, tag, full ref or object id; "" is the default branch.
	Ref   string
	Files pathspec.Spec
	// BlobBytesMax, Known and Turn are those of [archive.FilesOptions].
	BlobBytesMax int64
	Known        map[object.ID]bool
	Turn         func(ctx context.Context) (release func(), err error)
}

// FileContents are the files of one commit. The caller closes them.
type FileContents struct {
	*archive.Contents

	Revision Revision
	Tree     object.ID

	view *odb.View
}

// ReadFiles opens the files of a revision for reading.
//
// Errors: [ErrNotFound] for the ref; [pathspec.ErrInvalid].
func (r *Repository) ReadFiles(ctx context.Context, request ReadFilesRequest) (*FileContents, error) {
	filter, err := request.Files.Compile()
	if err != nil {
		return nil, err
	}
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	contents, err := archive.NewContents(at.view, at.tree, request.Files.Paths, archive.FilesOptions{
		Filter: filter, BlobBytesMax: request.BlobBytesMax, Known: request.Known, Turn: request.Turn,
	})
	if err != nil {
		return nil, errors.Join(err, at.view.Close())
	}
	contents.Lookup = func(ctx context.Context, path string) (object.Mode, error) {
		entry, err := lookupPath(ctx, at.view, at.tree, path)
		if errors.Is(err, ErrNotFound) {
			return 0, nil
		}
		return entry.Mode, err
	}
	return &FileContents{contents, at.revision, at.tree, at.view}, nil
}

// Close releases the view of the files.
func (c *FileContents) Close() error { return c.view.Close() }
