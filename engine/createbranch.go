package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// CreateBranchRequest describes a branch to create. Base and Branch may lie in different
// namespaces: a branch of [refs.Main] that starts from an ephemeral one is its promotion.
type CreateBranchRequest struct {
	Branch    string
	Namespace refs.Namespace
	// Base is the branch that the new one starts from; or, when AnyRef is set, any revision: an
	// object ID, a branch, a tag, a full ref, or the unique beginning of an object ID.
	Base          string
	AnyRef        bool
	BaseNamespace refs.Namespace
}

// CreatedBranch is the outcome of a branch's creation.
type CreatedBranch struct {
	Tip      object.ID
	Sequence uint64
}

func (c *CreateBranchRequest) check() error {
	if _, err := c.Namespace.Branch(c.Branch); err != nil {
		return badName("target_branch", err)
	}
	if c.AnyRef {
		return nil
	}
	if _, err := c.BaseNamespace.Branch(c.Base); err != nil {
		return badName("base_branch", err)
	}
	return nil
}

// CreateBranch creates a branch at the commit that another name resolves to, and returns when that
// is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a base that does not exist; [ErrExists];
// refs.ErrNameConflict, refs.ErrDenied, refs.ErrLimit, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateBranch(
	ctx context.Context, actor Actor, request CreateBranchRequest,
) (CreatedBranch, error) {
	if err := request.check(); err != nil {
		return CreatedBranch{}, err
	}
	return changeRefs(ctx, r, &actor, "branch",
		func(ctx context.Context, tx *refs.Tx, now *Repository) (CreatedBranch, error) {
			created := CreatedBranch{Sequence: tx.Sequence() + 1}
			err := r.withStored(ctx, tx, func(v *odb.View) (err error) {
				created.Tip, err = now.base(ctx, tx, v, &request)
				return err
			})
			if err != nil {
				return created, err
			}
			absent := object.ZeroID
			err = tx.Set(ctx, request.Namespace.Full("refs/heads/"+request.Branch), &absent, created.Tip, object.ZeroID)
			if errors.Is(err, refs.ErrStale) {
				err = &failure{kind: ErrExists, text: fmt.Sprintf("branch %q already exists", request.Branch)}
			}
			return created, err
		})
}

// base finds the commit that a new branch starts from.
func (r *Repository) base(
	ctx context.Context, names lookuper, v *odb.View, request *CreateBranchRequest,
) (object.ID, error) {
	if request.AnyRef {
		revision, err := r.resolve(ctx, names, v, request.BaseNamespace, request.Base)
		return revision.Commit, err
	}
	ref, err := names.Lookup(ctx, request.BaseNamespace.Full("refs/heads/"+request.Base))
	if errors.Is(err, refs.ErrNotFound) {
		return object.ZeroID, missingBranch(ctx, names, request.BaseNamespace, "base branch", request.Base)
	}
	if err != nil {
		return object.ZeroID, fmt.Errorf("look up branch %s: %w", request.Base, err)
	}
	return ref.ID, nil
}
