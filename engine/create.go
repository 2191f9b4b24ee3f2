package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"packhorse/engine/catalog"
	"packhorse/engine/organization"
	"packhorse/engine/upstream"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// CreateRequest describes a repository to create.
type CreateRequest struct {
	Name string
	// DefaultBranch defaults to "main" until the first branch is created; with a base, to the
	// selected branch, or the base's default branch.
	DefaultBranch string
	// Base is nil for a repository that begins empty.
	Base *Base
	// Upstream is the upstream to sync with; nil for none. It excludes Base.
	Upstream *UpstreamBase
	// CountMax bounds the repositories of the organization, this one included; 0 means no bound.
	CountMax int

	// push is a push that brings the first refs and their objects; nil for none.
	push *firstPush
}

// Created is the outcome of a creation.
type Created struct {
	Item     Item
	Sequence uint64
}

// createTriesMax bounds the attempts of a creation against concurrent ones of other servers.
const createTriesMax = 16

// newCreations returns a queue in which each organization has one turn.
func newCreations() *fair.Queue {
	return fair.NewQueue(fair.Options{Capacity: math.MaxInt64, Share: 1, Waiting: math.MaxInt, Wait: math.MaxInt64})
}

// CreateRepository creates a repository, empty or from a base, and returns when it is durable.
//
// The caller has checked that the actor may read the base. Errors: [ErrInvalid] for an invalid
// name, [ErrExists], [ErrNotFound] for a missing base or a missing ref of it, [ErrTooLarge] for a
// fork of too many refs, [ErrQuota].
func (h *Host) CreateRepository(ctx context.Context, actor Actor, request CreateRequest) (Created, error) {
	if err := CheckRepositoryName(request.Name); err != nil {
		return Created{}, err
	}
	if request.DefaultBranch != "" {
		if _, err := refs.Main.Branch(request.DefaultBranch); err != nil {
			return Created{}, badName("default_branch", err)
		}
	}
	if request.Base != nil {
		if err := request.Base.check(); err != nil {
			return Created{}, err
		}
	}
	var origin *upstream.Origin
	if request.Upstream != nil {
		if err := actor.checkSync(); err != nil {
			return Created{}, err
		}
		var err error
		if origin, err = h.completeUpstream(actor.Org, request.Upstream); err != nil {
			return Created{}, err
		}
	}
	for range createTriesMax {
		if actor.Receipt != nil {
			if created, found, err := replay[Created](ctx, h, &actor); found || err != nil {
				return created, err
			}
		}
		created, begin, commit, err := h.create(ctx, &actor, request, origin)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err != nil || actor.DryRun {
			return created, err
		}
		begin.hold.SettleFork(context.WithoutCancel(ctx), begin.base, h.countedAs(begin.pool, created.Item.ID, actor.Org))
		if err := commit.Wait(ctx); err != nil {
			return Created{}, fmt.Errorf("create repository %q: %w", request.Name, err)
		}
		if origin != nil {
			h.causes.note(ctx, created.Item.ID)
			h.upstreams.worker.WakeNow(created.Item.ID)
		}
		begin.settled(ctx) // after a crash a finalized file would be unknown and would stay forever
		return created, nil
	}
	return Created{}, fmt.Errorf("create repository %q: %w", request.Name, refs.ErrBusy)
}

