package engine

import (
	"context"
	"errors"
	"strings"

	"packhorse/pack/object"
)

// RestoreRequest describes a commit that brings back the tree of an earlier one.
type RestoreRequest struct {
	Target  CommitTarget
	Details CommitDetails // without a message it names the ID of Commit
	Commit  CommitName    // whose tree is to come back
}

// RestoreCommit adds a commit with the tree of an earlier one to a branch, even if the tip has the
// same tree, and returns when that is durable. The name of the earlier one is resolved once. When
// the branch has moved and the request has no expectation, the commit is added to the new tip.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a branch or commit that does not exist; [ErrStale];
// refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) RestoreCommit(
	ctx context.Context, actor Actor, request RestoreRequest,
) (result CommitResult, err error) {
	names, view, err := r.open(ctx, r.likely(request.Commit)...)
	if err != nil {
		return CommitResult{}, err
	}
	defer names.Close()
	defer view.Close()
	if err := r.hold(ctx, &actor, view); err != nil {
		return CommitResult{}, err
	}
	defer actor.hold.Release()
	// The transaction reports a refusal: an idempotency key may replay an earlier success instead.
	found, refusal := r.resolve(ctx, names, view, request.Commit)
	if strings.TrimSpace(request.Details.Message) == "" {
		request.Details.Message = "Restore " + found.Commit.String()
	}
	if err := errors.Join(request.Target.check(), request.Details.check()); err != nil {
		return CommitResult{}, err
	}
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	build := func(ctx context.Context, _ object.ID) (object.ID, error) {
		if refusal != nil {
			return object.ZeroID, refusal
		}
		if err := requireCommit(ctx, objects.View(), found.Commit); err != nil {
			return object.ZeroID, err
		}
		return treeOf(ctx, objects.View().Linked(), found.Commit)
	}
	return r.commitTo(ctx, &actor, "restore-commit", &request.Target, &request.Details, objects, func() int { return 0 },
		build)
}
