package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"packhorse/engine/catalog"
	"packhorse/engine/organization"
	"packhorse/engine/outbox"
	"packhorse/engine/upstream"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// UndeleteRequest says which deleted repository comes back, and how.
type UndeleteRequest struct {
	// Name is the name that the repository had.
	Name string
	// ID tells it from others of that name; zero for the one that had the name last.
	ID refs.RepoID
	// As is its new name, "" for the one that it had.
	As string
	// CountMax bounds the repositories of the organization, this one included; 0 means no bound.
	CountMax int
}

// Undelete brings a deleted repository back and returns when that is durable: with its refs, its
// journal and its objects, without its credential and its upstream, and as the last one in the
// listing of its organization.
//
// Errors: [ErrInvalid] for an invalid name; [ErrExists] for a name that is taken, or a repository
// that is there; [ErrNotFound]; [ErrPurged]; [ErrQuota]; refs.ErrDenied, refs.ErrReceiptMismatch.
func (h *Host) Undelete(ctx context.Context, actor Actor, request UndeleteRequest) (Created, error) {
	if request.As != "" {
		if err := CheckRepositoryName(request.As); err != nil {
			return Created{}, err
		}
	}
	if err := actor.checkRelease("the repository would be brought back"); err != nil {
		return Created{}, err
	}
	for range createTriesMax {
		if actor.Receipt != nil {
			if created, found, err := replay[Created](ctx, h, &actor); found || err != nil {
				return created, err
			}
		}
		created, commit, err := h.undelete(ctx, &actor, &request)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err == nil && commit != nil {
			if err = commit.Wait(ctx); err != nil {
				err = fmt.Errorf("bring back repository %q: %w", request.Name, err)
			}
		}
		return created, err
	}
	return Created{}, fmt.Errorf("bring back repository %q: %w", request.Name, refs.ErrBusy)
}

// undelete tries once. It takes the turn of creations: it draws a number like one.
func (h *Host) undelete(
	ctx context.Context, actor *Actor, request *UndeleteRequest,
) (created Created, done kv.Commit, err error) {
	gone, row, err := h.findDeleted(ctx, actor.Org, request.Name, request.ID)
	if err != nil {
		return Created{}, nil, err
	}
	rec := gone.record
	rec.Name = cmp.Or(request.As, rec.Name)
	vacancy, found, err := h.catalog.Look(ctx, actor.Org, rec.Name, organization.Key(actor.Org))
	if err != nil {
		return Created{}, nil, err
	}
	end, err := h.creations.Acquire(ctx, fair.Tenant{Org: actor.Org}, 0, 1)
	if err != nil {
		return Created{}, nil, err
	}
	defer end()

	b := kv.NewBatch()
	number, free, err := h.catalog.Draw(b, vacancy)
	if err == nil && !free {
		err = h.taken(ctx, actor.Org, rec.Name)
	}
	if err == nil && h.followOrg != nil {
		err = h.followOrg(ctx, actor.Org, found[0])
	}
	if err == nil {
		err = h.checkCount(ctx, actor.Org, request.CountMax)
	}
	if err != nil {
		return Created{}, nil, err
	}
	catalog.Forget(b, rec.ID, &gone.Deletion, gone.Stored)
	if rec.Name != request.Name {
		catalog.ForgetName(b, actor.Org, request.Name, row, rec.ID)
	}
	if rec.Upstream != nil { // what a sync knew is of no use without its state, which is gone
		outbox.DropFor(b, outbox.Upstream, rec.ID)
		upstream.Forget(b, rec.ID)
		rec.Upstream = nil
	}
	rec.Number = number
	stored, err := rec.encode()
	if err != nil {
		return Created{}, nil, err
	}
	catalog.Add(b, rec.Org, rec.Name, number, rec.ID, stored)
	change := refs.Change{Org: rec.Org, Actor: actor.Subject, Cause: "undelete", Time: h.now()}
	sequence, err := h.names.Revive(b, rec.ID, change, gone.Head)
	if err != nil {
		return Created{}, nil, fmt.Errorf("bring back repository %q: %w", request.Name, err)
	}
	created = Created{Item: rec.item(), Sequence: sequence}
	if actor.Receipt != nil {
		result, err := json.Marshal(created)
		if err != nil {
			return Created{}, nil, fmt.Errorf("encode receipt: %w", err)
		}
		h.names.PutReceipt(b, actor.Receipt, refs.StoredReceipt{Sequence: sequence, Result: result})
	}
	if err := errors.Join(h.space.Check(), actor.recheck()); err != nil {
		return Created{}, nil, err
	}
	if actor.DryRun { // what it tells is durable when the deletion is
		return created, nil, h.keys.WaitDurable(ctx, catalog.DeletedKey(rec.ID))
	}
	commit, err := h.names.ApplyRevival(ctx, b, rec.ID, change, sequence)
	if err != nil {
		h.catalog.Undrawn(actor.Org)
		return Created{}, nil, fmt.Errorf("bring back repository %q: %w", request.Name, err)
	}
	h.catalog.Drawn(actor.Org, number)
	return created, commit, nil
}
