package archive

import (
	"context"
	"iter"

	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// Contents are the files of one tree that a request selects, some of them by their exact paths.
type Contents struct {
	// Lookup finds the mode of a path of the tree, 0 if there is no such path.
	Lookup func(ctx context.Context, path string) (object.Mode, error)

	view    *odb.View
	tree    object.ID
	options FilesOptions
	paths   []string
	found   map[string]object.Mode // of paths, what the walk has come to
}

// NewContents selects from the files of a tree. paths are those of the options' filter. Errors:
// [pathspec.ErrInvalid].
func NewContents(v *odb.View, tree object.ID, paths []string, options FilesOptions) (*Contents, error) {
	c := &Contents{view: v, tree: tree, options: options, paths: paths, found: make(map[string]object.Mode, len(paths))}
	for _, path := range paths {
		cleaned, _, err := pathspec.CleanPath(path)
		if err != nil {
			return nil, err
		}
		c.found[cleaned] = 0
	}
	return c, nil
}

// All yields the selected files in the order of trees, without folders. It calls idle before it
// waits for a file, so that the caller can send the output so far. Errors: [pathspec.ErrDepth].
func (c *Contents) All(ctx context.Context, idle func() error) iter.Seq2[File, error] {
	c.options.Idle = idle
	return func(yield func(File, error) bool) {
		for f, err := range Files(ctx, c.view, c.tree, c.options) {
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
func (c *Contents) Missing(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, path := range c.paths {
			missing, err := c.isMissing(ctx, path)
			if (missing || err != nil) && !yield(path, err) || err != nil {
				return
			}
		}
	}
}

func (c *Contents) isMissing(ctx context.Context, path string) (missing bool, err error) {
	cleaned, isFolder, err := pathspec.CleanPath(path)
	if err != nil || cleaned == "" {
		return false, err
	}
	mode := c.found[cleaned]
	if mode == 0 {
		err = c.inTurn(ctx, func(ctx context.Context) error {
			mode, err = c.Lookup(ctx, cleaned)
			return err
		})
	}
	return mode == 0 || isFolder && !mode.IsTree(), err
}

// inTurn runs work while it holds a slot and a turn at the processors.
func (c *Contents) inTurn(ctx context.Context, work func(ctx context.Context) error) error {
	if c.options.Turn != nil {
		release, err := c.options.Turn(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	return fair.Do(ctx, work)
}
