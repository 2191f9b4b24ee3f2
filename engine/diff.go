package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"packhorse/engine/diff"
	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// DiffOptions select the content of a diff.
type DiffOptions struct {
	// Paths restricts the diff to these files and folders, as the paths of git diff do: a rename is
	// reported as such if both names are among them. Files selected like this are shown in full,
	// whatever their kind.
	Paths []string
	// Inline also marks the changes within changed lines.
	Inline bool
	// Limit makes a page: it ends after so many files, or earlier when their diffs have reached
	// [diff.PageBytes]. 0 is the whole diff.
	Limit int
	// Cursor continues a diff, of the commits that it began with: see [Diff.Next]. The paths are
	// those of the first page.
	Cursor string
}

const (
	cursorCommitDiff = 'd'
	cursorBranchDiff = 'D'
)

// CommitDiffRequest names two commits.
type CommitDiffRequest struct {
	Commit CommitName
	// Base is what to compare the commit with; without a text it is its first parent, or the empty
	// tree if it has none.
	Base CommitName
	DiffOptions
}

// BranchDiffRequest names two branches. The branch is compared with the commit where it left the
// base.
type BranchDiffRequest struct {
	Branch        string
	Namespace     refs.Namespace
	Base          string // "" is the default branch
	BaseNamespace refs.Namespace
	DiffOptions
}

// Diff is an open diff. Its files are being computed from the start; the caller closes it.
type Diff struct {
	// Branch and Base are the requested names; "" for commits.
	Branch, Base string
	// Commit is the new side. BaseCommit is the requested other side, zero for none. MergeBase is
	// the newest common ancestor of the two, zero without one.
	Commit, BaseCommit, MergeBase object.ID
	// Tree and BaseTree are the trees that are compared; BaseTree is zero if there is no commit to
	// compare with.
	Tree, BaseTree object.ID

	view    *odb.View
	files   *diff.Comparison
	cursors cursors
	kind    byte   // of its cursors
	last    string // path of the last file that was handed out, or where the page begins
}

// CommitDiff opens the diff of a commit. It returns when the first file has been compared.
//
// Errors: [ErrInvalid] for a name that is not of its kind, and for a cursor of another diff;
// [ErrNotFound].
func (r *Repository) CommitDiff(
	ctx context.Context, request CommitDiffRequest, resources diff.Resources,
) (*Diff, error) {
	// Data that is read by ID alone must be durable, too.
	names, view, err := r.open(ctx, r.likely(request.Commit, request.Base)...)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	d := &Diff{view: view, cursors: r.cursors(), kind: cursorCommitDiff}
	before, after, err := d.resolveCommits(ctx, r, names, &request)
	return r.startDiff(ctx, d, before, after, request.DiffOptions, resources, err)
}

func (d *Diff) resolveCommits(
	ctx context.Context, r *Repository, names lookuper, request *CommitDiffRequest,
) (before, after object.ID, err error) {
	found, err := r.resolve(ctx, names, d.view, request.Commit)
	if err != nil {
		return before, after, err
	}
	d.Commit = found.Commit
	if request.Base.Text != "" {
		if found, err = r.resolve(ctx, names, d.view, request.Base); err != nil {
			return before, after, err
		}
		d.BaseCommit = found.Commit
	}
	if err = d.resume(ctx, request.Cursor); err != nil {
		return before, after, err
	}
	row, err := d.view.Linked().Graph(ctx, d.Commit)
	if err != nil {
		return before, after, fmt.Errorf("read commit %s: %w", d.Commit, err)
	}
	switch {
	case !d.BaseCommit.IsZero():
		if d.MergeBase, err = mergeBase(ctx, d.view.Linked(), d.BaseCommit, d.Commit); err != nil {
			return before, after, err
		}
	case len(row.Parents) > 0:
		d.BaseCommit, d.MergeBase = row.Parents[0], row.Parents[0]
	default:
		return object.ZeroID, row.Tree, nil
	}
	before, err = treeOf(ctx, d.view.Linked(), d.BaseCommit)
	return before, row.Tree, err
}

// resume moves the diff to where a cursor was taken, unless that is "".
func (d *Diff) resume(ctx context.Context, cursor string) error {
	if cursor == "" {
		return nil
	}
	position, err := d.cursors.decode(d.kind, cursor, 0)
	if err != nil {
		return err
	}
	const idsSize = 2 * object.IDSize
	if len(position) <= idsSize {
		return fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	}
	d.Commit, d.BaseCommit = object.ID(position[:object.IDSize]), object.ID(position[object.IDSize:idsSize])
	if _, err = cursorTree(ctx, d.view, cursor, d.Commit); err == nil && !d.BaseCommit.IsZero() {
		_, err = cursorTree(ctx, d.view, cursor, d.BaseCommit)
	}
	d.last = string(position[idsSize:])
	return err
}

