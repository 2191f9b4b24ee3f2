package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/commit"
	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// write is what the operations of one transaction on a repository have in common in one try. Each
// operation sees what those before it have made: refs in names, and objects in the quarantine. The
// caller refreshes the quarantine before the first, and stages it behind the last.
type write struct {
	repo    *Repository // as the try finds it
	names   changes
	objects *odb.Quarantine
	when    time.Time // of new commits
	// view calls do with a view of the objects to which refs may be pointed.
	view func(ctx context.Context, do func(v *odb.View) error) error
}

// changes is refs that operations look up and change: a transaction, or a rehearsal of it.
type changes interface {
	lookuper
	Set(ctx context.Context, name string, expected *object.ID, id, peeled object.ID) error
	Delete(ctx context.Context, name string, expected *object.ID) error
	// Sequence is the position in the journal on which the changes build, and After the one that they
	// reach.
	Sequence() uint64
	After() uint64
}

// write returns a write of operations whose objects go into a quarantine.
func (r *Repository) write(names changes, objects *odb.Quarantine, when time.Time) *write {
	w := &write{repo: r, names: names, objects: objects, when: when}
	w.view = func(_ context.Context, do func(v *odb.View) error) error { return do(objects.View()) }
	return w
}

// writeRefs returns a write of one operation without new objects.
func (r *Repository) writeRefs(tx *refs.Tx) *write {
	w := &write{repo: r, names: tx, when: r.host.now()}
	w.view = func(ctx context.Context, do func(v *odb.View) error) error { return r.withStored(ctx, tx, do) }
	return w
}

// forward is the check of a move that may be of any kind, with what was quarantined.
func forward(objects *odb.Quarantine) func(ctx context.Context, before, after object.ID) (bool, error) {
	return func(ctx context.Context, before, after object.ID) (bool, error) {
		return revwalk.IsAncestor(ctx, objects.View().Linked(), before, after)
	}
}

// commit adds a commit to the target. build gets the tree to build on, and returns the new root
// tree, which it has written into the quarantine. A commit that would change nothing, where that is
// asked for, is an Unchanged result. The result lacks sizes and counts.
func (w *write) commit(
	ctx context.Context, t *CommitTarget, d *CommitDetails,
	build func(ctx context.Context, base object.ID) (object.ID, error),
) (CommitResult, error) {
	parent, now, err := w.repo.parent(ctx, w.names, t)
	if err != nil {
		return CommitResult{}, err
	}
	base, err := treeOf(ctx, w.objects.View().Linked(), parent)
	if err != nil {
		return CommitResult{}, err
	}
	tree, err := build(ctx, base)
	if err != nil {
		return CommitResult{}, err
	}
	result := CommitResult{Branch: t.Branch, Old: now, New: parent, Tree: tree, Sequence: w.names.After()}
	if d.SkipEmpty && !parent.IsZero() && tree == base {
		if now == parent {
			result.Sequence, result.Unchanged = w.names.Sequence(), true
			return result, nil
		}
	} else {
		header := commit.Header{Author: d.Author, Committer: d.Committer, Message: d.Message, When: w.when}
		if !parent.IsZero() {
			header.Parents = []object.ID{parent}
		}
		if result.New, err = commit.Build(ctx, w.objects, tree, header); err != nil {
			return CommitResult{}, err
		}
	}
	return result, w.names.Set(ctx, t.stored(), &now, result.New, object.ZeroID)
}

// createBranch creates a branch, or moves it. Where the branch has to be is expected, unless that
// is nil. Errors: those of [Repository.CreateBranch]; [ErrStale].
func (w *write) createBranch(
	ctx context.Context, request *CreateBranchRequest, expected *object.ID,
) (CreatedBranch, error) {
	full := request.Namespace.Full(branchPrefix + request.Branch)
	created := CreatedBranch{Sequence: w.names.After()}
	err := w.view(ctx, func(v *odb.View) (err error) {
		created.Tip, err = w.repo.base(ctx, w.names, v, request)
		return err
	})
	if err != nil {
		return created, err
	}
	now, err := w.branchTip(ctx, full, request.Branch, expected)
	if err != nil {
		return created, err
	}
	if request.Force {
		created.Moved, created.Old = !now.IsZero(), now
	}
	err = w.names.Set(ctx, full, &created.Old, created.Tip, object.ZeroID)
	if errors.Is(err, refs.ErrStale) {
		err = &failure{kind: ErrRefExists, text: fmt.Sprintf("branch %q already exists", request.Branch)}
	}
	return created, err
}

// branchTip returns the tip of a branch of a stored name, zero for none, if it is as expected.
func (w *write) branchTip(ctx context.Context, full, name string, expected *object.ID) (object.ID, error) {
	ref, err := w.names.Lookup(ctx, full)
	if err != nil && !errors.Is(err, refs.ErrNotFound) {
		return object.ZeroID, fmt.Errorf("look up %s: %w", full, err)
	}
	if expected != nil && *expected != ref.ID {
		return ref.ID, &StaleError{Branch: name, Expected: *expected, Actual: ref.ID}
	}
	return ref.ID, nil
}