// create tries once. Creations of one organization take turns here, since each draws the next
// number.
func (h *Host) create(
	ctx context.Context, actor *Actor, request CreateRequest, from *upstream.Origin,
) (created Created, begun *origin, done kv.Commit, err error) {
	b := kv.NewBatch()
	begin, err := h.origin(ctx, b, actor, &request)
	if err != nil {
		return Created{}, nil, nil, err
	}
	defer func() {
		if err != nil {
			begin.hold.Release()
		}
	}()
	vacancy, found, err := h.catalog.Look(ctx, actor.Org, request.Name, organization.Key(actor.Org))
	if err != nil {
		return Created{}, nil, nil, err
	}
	end, err := h.creations.Acquire(ctx, fair.Tenant{Org: actor.Org}, 0, 1)
	if err != nil {
		return Created{}, nil, nil, err
	}
	defer end()

	number, free, err := h.catalog.Draw(b, vacancy)
	if err == nil && !free {
		err = h.taken(ctx, actor.Org, request.Name)
	}
	if err == nil && h.followOrg != nil {
		err = h.followOrg(ctx, actor.Org, found[0])
	}
	if err != nil {
		return Created{}, nil, nil, err
	}
	if err := h.checkCount(ctx, actor.Org, request.CountMax); err != nil {
		return Created{}, nil, nil, err
	}
	rec := record{
		ID:            begin.id(),
		Org:           actor.Org,
		Name:          request.Name,
		Number:        number,
		DefaultBranch: begin.defaultBranch,
		Chosen:        begin.chosen,
		Created:       h.now().UTC(),
		Pool:          begin.pool,
		Upstream:      from,
	}
	if from != nil {
		if from.DefaultBranch != "" {
			rec.DefaultBranch, rec.Chosen = from.DefaultBranch, chosenAtCreation
		}
		state := upstream.State{Phase: upstream.Syncing}
		row, err := state.Encode()
		if err != nil {
			return Created{}, nil, nil, err
		}
		b.Put(upstream.StateKey(rec.ID), row)
	}
	change := refs.Change{
		Org: rec.Org, Name: rec.Name, Actor: actor.Subject, Cause: request.Base.cause(), Policy: actor.Policy,
		Time: rec.Created,
	}
	var updates []refs.Entry
	if begin.push != nil {
		updates, err = begin.push.create(ctx, b, &rec)
	} else {
		updates, err = h.names.CreateWith(ctx, b, rec.ID, change, begin.refs)
	}
	if err != nil {
		return Created{}, nil, nil, fmt.Errorf("create repository %q: %w", rec.Name, err)
	}
	stored, err := rec.encode()
	if err != nil {
		return Created{}, nil, nil, err
	}
	catalog.Add(b, rec.Org, rec.Name, number, rec.ID, stored)
	created = Created{Item: rec.item(), Sequence: 1}
	if actor.DryRun {
		created.Item.ID, created.Sequence = refs.RepoID{}, 0
	}
	if actor.Receipt != nil {
		result, err := json.Marshal(created)
		if err != nil {
			return Created{}, nil, nil, fmt.Errorf("encode receipt: %w", err)
		}
		h.names.PutReceipt(b, actor.Receipt, refs.StoredReceipt{Sequence: 1, Result: result})
	}
	if err := errors.Join(h.space.Check(), actor.recheck(), begin.reserve(ctx, b)); err != nil {
		return Created{}, nil, nil, err
	}
	if actor.DryRun {
		begin.hold.Release()
		return created, begin, nil, h.relied(ctx, b)
	}
	commit, err := h.names.ApplyCreation(ctx, b, rec.ID, change, updates)
	if err != nil {
		h.catalog.Undrawn(actor.Org)
		return Created{}, nil, nil, fmt.Errorf("create repository %q: %w", rec.Name, err)
	}
	h.catalog.Drawn(actor.Org, number)
	if fair.Shared(ctx) {
		// While others are served, the next creation of the organization begins when this one is durable.
		// Many at once would be awake together each time that the log is synced.
		_ = commit.Wait(ctx) // the caller waits, too, and tells the error
	}
	return created, begin, commit, nil
}

// relied waits until all that a batch requires is durable, for an answer that speaks of it.
func (h *Host) relied(ctx context.Context, b *kv.Batch) error {
	for p := range b.Preconditions() {
		if err := h.keys.WaitDurable(ctx, p.Key); err != nil {
			return fmt.Errorf("wait for what a creation relies on: %w", err)
		}
	}
	return nil
}

// taken returns [ErrExists] for a name that is not free, when that is durable.
func (h *Host) taken(ctx context.Context, org, name string) error {
	if err := h.keys.WaitDurable(ctx, catalog.NameKey(org, name)); err != nil {
		return fmt.Errorf("wait for repository %q: %w", name, err)
	}
	return &failure{kind: ErrRepositoryExists, text: fmt.Sprintf("repository %q already exists", name)}
}

// checkCount makes sure that the organization may have another repository. A number has been drawn:
// a creation in between fails that precondition, and is counted by the next try.
func (h *Host) checkCount(ctx context.Context, org string, most int) error {
	if most <= 0 {
		return nil
	}
	count, err := h.catalog.Count(ctx, org, most)
	if err != nil {
		return err
	}
	if count < most {
		return nil
	}
	if err := h.keys.WaitDurable(ctx, catalog.CounterKey(org)); err != nil {
		return fmt.Errorf("wait for creations of %s: %w", org, err)
	}
	return &failure{kind: ErrQuota, text: fmt.Sprintf(
		"organization %q may have %d repositories, and has as many (limits.repositories of its org.yaml): delete one first",
		org, most)}
}
