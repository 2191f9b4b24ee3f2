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
	Details CommitDetails // without a message it names Commit
	Commit  object.ID     // whose tree is to come back
}

// RestoreCommit adds a commit with the tree of an earlier one to a branch, even if the tip has the
// same tree, and returns when that is durable. When the branch has moved and the request has no
// expectation, the commit is added to the new tip.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a branch or commit that does not exist; [ErrStale];
// refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) RestoreCommit(
	ctx context.Context, actor Actor, request RestoreRequest,
) (result CommitResult, err error) {
	if strings.TrimSpace(request.Details.Message) == "" {
		request.Details.Message = "Restore " + request.Commit.String()
	}
	if err := errors.Join(request.Target.check(), request.Details.check()); err != nil {
		return CommitResult{}, err
	}
	view, err := r.Objects(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	defer view.Close()
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	build := func(ctx context.Context, _ object.ID) (object.ID, error) {
		if err := requireCommit(ctx, objects.View(), request.Commit); err != nil {
			return object.ZeroID, err
		}
		return treeOf(ctx, objects.View().Linked(), request.Commit)
	}
	return r.commitTo(ctx, &actor, "restore-commit", &request.Target, &request.Details, objects, func() int { return 0 },
		build)
}
