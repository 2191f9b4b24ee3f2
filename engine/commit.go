package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine/commit"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// CommitTarget names the branch that gets a commit, and the preconditions.
type CommitTarget struct {
	Branch    string
	Namespace refs.Namespace
	// Expected is the tip that the branch must have, or that of the base when the branch is new; nil
	// expects nothing.
	Expected *object.ID
	// Base is the branch that a new branch starts from, "" for none; it is ignored when the branch
	// exists.
	Base          string
	BaseNamespace refs.Namespace
}

// CommitDetails are message, author and committer of a commit.
type CommitDetails struct {
	Message   string
	Author    commit.Person
	Committer commit.Person // the author when empty
	// SkipEmpty makes no commit that would have the tree of its parent. A new branch is created
	// nevertheless.
	SkipEmpty bool
}

// CommitResult is the outcome of a commit through the API. An idempotency record stores it.
type CommitResult struct {
	Branch      string
	Old, New    object.ID // Old is zero when the branch did not exist
	Tree        object.ID
	PackedBytes int64
	BlobCount   int
	Sequence    uint64
	// Unchanged says that there was nothing to commit: New is the unchanged tip.
	Unchanged bool `json:",omitempty"`
}

// stored is the stored name of the branch.
func (t *CommitTarget) stored() string { return t.Namespace.Full("refs/heads/" + t.Branch) }

// check validates the fields that can be judged without the repository.
func (t *CommitTarget) check() error {
	if _, err := t.Namespace.Branch(t.Branch); err != nil {
		return badName("target_branch", err)
	}
	if t.Base == "" {
		return nil
	}
	if _, err := t.BaseNamespace.Branch(t.Base); err != nil {
		return badName("base_branch", err)
	}
	return nil
}

func (d *CommitDetails) check() error { return d.checkAs("commit_message") }

// checkAs is check for a request that calls the message by another name.
func (d *CommitDetails) checkAs(message string) error {
	if strings.TrimSpace(d.Message) == "" {
		return invalid("%s is required", message)
	}
	if strings.IndexByte(d.Message, 0) >= 0 {
		return invalid("%s must not contain NUL", message)
	}
	if reason := d.Author.Check(); reason != "" {
		return invalid("author: %s", reason)
	}
	if d.Committer == (commit.Person{}) {
		d.Committer = d.Author
	}
	if reason := d.Committer.Check(); reason != "" {
		return invalid("committer: %s", reason)
	}
	return nil
}

// lookuper is where refs are looked up: a snapshot, or a transaction.
type lookuper interface {
	Lookup(ctx context.Context, name string) (refs.Ref, error)
	Count() int
}

// parent returns the parent of a commit to the target, zero for the first commit of a repository,
// and the current value of the branch, zero when it does not exist.
//
// Errors: [ErrNotFound] for a branch that does not exist and cannot be created; [ErrStale] when the
// expectation fails.
func (r *Repository) parent(ctx context.Context, names lookuper, t *CommitTarget) (parent, now object.ID, err error) {
	ref, err := names.Lookup(ctx, t.stored())
	switch {
	case err == nil:
		return ref.ID, ref.ID, t.expect(t.Branch, ref.ID)
	case !errors.Is(err, refs.ErrNotFound):
		return object.ZeroID, object.ZeroID, fmt.Errorf("look up branch %s: %w", t.Branch, err)
	case t.Base != "":
		base, err := names.Lookup(ctx, t.BaseNamespace.Full("refs/heads/"+t.Base))
		if errors.Is(err, refs.ErrNotFound) {
			return object.ZeroID, object.ZeroID, missingBranch(ctx, names, t.BaseNamespace, "base branch", t.Base)
		}
		if err != nil {
			return object.ZeroID, object.ZeroID, fmt.Errorf("look up branch %s: %w", t.Base, err)
		}
		return base.ID, object.ZeroID, t.expect(t.Base, base.ID)
	case names.Count() == 0 && t.Namespace == refs.Main &&
		(t.Branch == r.record.DefaultBranch || r.record.Chosen == chosenByNobody):
		return object.ZeroID, object.ZeroID, t.expect(t.Branch, object.ZeroID)
	default:
		return object.ZeroID, object.ZeroID, missingBranch(ctx, names, t.Namespace, "branch", t.Branch)
	}
}

