package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// File is an entry of a tree with its whole path.
type File struct {
	Path string
	Mode object.Mode
	ID   object.ID
}

// FilesRequest selects the entries of a tree.
type FilesRequest struct {
	Namespace refs.Namespace
	// Ref is a branch, tag, full ref or object id; "" is the default branch.
	Ref string
	// Path restricts the listing to a folder or to one file; "" is the whole tree.
	Path string
	// Flat leaves folders closed.
	Flat bool
	// Cursor continues a listing, in the commit that it began with: see [Files.CursorAfter].
	Cursor string
}

// Files is an open listing. The caller closes it.
type Files struct {
	Revision Revision
	view     *odb.View
	root     object.ID
	request  FilesRequest
	start    File   // the folder or the file that is listed
	after    string // relative to the root
	cursors  cursors
}

const cursorFiles = 'f'

// Files opens a listing of the files and folders of a revision. Errors: [ErrNotFound] for a ref or
// a path that does not exist, [ErrInvalid] for a cursor of another listing.
func (r *Repository) Files(ctx context.Context, request FilesRequest) (*Files, error) {
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	request.Path = strings.Trim(request.Path, "/")
	f := &Files{Revision: at.revision, view: at.view, root: at.tree, request: request, cursors: r.cursors()}
	if request.Cursor != "" {
		if err := f.resume(ctx); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	f.start = File{Mode: object.ModeTree, ID: f.root}
	if request.Path != "" {
		if f.start, err = lookupPath(ctx, f.view, f.root, request.Path); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// resume moves the listing to where its cursor was taken.
func (f *Files) resume(ctx context.Context) error {
	commit, tree, after, err := pathPosition(ctx, f.view, f.cursors, cursorFiles, f.request.Cursor)
	if err != nil {
		return err
	}
	f.Revision.Commit, f.root, f.after = commit, tree, after
	return nil
}

// pathPosition is where a cursor of a listing of paths was taken: in which commit, of which tree,
// and behind which path.
func pathPosition(
	ctx context.Context, view *odb.View, cursors cursors, listing byte, cursor string,
) (commit, tree object.ID, after string, err error) {
	position, err := cursors.decode(listing, cursor, 0)
	if err != nil {
		return commit, tree, "", err
	}
	bad := fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	if len(position) <= object.IDSize {
		return commit, tree, "", bad
	}
	commit = object.ID(position[:object.IDSize])
	tree, err = cursorTree(ctx, view, cursor, commit)
	return commit, tree, string(position[object.IDSize:]), err
}

// cursorTree returns the tree of a commit that a cursor names.
func cursorTree(ctx context.Context, view *odb.View, cursor string, commit object.ID) (object.ID, error) {
	row, err := view.Asking().Graph(ctx, commit)
	if revision.IsUnknown(err) {
		return object.ZeroID, fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	}
	if err != nil {
		return object.ZeroID, fmt.Errorf("read commit %s: %w", commit, err)
	}
	return row.Tree, nil
}

// CursorAfter returns the cursor of the page that begins behind the entry at path.
func (f *Files) CursorAfter(path string) string {
	return f.cursors.encode(cursorFiles, append(f.Revision.Commit[:], path...))
}

// Close releases the view of the listing.
func (f *Files) Close() error { return f.view.Close() }

// All walks the entries in tree order, folders before their entries.
func (f *Files) All(ctx context.Context) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		if !f.start.Mode.IsTree() {
			if f.after == "" {
				yield(f.start, nil)
			}
			return
		}
		after := f.after
		if f.request.Path != "" {
			after = strings.TrimPrefix(after, f.request.Path+"/")
		}
		_, err := f.walk(ctx, f.start, after, treeDepthMax, yield)
		if err != nil {
			yield(File{}, err)
		}
	}
}

// treeDepthMax bounds the nesting of folders.
const treeDepthMax = 2048

// walk yields the entries of the folder that follow the path after, which is relative to it and may
// be empty. It reports whether to go on.
func (f *Files) walk(
	ctx context.Context, folder File, after string, depth int, yield func(File, error) bool,
) (bool, error) {
	if depth == 0 {
		return false, fmt.Errorf("%w: folders nested deeper than %d", ErrTooLarge, treeDepthMax)
	}
	_, data, err := f.view.Read(ctx, folder.ID)
	if err != nil {
		return false, fmt.Errorf("read folder %q: %w", folder.Path, err)
	}
	head, below, _ := strings.Cut(after, "/")
	skipping := after != ""
	it := object.IterTree(data)
	for it.Next() {
		entry := File{Path: string(it.Name), Mode: it.Mode.Canonical(), ID: it.ID}
		if folder.Path != "" {
			entry.Path = folder.Path + "/" + entry.Path
		}
		inside := ""
		if skipping {
			if string(it.Name) != head {
				continue
			}
			skipping = false
			inside = below
			if below == "" && (f.request.Flat || !it.Mode.IsTree()) {
				continue
			}
		} else if !yield(entry, nil) {
			return false, nil
		}
		if !it.Mode.IsTree() || f.request.Flat {
			continue
		}
		if more, err := f.walk(ctx, entry, inside, depth-1, yield); err != nil || !more {
			return false, err
		}
	}
	if err := it.Err(); err != nil {
		return false, fmt.Errorf("read folder %q: %w", folder.Path, err)
	}
	return true, nil
}

// lookupPath finds the entry at a path below the tree root. Errors: [ErrNotFound].
func lookupPath(ctx context.Context, view *odb.View, root object.ID, path string) (File, error) {
	found := File{Mode: object.ModeTree, ID: root}
	for name := range strings.SplitSeq(path, "/") {
		if !found.Mode.IsTree() {
			return File{}, fail(ErrPathNotFound, "path %q not found", path)
		}
		data, err := view.ReadTree(ctx, found.ID)
		if err != nil {
			return File{}, fmt.Errorf("read folder on the way to %q: %w", path, err)
		}
		mode, id, ok, err := findEntry(data, name)
		if err != nil {
			return File{}, fmt.Errorf("read folder on the way to %q: %w", path, err)
		}
		if !ok {
			return File{}, fail(ErrPathNotFound, "path %q not found", path)
		}
		found = File{Mode: mode, ID: id}
	}
	found.Path = path
	return found, nil
}

// findEntry finds an entry of a tree by name.
func findEntry(tree []byte, name string) (object.Mode, object.ID, bool, error) {
	it := object.IterTree(tree)
	for it.Next() {
		if string(it.Name) == name {
			return it.Mode.Canonical(), it.ID, true, nil
		}
	}
	return 0, object.ZeroID, false, it.Err()
}

// position is a revision with its objects open.
type position struct {
	revision Revision
	view     *odb.View // of the target of the revision; an ID of a client is looked up in its Asking
	row      odb.GraphRow
	tree     object.ID
}

// at resolves a revision and opens the objects; the caller closes the view.
func (r *Repository) at(ctx context.Context, ns refs.Namespace, ref string) (position, error) {
	return r.atCommit(ctx, CommitName{Text: ref, Namespace: ns})
}

// atCommit is at for a name of any kind.
func (r *Repository) atCommit(ctx context.Context, name CommitName) (position, error) {
	names, view, err := r.open(ctx, r.likely(name)...)
	if err != nil {
		return position{}, err
	}
	defer names.Close()
	found, err := r.resolve(ctx, names, view, name)
	if err != nil {
		return position{}, errors.Join(err, view.Close())
	}
	view = view.Linked() // the objects read below belong to the revision
	row, err := view.Graph(ctx, found.Commit)
	if err != nil {
		return position{}, errors.Join(fmt.Errorf("read commit %s: %w", found.Commit, err), view.Close())
	}
	return position{revision: found, view: view, row: row, tree: row.Tree}, nil
}
