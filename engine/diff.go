package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
}

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

	view  *odb.View
	files *diff.Comparison
}

// CommitDiff opens the diff of a commit. It returns when the first file has been compared.
//
// Errors: [ErrInvalid] for a name that is not of its kind; [ErrNotFound].
func (r *Repository) CommitDiff(
	ctx context.Context, request CommitDiffRequest, resources diff.Resources,
) (*Diff, error) {
	// Data that is read by ID alone must be durable, too.
	names, view, err := r.open(ctx, r.likely(request.Commit, request.Base)...)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	d := &Diff{view: view}
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
	row, err := d.view.Linked().Graph(ctx, d.Commit)
	if err != nil {
		return before, after, fmt.Errorf("read commit %s: %w", d.Commit, err)
	}
	switch {
	case request.Base.Text != "":
		if found, err = r.resolve(ctx, names, d.view, request.Base); err != nil {
			return before, after, err
		}
		d.BaseCommit = found.Commit
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
	d := &Diff{view: view}
	before, after, err := d.resolveBranches(ctx, r, names, branch, base)
	return r.startDiff(ctx, d, before, after, request.DiffOptions, resources, err)
}

func (d *Diff) resolveBranches(
	ctx context.Context, r *Repository, names lookuper, of, against CommitName,
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
		Paths: paths, Inline: o.Inline, SizeMax: r.host.limits.DiffFileBytes,
	}, resources)
	if err != nil {
		return nil, errors.Join(err, d.view.Close())
	}
	return d, nil
}

// Files yields the changed files in the order of git diff. It calls idle before it waits for a file
// that is still being compared, so that the caller can send the output so far. Files may be called
// once. Errors: those of ctx as it was given to the use case, and of the object database.
func (d *Diff) Files(idle func() error) iter.Seq2[*diff.File, error] { return d.files.Files(idle) }

// Close ends the comparison, waits for it and releases its view.
func (d *Diff) Close() error {
	d.files.Close()
	return d.view.Close()
}