// openTarget opens the objects for a write of the actor to the target, and returns the commit that
// it would build on now. Where an idempotency key may replay an earlier success, it leaves the
// refusal of a missing or unexpected tip to the transaction. The caller closes the view and
// releases the actor's hold.
func (r *Repository) openTarget(
	ctx context.Context, actor *Actor, target *CommitTarget,
) (parent object.ID, view *odb.View, err error) {
	names, view, err := r.openForWrite(ctx, actor, target.stored())
	if err != nil {
		return object.ZeroID, nil, err
	}
	defer names.Close()
	if parent, err = r.expected(ctx, actor, names, target); err == nil {
		err = r.hold(ctx, actor, view)
	}
	if err != nil {
		return object.ZeroID, nil, errors.Join(err, view.Close())
	}
	return parent, view, nil
}

// expected returns the commit that a commit to the target would build on, with the refusals of
// openTarget.
func (r *Repository) expected(
	ctx context.Context, actor *Actor, names *refs.Snapshot, target *CommitTarget,
) (object.ID, error) {
	parent, _, err := r.parent(ctx, names, target)
	if err == nil || actor.Receipt != nil {
		return parent, nil
	}
	if waitErr := names.WaitDurable(ctx); waitErr != nil { // the refusal shows the state that was read
		return object.ZeroID, waitErr
	}
	return object.ZeroID, err
}

// rehearse calls work with the tree that a commit to the target would build on now, outside of the
// repository's turn, and with objects as the pool is now.
func (r *Repository) rehearse(
	ctx context.Context, actor *Actor, target *CommitTarget, objects *odb.Quarantine,
	work func(ctx context.Context, base object.ID) error,
) error {
	names, err := r.host.names.SnapshotWith(ctx, r.record.ID, objects.ReadAhead, target.stored())
	if err != nil {
		return err
	}
	defer names.Close()
	parent, err := r.expected(ctx, actor, names, target)
	if err != nil {
		return err
	}
	if err := objects.Refresh(ctx); err != nil {
		return fmt.Errorf("refresh objects: %w", err)
	}
	base, err := treeOf(ctx, objects.View().Linked(), parent)
	if err != nil {
		return err
	}
	return work(ctx, base)
}

// expect compares a tip with the expectation.
func (t *CommitTarget) expect(branch string, tip object.ID) error {
	if t.Expected == nil || *t.Expected == tip {
		return nil
	}
	return &StaleError{Branch: branch, Expected: *t.Expected, Actual: tip}
}

// treeOf returns the root tree of a commit, the zero id for the zero id.
func treeOf(ctx context.Context, view *odb.View, id object.ID) (object.ID, error) {
	if id.IsZero() {
		return object.ZeroID, nil
	}
	row, err := view.Graph(ctx, id)
	if err != nil {
		return object.ZeroID, fmt.Errorf("read commit %s: %w", id, err)
	}
	return row.Tree, nil
}

// onTop is the check of a commit's move of a branch: its parent is the old tip.
func onTop(context.Context, object.ID, object.ID) (bool, error) { return true, nil }

// commitTo adds a commit to the target. build gets the tree to build on and returns the new root
// tree, which it has written into objects; it is called again on a new parent when the branch has
// moved and the request has no expectation. blobCount is called after it.
func (r *Repository) commitTo(
	ctx context.Context, actor *Actor, cause string, t *CommitTarget, d *CommitDetails, objects *odb.Quarantine,
	blobCount func() int,
	build func(ctx context.Context, base object.ID) (object.ID, error),
) (CommitResult, error) {
	var result CommitResult
	change := r.change(actor, cause, t.stored())
	change.FastForward = onTop
	done, err := r.transact(ctx, actor, change, objects, func(ctx context.Context, tx *refs.Tx, repo *Repository) error {
		if err := objects.Refresh(ctx); err != nil {
			return fmt.Errorf("refresh objects: %w", err)
		}
		var err error
		if result, err = repo.write(tx, objects, r.host.now()).commit(ctx, t, d, build); err != nil {
			return err
		}
		result.BlobCount = blobCount()
		if result.Unchanged {
			return refs.ErrUnchanged
		}
		if err := objects.Stage(ctx, tx.Batch()); err != nil {
			return fmt.Errorf("stage objects: %w", err)
		}
		result.PackedBytes = objects.PackedBytes()
		return setReceipt(tx, result)
	})
	if err != nil {
		return CommitResult{}, err
	}
	if done.Replayed {
		return decodeReceipt[CommitResult](done.Receipt)
	}
	return result, nil
}
