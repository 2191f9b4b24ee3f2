package engine

import (
	"context"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// CreateBranchRequest describes a branch to create. Base and Branch may lie in different
// namespaces: a branch of [refs.Main] that starts from an ephemeral one is its promotion.
type CreateBranchRequest struct {
	Branch    string
	Namespace refs.Namespace
	// Base is where the branch starts from.
	Base CommitName
	// Force moves a branch that exists to Base, whatever its tip is.
	Force bool
}

// CreatedBranch is the outcome of a branch's creation. An idempotency record stores it.
type CreatedBranch struct {
	Tip object.ID
	// Moved says that the branch existed. Old is its former tip, which may be Tip.
	Moved    bool
	Old      object.ID
	Sequence uint64
}

func (c *CreateBranchRequest) check() error {
	if _, err := c.Namespace.Branch(c.Branch); err != nil {
		return badName("target_branch", err)
	}
	if c.Base.Kind != BranchName {
		return nil
	}
	if _, err := c.Base.Namespace.Branch(c.Base.Text); err != nil {
		return badName("base_branch", err)
	}
	return nil
}

// CreateBranch creates a branch at the commit that another name resolves to, or moves it there, and
// returns when that is durable. A move obeys the policies as a push does.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a base that does not exist; [ErrExists];
// refs.ErrNameConflict, refs.ErrDenied, refs.ErrLimit, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateBranch(
	ctx context.Context, actor Actor, request CreateBranchRequest,
) (CreatedBranch, error) {
	if err := request.check(); err != nil {
		return CreatedBranch{}, err
	}
	full := request.Namespace.Full(branchPrefix + request.Branch)
	return changeRefs(ctx, r, &actor, "branch",
		func(ctx context.Context, tx *refs.Tx, now *Repository) (CreatedBranch, error) {
			created, err := now.writeRefs(tx).createBranch(ctx, &request, nil)
			// With an idempotency key the transaction has a record all the same: a repetition must not
			// move a branch that has gone on.
			if err == nil && created.Moved && created.Old == created.Tip && actor.Receipt == nil {
				created.Sequence, err = tx.Sequence(), refs.ErrUnchanged
			}
			return created, err
		}, full, request.Base.Namespace.Full(branchPrefix+request.Base.Text))
}

// base finds the commit that a new branch starts from.
func (r *Repository) base(
	ctx context.Context, names lookuper, v *odb.View, request *CreateBranchRequest,
) (object.ID, error) {
	if request.Base.Kind == BranchName {
		found, err := request.Base.branch(ctx, names, "base branch")
		return found.Commit, err
	}
	found, err := r.resolve(ctx, names, v, request.Base)
	return found.Commit, err
}