// mergeBase returns the newest of the best common ancestors, or zero.
func mergeBase(ctx context.Context, view *odb.View, a, b object.ID) (object.ID, error) {
	bases, err := revwalk.MergeBases(ctx, view, a, b)
	if err != nil {
		return object.ZeroID, fmt.Errorf("find the merge base of %s and %s: %w", a, b, err)
	}
	if len(bases) == 0 {
		return object.ZeroID, nil
	}
	return bases[0], nil
}

// BranchDiff opens the diff of the changes of a branch since it left another one. Without a common
// ancestor that is its whole content. It returns when the first file has been compared. Errors:
// [ErrNotFound].
func (r *Repository) BranchDiff(
	ctx context.Context, request BranchDiffRequest, resources diff.Resources,
) (*Diff, error) {
	branch := CommitName{Text: request.Branch, Namespace: request.Namespace, Field: "branch"}
	base := CommitName{Text: request.Base, Namespace: request.BaseNamespace, Field: "base"}
	names, view, err := r.open(ctx, r.likely(branch, base)...)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	d := &Diff{view: view, cursors: r.cursors(), kind: cursorBranchDiff}
	before, after, err := d.resolveBranches(ctx, r, names, branch, base, request.Cursor)
	return r.startDiff(ctx, d, before, after, request.DiffOptions, resources, err)
}

func (d *Diff) resolveBranches(
	ctx context.Context, r *Repository, names lookuper, of, against CommitName, cursor string,
) (before, after object.ID, err error) {
	branch, err := r.resolve(ctx, names, d.view, of)
	if err != nil {
		return before, after, err
	}
	base, err := r.resolve(ctx, names, d.view, against)
	if err != nil {
		return before, after, err
	}
	d.Branch, d.Base, d.Commit, d.BaseCommit = branch.Name, base.Name, branch.Commit, base.Commit
	if err = d.resume(ctx, cursor); err != nil {
		return before, after, err
	}
	d.view = d.view.Linked() // the objects read below belong to the two commits
	if d.MergeBase, err = mergeBase(ctx, d.view, d.BaseCommit, d.Commit); err != nil {
		return before, after, err
	}
	if after, err = treeOf(ctx, d.view, d.Commit); err != nil {
		return before, after, err
	}
	before, err = treeOf(ctx, d.view, d.MergeBase)
	return before, after, err
}

// startDiff begins to compare two trees, unless that cannot be because of err.
func (r *Repository) startDiff(
	ctx context.Context, d *Diff, before, after object.ID, o DiffOptions, resources diff.Resources, err error,
) (*Diff, error) {
	if err != nil {
		return nil, errors.Join(err, d.view.Close())
	}
	var paths []string
	for _, path := range o.Paths {
		if path = strings.Trim(path, "/"); path == "" {
			return nil, errors.Join(invalid("path: the name of a file is expected"), d.view.Close())
		}
		paths = append(paths, path)
	}
	d.Tree, d.BaseTree = after, before
	d.view = d.view.Linked()
	d.files, err = diff.Compare(ctx, d.view, before, after, diff.CompareOptions{
		Paths: paths, Inline: o.Inline, SizeMax: r.host.limits.DiffFileBytes, After: d.last, Limit: o.Limit,
	}, resources)
	if errors.Is(err, diff.ErrAfter) {
		err = fail(ErrInvalidCursor, "cursor %.100q belongs to another diff", o.Cursor)
	}
	if err != nil {
		return nil, errors.Join(err, d.view.Close())
	}
	return d, nil
}

// Files yields the changed files of the page in the order of git diff. It calls idle before it
// waits for a file that is still being compared, so that the caller can send the output so far.
// Files may be called once. Errors: those of ctx as it was given to the use case, and of the object
// database.
func (d *Diff) Files(idle func() error) iter.Seq2[*diff.File, error] {
	return func(yield func(*diff.File, error) bool) {
		for f, err := range d.files.Files(idle) {
			if err == nil {
				d.last = f.Path()
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

// Next is the cursor of the next page, "" if there is none. It is known when Files has ended.
func (d *Diff) Next() string {
	if !d.files.HasMore() {
		return ""
	}
	return d.cursors.encode(d.kind, slices.Concat(d.Commit[:], d.BaseCommit[:], []byte(d.last)))
}

// Close ends the comparison, waits for it and releases its view.
func (d *Diff) Close() error {
	d.files.Close()
	return d.view.Close()
}
