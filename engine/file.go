package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// OpenFile is one file of a revision, open for reading. The caller closes it.
type OpenFile struct {
	File
	Revision Revision
	// Content is the blob; of a submodule it is nil.
	Content *odb.Object
	// LastCommit changed the path last, on the way back from the revision; Modified is its committer's time.
	LastCommit object.ID
	Modified   time.Time
	view       *odb.View
}

// FileRequest names a file.
type FileRequest struct {
	Namespace refs.Namespace
	Ref       string
	Path      string
}

// File opens a file or a symbolic link, whose content is its target.
//
// Errors: [ErrNotFound] when the ref or the path is not there; [ErrInvalid] when the path is a folder or a submodule.
func (r *Repository) File(ctx context.Context, request FileRequest) (*OpenFile, error) {
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	f, err := r.openFile(ctx, at, strings.TrimLeft(request.Path, "/"))
	if err != nil {
		return nil, errors.Join(err, at.view.Close())
	}
	return f, nil
}

func (r *Repository) openFile(ctx context.Context, at position, path string) (*OpenFile, error) {
	found, err := lookupPath(ctx, at.view, at.tree, path)
	if err != nil {
		return nil, err
	}
	switch {
	case found.Mode.IsTree():
		return nil, invalid("path %q is a folder", path)
	case found.Mode.IsGitlink():
		return nil, invalid("path %q is a submodule", path)
	}
	last, err := r.lastCommit(ctx, at, found)
	if err != nil {
		return nil, err
	}
	row, err := at.view.Graph(ctx, last)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", last, err)
	}
	content, err := at.view.Open(ctx, found.ID)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return &OpenFile{
		File:       found,
		Revision:   at.revision,
		Content:    content,
		LastCommit: last,
		Modified:   time.Unix(row.Seconds, 0).UTC(),
		view:       at.view,
	}, nil
}

// Close releases the file.
func (f *OpenFile) Close() error {
	return errors.Join(f.Content.Close(), f.view.Close())
}
