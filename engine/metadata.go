package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// MetadataRequest selects files of a tree that are to be listed with the commits that changed them
// last.
type MetadataRequest struct {
	Namespace refs.Namespace
	// Ref is a branch, tag, full ref or object id; "" is the default branch, or else main. In the
	// ephemeral namespace it leads to a ref.
	Ref string
	// Path restricts the listing to a folder or to one file; "" is the whole tree.
	Path string
	// Flat leaves folders closed: they are listed with the commits that changed anything in them last.
	Flat bool
	// Cursor continues a listing, in the commit that it began with.
	Cursor string
	// Limit bounds the files of a page; 0 lists all of them.
	Limit int
	// Slot and Reserve are waited for when history has to be walked.
	Slot    Slot
	Reserve Reserve
}

// FileMetadata is a file, a symbolic link or a submodule with the commit that changed it last; in a
// flat listing also a folder.
type FileMetadata struct {
	Path string
	Mode object.Mode
	Size int64 // in bytes; 0 for a submodule and a folder
	Last object.ID
}

// Metadata is a listing of files, or a page of it. The caller closes it.
type Metadata struct {
	Revision Revision
	// Next is the cursor of the next page, "" when there is none.
	Next string

	view    *odb.View
	root    *revwalk.TracedFolder
	path    string // of the listed folder
	flat    bool
	after   string // where the page begins: a path, or "" for the first one
	limit   int
	cursors cursors
	commits []object.ID // distinct, in the order of the files
}

const (
	cursorMetadata     = 'm'
	cursorFlatMetadata = 'M'
)

// Metadata lists the files of a revision in tree order, each with the commit that changed it last,
// as git log -1 -- PATH finds it. A flat listing leaves out folders that contain no file at all,
// which git log does not find.
//
// Errors: [ErrNotFound] for a ref or a path that does not exist; [ErrInvalid] for a cursor of
// another listing, and for a ref outside the ephemeral namespace if the request is for that
// namespace; [ErrManyCommits].
func (r *Repository) Metadata(ctx context.Context, request MetadataRequest) (*Metadata, error) {
	at, err := r.metadataRevision(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	m := &Metadata{
		view: at.view, path: strings.Trim(request.Path, "/"), flat: request.Flat, limit: request.Limit, cursors: r.cursors(),
	}
	if request.Cursor != "" {
		at.revision.Commit, at.tree, m.after, err = pathPosition(ctx, at.view, m.cursors, m.cursorKind(), request.Cursor)
	}
	m.Revision = at.revision
	if err == nil && m.path != "" {
		_, err = lookupPath(ctx, at.view, at.tree, m.path)
	}
	if err == nil {
		m.root, err = r.host.trace(ctx, at, m.path, m.flat, request.Slot, request.Reserve)
	}
	if err == nil {
		err = m.measure(r.host.limits.LastCommitCountMax)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// metadataRevision finds the commit whose files are listed, by the rules of docs/api.md, "Files and
// trees".
func (r *Repository) metadataRevision(ctx context.Context, ns refs.Namespace, ref string) (position, error) {
	at, err := r.at(ctx, ns, ref)
	if ref == "" && ns == refs.Main && isNotFound(err) && r.record.DefaultBranch != "main" {
		at, err = r.at(ctx, ns, "main")
	}
	if ns != refs.Ephemeral || err != nil && !isNotFound(err) {
		return at, err
	}
	if err == nil && at.revision.Ref != "" {
		return at, nil
	}
	bad := fail(ErrNotEphemeral, "ref %q is no ephemeral branch", cmp.Or(ref, r.record.DefaultBranch))
	if err == nil {
		return position{}, errors.Join(bad, at.view.Close())
	}
	return position{}, bad
}

func (m *Metadata) cursorKind() byte {
	if m.flat {
		return cursorFlatMetadata
	}
	return cursorMetadata
}

// measure finds the end of the page, and collects its commits.
func (m *Metadata) measure(commitsMax int) error {
	count, last := 0, ""
	known := make(map[object.ID]struct{})
	for f := range m.walk() {
		if m.limit > 0 && count == m.limit {
			m.Next = m.cursors.encode(m.cursorKind(), append(m.Revision.Commit[:], last...))
			return nil
		}
		count, last = count+1, f.Path
		if _, ok := known[f.Last]; ok {
			continue
		}
		if len(m.commits) == commitsMax {
			return fmt.Errorf("%w: more than %d; ask for pages, by limit", ErrManyCommits, commitsMax)
		}
		known[f.Last] = struct{}{}
		m.commits = append(m.commits, f.Last)
	}
	return nil
}

// Files gives the files of the page in tree order.
func (m *Metadata) Files() iter.Seq[FileMetadata] {
	return func(yield func(FileMetadata) bool) {
		left := m.limit
		for f := range m.walk() {
			if m.limit > 0 && left == 0 || !yield(f) {
				return
			}
			left--
		}
	}
}

// Commits reads the commits that changed the files of the page last, each once.
func (m *Metadata) Commits(ctx context.Context) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		for _, id := range m.commits {
			c, err := readCommit(ctx, m.view, id)
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Close releases the view of the listing.
func (m *Metadata) Close() error { return m.view.Close() }

// walk gives the files from the start of the page to the end of the listing.
func (m *Metadata) walk() iter.Seq[FileMetadata] {
	return func(yield func(FileMetadata) bool) {
		if m.path == "" {
			walkTraced(m.root, "", m.after, m.flat, yield)
			return
		}
		start := m.root.Find(m.path)
		if start.Folder != nil {
			walkTraced(start.Folder, m.path+"/", strings.TrimPrefix(m.after, m.path+"/"), m.flat, yield)
		} else if !start.Mode.IsTree() && m.after == "" {
			yield(FileMetadata{Path: m.path, Mode: start.Mode, Size: start.Size, Last: start.Last})
		}
	}
}

// walkTraced yields the files of a folder that follow the path after, which is relative to it and
// may be empty. With flat it yields folders in place of what is in them. It reports whether to go
// on.
func walkTraced(f *revwalk.TracedFolder, prefix, after string, flat bool, yield func(FileMetadata) bool) bool {
	head, below, _ := strings.Cut(after, "/")
	skipping := after != ""
	for i := range f.Entries {
		e := &f.Entries[i]
		inside := ""
		if skipping {
			if e.Name != head {
				continue
			}
			skipping = false
			if inside = below; inside == "" {
				continue // the file that the last page ended with
			}
		}
		switch {
		case e.Folder != nil && !flat:
			if !walkTraced(e.Folder, prefix+e.Name+"/", inside, flat, yield) {
				return false
			}
		case !e.Mode.IsTree() || !e.Last.IsZero():
			if !yield(FileMetadata{Path: prefix + e.Name, Mode: e.Mode, Size: e.Size, Last: e.Last}) {
				return false
			}
		}
	}
	return true
}