// checkNotDefault refuses the removal of the default branch of a stored name.
func (w *write) checkNotDefault(full, verb string) error {
	if full != w.repo.defaultRef(refs.Main) {
		return nil
	}
	return &failure{
		kind: ErrDefaultBranch, text: fmt.Sprintf("branch %q is the default branch and cannot be %s",
			w.repo.record.DefaultBranch, verb),
	}
}

// deleteRef deletes the ref of a stored name, which an error calls name. missing says that there is
// none.
func (w *write) deleteRef(
	ctx context.Context, full, name string, expected *object.ID, missing error,
) (DeletedRef, error) {
	if err := w.checkNotDefault(full, "deleted"); err != nil {
		return DeletedRef{}, err
	}
	if expected != nil {
		if _, err := w.branchTip(ctx, full, name, expected); err != nil {
			return DeletedRef{}, err
		}
	}
	err := w.names.Delete(ctx, full, nil)
	if errors.Is(err, refs.ErrNotFound) {
		err = missing
	}
	return DeletedRef{Sequence: w.names.After()}, err
}

// RenamedBranch is the outcome of the renaming of a branch.
type RenamedBranch struct {
	Tip object.ID
}

// renameBranch gives a branch another name. Errors: [ErrNotFound]; [ErrExists]; [ErrDefaultBranch];
// [ErrStale]; refs.ErrNameConflict, refs.ErrDenied, refs.ErrLimit.
func (w *write) renameBranch(
	ctx context.Context, ns refs.Namespace, from, to string, expected *object.ID,
) (RenamedBranch, error) {
	old, full := ns.Full(branchPrefix+from), ns.Full(branchPrefix+to)
	if err := w.checkNotDefault(old, "renamed"); err != nil {
		return RenamedBranch{}, err
	}
	tip, err := w.branchTip(ctx, old, from, expected)
	if err != nil {
		return RenamedBranch{}, err
	}
	if tip.IsZero() {
		return RenamedBranch{}, missingBranch(ctx, w.names, ns, "branch", from)
	}
	exists := &failure{kind: ErrRefExists, text: fmt.Sprintf("branch %q already exists", to)}
	if old == full { // the deletion would make room for it
		return RenamedBranch{}, exists
	}
	if err := w.names.Delete(ctx, old, &tip); err != nil { // first, so that a may become a/b
		return RenamedBranch{}, err
	}
	absent := object.ZeroID
	err = w.names.Set(ctx, full, &absent, tip, object.ZeroID)
	if errors.Is(err, refs.ErrStale) {
		err = exists
	}
	return RenamedBranch{Tip: tip}, err
}

// createTag creates a lightweight tag. Errors: those of [Repository.CreateTag].
func (w *write) createTag(ctx context.Context, full, name string, target CommitName) (CreatedTag, error) {
	created := CreatedTag{Sequence: w.names.After()}
	err := w.view(ctx, func(v *odb.View) error {
		found, err := w.repo.resolve(ctx, w.names, v, target)
		created.Commit = found.Commit
		return err
	})
	if err != nil {
		return created, err
	}
	absent := object.ZeroID
	err = w.names.Set(ctx, full, &absent, created.Commit, object.ZeroID)
	if errors.Is(err, refs.ErrStale) {
		err = &failure{kind: ErrRefExists, text: fmt.Sprintf("tag %q already exists", name)}
	}
	return created, err
}

// note commits what edit does to a notes tree about a commit. The result of a failure has the
// commit, if it was found.
func (w *write) note(
	ctx context.Context, target *NoteTarget, author commit.Person, change *noteChange,
) (result NoteResult, err error) {
	result.Commit, err = w.repo.noteObject(ctx, w.names, w.objects.View(), target)
	if err != nil {
		return result, err
	}
	about := result.Commit
	tip, err := target.tip(ctx, w.names)
	if err != nil {
		return result, err
	}
	tree, err := openNotes(ctx, w.objects.View().Linked(), tip)
	if err != nil {
		return result, err
	}
	if err := change.edit(ctx, tree, w.objects, about); err != nil {
		return result, err
	}
	root, err := tree.Write(ctx, w.objects)
	if err != nil {
		return result, err
	}
	header := commit.Header{Author: author, Committer: author, Message: change.message, When: w.when}
	if !tip.IsZero() {
		header.Parents = []object.ID{tip}
	}
	id, err := commit.Build(ctx, w.objects, root, header)
	if err != nil {
		return result, err
	}
	if err := w.names.Set(ctx, target.Namespace.Full(target.Ref), &tip, id, object.ZeroID); err != nil {
		return result, err
	}
	return NoteResult{Commit: about, Ref: target.Ref, Old: tip, New: id, Sequence: w.names.After()}, nil
}
