package engine

import (
	"context"
	"errors"
	"iter"

	"packhorse/engine/archive"
	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/odb/fair"
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
	Revision Revision
	Tree     object.ID

	view    *odb.View
	options archive.FilesOptions
	paths   []string
	found   map[string]object.Mode // of paths, what the walk has come to
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
	c := &FileContents{
		Revision: at.revision, Tree: at.tree, view: at.view, paths: request.Files.Paths,
		options: archive.FilesOptions{
			Filter: filter, BlobBytesMax: request.BlobBytesMax, Known: request.Known, Turn: request.Turn,
		},
		found: make(map[string]object.Mode, len(request.Files.Paths)),
	}
	for _, path := range c.paths {
		cleaned, _, err := pathspec.CleanPath(path)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.found[cleaned] = 0
	}
	return c, nil
}

// All yields the selected files in the order of trees, without folders. It calls idle before it
// waits for a file, so that the caller can send the output so far. Errors: [pathspec.ErrDepth].
func (c *FileContents) All(ctx context.Context, idle func() error) iter.Seq2[archive.File, error] {
	c.options.Idle = idle
	return func(yield func(archive.File, error) bool) {
		for f, err := range archive.Files(ctx, c.view, c.Tree, c.options) {
			if _, asked := c.found[f.Path]; asked && err == nil {
				c.found[f.Path] = f.Mode
			}
			if (err != nil || !f.Mode.IsTree()) && !yield(f, err) {
				return
			}
		}
	}
}

// Missing yields the paths of the request that the commit does not have, in their order and as they
// were given. A path that ends in a slash is missing unless it is a folder. A path that only the
// globs leave out is not missing. It is called after All, which finds most of the paths.
func (c *FileContents) Missing(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, path := range c.paths {
			missing, err := c.isMissing(ctx, path)
			if (missing || err != nil) && !yield(path, err) || err != nil {
				return
			}
		}
	}
}

func (c *FileContents) isMissing(ctx context.Context, path string) (missing bool, err error) {
	cleaned, isFolder, err := pathspec.CleanPath(path)
	if err != nil || cleaned == "" {
		return false, err
	}
	mode := c.found[cleaned]
	if mode == 0 {
		err = c.inTurn(ctx, func(ctx context.Context) error {
			entry, err := lookupPath(ctx, c.view, c.Tree, cleaned)
			mode = entry.Mode
			return err
		})
		if errors.Is(err, ErrNotFound) {
			return true, nil
		}
	}
	return isFolder && !mode.IsTree(), err
}

// inTurn runs work while it holds a slot and a turn at the processors.
func (c *FileContents) inTurn(ctx context.Context, work func(ctx context.Context) error) error {
	if c.options.Turn != nil {
		release, err := c.options.Turn(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	return fair.Do(ctx, work)
}

// Close releases the view of the files.
func (c *FileContents) Close() error { return c.view.Close() }
