package engine

import (
	"context"
	"io"

	"packhorse/engine/archive"
	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// ArchiveRequest selects the content of an archive.
type ArchiveRequest struct {
	// Ref is a branch, tag, full ref or object id; "" is the default branch.
	Ref   string
	Files pathspec.Spec
	// Prefix is prepended to every path. BlobBytesMax, if not 0, leaves out larger files.
	Prefix       string
	BlobBytesMax int64
	// Turn, if not nil, is called before each step of work: see [archive.Options].
	Turn func(ctx context.Context) (release func(), err error)
}

// Archive is a tree that is ready to be archived. The caller closes it.
type Archive struct {
	Revision Revision
	view     *odb.View
	tree     object.ID
	options  archive.Options
}

// Archive opens the files of a revision for an archive.
//
// Errors: [ErrNotFound] for the ref; [pathspec.ErrInvalid]; [archive.ErrPrefix].
func (r *Repository) Archive(ctx context.Context, request ArchiveRequest) (*Archive, error) {
	filter, err := request.Files.Compile()
	if err == nil {
		err = archive.CheckPrefix(request.Prefix)
	}
	if err != nil {
		return nil, err
	}
	at, err := r.at(ctx, refs.Main, request.Ref)
	if err != nil {
		return nil, err
	}
	return &Archive{Revision: at.revision, view: at.view, tree: at.tree, options: archive.Options{
		Commit: at.revision.Commit, Seconds: at.row.Seconds,
		Filter: filter, Prefix: request.Prefix, BlobBytesMax: request.BlobBytesMax, Turn: request.Turn,
	}}, nil
}

// Write writes the archive as a tar.gz. After an error, the written archive is incomplete.
func (a *Archive) Write(ctx context.Context, w io.Writer) error {
	return archive.Write(ctx, a.view, a.tree, a.options, w)
}

// WriteTar writes the archive without compression.
func (a *Archive) WriteTar(ctx context.Context, w io.Writer) error {
	return archive.WriteTar(ctx, a.view, a.tree, a.options, w)
}

// Close releases the view of the archive.
func (a *Archive) Close() error { return a.view.Close() }
