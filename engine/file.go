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

// OpenFile is one file of a revision. The caller closes it.
type OpenFile struct {
	File
	Revision Revision
	Size     int64
	// Last is the commit that changed the file last, as git log -1 -- PATH finds it; Modified is its
	// committer's time.
	Last     object.ID
	Modified time.Time
	view     *odb.View
}

// FileRequest names a file.
type FileRequest struct {
	Namespace refs.Namespace
	Ref       string
	Path      string
	// Slot and Reserve are waited for when history has to be walked.
	Slot    Slot
	Reserve Reserve
}

// File opens a file or a symbolic link, whose content is its target. Nothing of the content is read
// yet.
//
// Errors: [ErrNotFound] when the ref or the path does not exist; [ErrInvalid] when the path is a
// folder or a submodule.
func (r *Repository) File(ctx context.Context, request FileRequest) (*OpenFile, error) {
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	f, err := r.openFile(ctx, at, strings.TrimLeft(request.Path, "/"), request.Slot, request.Reserve)
	if err != nil {
		return nil, errors.Join(err, at.view.Close())
	}
	return f, nil
}

func (r *Repository) openFile(
	ctx context.Context, at position, path string, slot Slot, reserve Reserve,
) (*OpenFile, error) {
	found, err := lookupFile(ctx, at, path)
	if err != nil {
		return nil, err
	}
	root, err := r.host.trace(ctx, at, path, false, slot, reserve)
	if err != nil {
		return nil, err
	}
	traced := root.Find(path)
	row, err := at.view.Graph(ctx, traced.Last)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", traced.Last, err)
	}
	return &OpenFile{
		File:     found,
		Revision: at.revision,
		Size:     traced.Size,
		Last:     traced.Last,
		Modified: object.CommitTime(row.Seconds),
		view:     at.view,
	}, nil
}

// lookupFile finds the file or symbolic link at a path. Errors: [ErrNotFound]; [ErrInvalid] for a
// folder or a submodule.
func lookupFile(ctx context.Context, at position, path string) (File, error) {
	found, err := lookupPath(ctx, at.view, at.tree, path)
	switch {
	case err != nil:
		return File{}, err
	case found.Mode.IsTree():
		return File{}, invalid("path %q is a folder", path)
	case found.Mode.IsGitlink():
		return File{}, invalid("path %q is a submodule", path)
	}
	return found, nil
}

// Content opens the content of the file. The caller closes it before the file.
func (f *OpenFile) Content(ctx context.Context) (*odb.Object, error) {
	content, err := f.view.Open(ctx, f.ID)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", f.Path, err)
	}
	return content, nil
}

// Close releases the file.
func (f *OpenFile) Close() error { return f.view.Close() }
