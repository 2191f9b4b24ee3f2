package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"packhorse/pack/object"
	"packhorse/refs"
)

// Branch is a branch in a listing.
type Branch struct {
	Cursor  string
	Name    string
	Tip     object.ID
	Created time.Time
}

const cursorBranches = 'b'

// Branches lists a namespace's branches in the order of their creation. [Page.Next] is empty at the
// end of the listing; each branch carries the cursor that continues after it. Errors: [ErrInvalid]
// for a cursor of another listing.
func (r *Repository) Branches(ctx context.Context, ns refs.Namespace, cursor string, limit int) (Page[Branch], error) {
	var after refs.Creation
	if cursor != "" {
		position, err := r.cursors().decode(cursorBranches, cursor, 12)
		if err != nil {
			return Page[Branch]{}, err
		}
		after = refs.Creation{Sequence: binary.BigEndian.Uint64(position), Index: binary.BigEndian.Uint32(position[8:])}
	}
	names, err := r.names(ctx)
	if err != nil {
		return Page[Branch]{}, err
	}
	defer names.Close()
	listed, err := names.Branches(ctx, ns, after, limit+1)
	if err != nil {
		return Page[Branch]{}, fmt.Errorf("list branches: %w", err)
	}
	var page Page[Branch]
	for i := range listed {
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].Cursor
			break
		}
		page.Items = append(page.Items, r.branchOf(ns, &listed[i]))
	}
	return page, nil
}

// Branch returns one branch of a namespace. Errors: [ErrNotFound].
func (r *Repository) Branch(ctx context.Context, ns refs.Namespace, name string) (Branch, error) {
	ref, err := r.oneRef(ctx, ns.BranchPrefix()+name)
	if err != nil {
		return Branch{}, err
	}
	return r.branchOf(ns, &ref), nil
}

// oneRef returns the ref of a stored name.
func (r *Repository) oneRef(ctx context.Context, full string) (refs.Ref, error) {
	names, err := r.names(ctx, full)
	if err != nil {
		return refs.Ref{}, err
	}
	defer names.Close()
	ref, err := names.Lookup(ctx, full)
	switch {
	case errors.Is(err, refs.ErrNotFound):
		return ref, fail(ErrRefNotFound, "ref not found")
	case err != nil:
		return ref, fmt.Errorf("look up %s: %w", full, err)
	}
	return ref, nil
}

func (r *Repository) branchOf(ns refs.Namespace, ref *refs.Ref) Branch {
	position := binary.BigEndian.AppendUint64(nil, ref.Created.Sequence)
	return Branch{
		Cursor:  r.cursors().encode(cursorBranches, binary.BigEndian.AppendUint32(position, ref.Created.Index)),
		Name:    ref.Name[len(ns.BranchPrefix()):],
		Tip:     ref.ID,
		Created: ref.CreatedAt(),
	}
}
