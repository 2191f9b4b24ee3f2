package engine

import (
	"context"

	"packhorse/refs"
)

// DeletedRef is the outcome of the deletion of a branch or a tag.
type DeletedRef struct {
	Sequence uint64
}

// DeleteBranch deletes a branch of a namespace and returns when that is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound]; [ErrDefaultBranch]; refs.ErrDenied, refs.ErrBusy,
// refs.ErrReceiptMismatch.
func (r *Repository) DeleteBranch(
	ctx context.Context, actor Actor, ns refs.Namespace, name string,
) (DeletedRef, error) {
	full, err := ns.Branch(name)
	if err != nil {
		return DeletedRef{}, badName("name", err)
	}
	return r.deleteRef(ctx, &actor, full, fail(ErrRefNotFound, "branch %q not found", name))
}

// DeleteTag deletes a tag of a namespace and returns when that is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound]; refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) DeleteTag(ctx context.Context, actor Actor, ns refs.Namespace, name string) (DeletedRef, error) {
	full, err := ns.Tag(name)
	if err != nil {
		return DeletedRef{}, badName("name", err)
	}
	return r.deleteRef(ctx, &actor, full, fail(ErrRefNotFound, "tag %q not found", name))
}

// deleteRef deletes the ref of a stored name. missing says that there is none.
func (r *Repository) deleteRef(ctx context.Context, actor *Actor, full string, missing error) (DeletedRef, error) {
	return changeRefs(ctx, r, actor, "delete", func(
		ctx context.Context, tx *refs.Tx, now *Repository,
	) (DeletedRef, error) {
		return now.writeRefs(tx).deleteRef(ctx, full, "", nil, missing)
	}, full)
}
