package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// RefusedRace says that a push was to create its repository, and that something else has created
// one of that name since the push began. Its objects are not in that one.
//
//nolint:errname // like its siblings it is no kind of errors but words for the report of a push
const RefusedRace = RefusalError("the repository has been created meanwhile, push again")

// firstPush is a push that creates its repository, with what it says to the journal.
type firstPush struct {
	*Push
	change  refs.Change
	results []CommandResult
	// dangling is as in [PushResult].
	dangling string
}

// ReceiveFirst reads a push to a repository that does not exist, as [Repository.Receive] does.
// [Push.Finish] creates the repository as request says, in the one batch that moves its first refs
// and adds their objects. Whatever ends the push before, or refuses each of its commands, leaves no
// repository and nothing of one.
//
// request has neither a base nor an upstream. What [Host.CreateRepository] refuses is refused
// before the pack is read, and again when the repository is created: only then counts whether the
// name is free. The actor has no receipt, and the namespace of the push is the main one.
//
// Errors: those of both methods, above all [ErrExists] and [ErrQuota].
func (h *Host) ReceiveFirst(
	ctx context.Context, actor Actor, request CreateRequest, push PushRequest,
) (*Push, error) {
	rehearsal := actor
	rehearsal.DryRun = true
	if _, err := h.CreateRepository(ctx, rehearsal, request); err != nil {
		return nil, err
	}
	unborn := &Repository{host: h, creation: &request, record: record{
		ID: refs.NewRepoID(), Org: actor.Org, Name: request.Name, DefaultBranch: request.DefaultBranch,
	}}
	if request.DefaultBranch == "" {
		unborn.record.DefaultBranch, unborn.record.Chosen = "main", chosenByNobody
	}
	return unborn.Receive(ctx, actor, push)
}

// begin is [Repository.writable] of a repository that the push creates: it begins its pool.
func (r *Repository) begin(ctx context.Context, actor *Actor) (*odb.View, error) {
	view := r.host.objects.NewPool().For(r.record.Org)
	r.record.Pool = view.Pool()
	hold, err := r.host.quotas.BeginNew(ctx, r.counted())
	if err != nil {
		return nil, errors.Join(err, view.Close())
	}
	if actor.hold = hold; hold != nil {
		view.Limit(hold.Grow)
	}
	return view, nil
}

// finish creates the repository with what the push brings.
func (f *firstPush) finish(ctx context.Context) (*PushResult, error) {
	if err := f.objects.Seal(ctx); err != nil { // before the turn of creations
		return nil, fmt.Errorf("seal pushed objects: %w", err)
	}
	request := *f.repo.creation
	request.push = f
	created, err := f.repo.host.CreateRepository(ctx, f.actor, request)
	switch {
	case errors.Is(err, ErrExists):
		return f.refuseAll(RefusedRace), nil
	case errors.Is(err, refs.ErrUnchanged):
		return &PushResult{Commands: f.results}, nil
	case err != nil:
		return nil, err
	}
	return &PushResult{Commands: f.results, Sequence: created.Sequence, Dangling: f.dangling}, nil
}

// create adds the refs of the push and their objects to the batch of one try to create the
// repository, and chooses the default branch of its record. It returns the refs as the journal
// holds them.
func (f *firstPush) create(ctx context.Context, b *kv.Batch, rec *record) ([]refs.Entry, error) {
	f.change.Time = rec.Created
	updates, err := f.repo.host.names.CreateBy(ctx, b, rec.ID, f.change, func(ctx context.Context, tx *refs.Tx) error {
		results, err := f.apply(ctx, tx, f.repo)
		if f.results = results; err != nil {
			return err
		}
		now := *f.repo
		first, err := now.firstBranch(ctx, tx)
		if err != nil {
			return err
		}
		if first != "" {
			now.record.DefaultBranch, now.record.Chosen = first, chosenLater
			rec.DefaultBranch, rec.Chosen = first, chosenLater
		}
		missing, err := now.dangles(ctx, tx)
		if f.dangling = ""; missing {
			f.dangling = now.record.DefaultBranch
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return updates, f.actor.hold.Stage(ctx, b)
}

// settled tells quotas, objects and listeners that the batch is durable.
func (f *firstPush) settled(ctx context.Context) {
	f.actor.hold.SettleNew(context.WithoutCancel(ctx))
	f.objects.Settled(ctx)
	if f.change.Announced != nil {
		f.change.Announced()
	}
}
