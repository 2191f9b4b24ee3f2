package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/outbox"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// Detached is the outcome of [Repository.Detach].
type Detached struct {
	Sequence uint64
}

// Detach makes the repository independent of its upstream, after it has cancelled a running sync
// and waited for its end. A repository without an upstream is left unchanged; that is not an error,
// and adds no entry to the journal.
//
// The next start, or another server, completes a detachment that a crash interrupted. Errors:
// upstream.ErrDetaching while another one runs; upstream.ErrNoState when the sync state is missing;
// [ErrDetachTimeout] when the sync, here or on another server, does not end, in which case nothing
// has changed; refs.ErrReceiptMismatch.
func (r *Repository) Detach(ctx context.Context, actor Actor) (Detached, error) {
	if r.record.Upstream == nil {
		return r.detach(ctx, &actor)
	}
	if err := errors.Join(r.host.space.Check(), r.recheck(ctx, &actor)); err != nil {
		return Detached{}, err
	}
	if actor.DryRun {
		return r.rehearseDetach(ctx)
	}
	own, _, err := r.host.claimant(ctx)
	if err != nil {
		return Detached{}, err
	}
	var before upstream.State
	err = upstream.Change(ctx, r.host.keys, r.record.ID, func(s *upstream.State, _ *kv.Batch) (changed bool, err error) {
		begun := *s
		if changed, err = s.BeginDetach(); err != nil {
			return false, &failure{kind: upstream.ErrDetaching, text: "the repository is being detached already"}
		}
		if changed {
			before, s.Detacher = begun, own
		}
		return changed, nil
	})
	if errors.Is(err, upstream.ErrNoState) {
		return Detached{}, &failure{kind: upstream.ErrNoState, text: "the sync state of the repository is missing"}
	}
	if err != nil {
		return Detached{}, err
	}
	done, err := r.endUpstream(ctx, &actor)
	if err != nil && before.Phase != "" {
		err = errors.Join(err, r.undoDetach(context.WithoutCancel(ctx), before))
	}
	return done, err
}

// rehearseDetach is Detach up to where it would begin: whether the sync would end in time is not
// known before.
func (r *Repository) rehearseDetach(ctx context.Context) (Detached, error) {
	state, _, err := upstream.ReadState(ctx, r.host.keys, r.record.ID)
	if err == nil {
		_, err = state.BeginDetach()
	}
	switch {
	case errors.Is(err, upstream.ErrNoState):
		return Detached{}, &failure{kind: upstream.ErrNoState, text: "the sync state of the repository is missing"}
	case errors.Is(err, upstream.ErrDetaching):
		return Detached{}, &failure{kind: upstream.ErrDetaching, text: "the repository is being detached already"}
	case err != nil:
		return Detached{}, err
	}
	sequence, err := r.Sequence(ctx)
	return Detached{Sequence: sequence}, err
}

// endUpstream waits until no sync runs, and detaches.
func (r *Repository) endUpstream(ctx context.Context, actor *Actor) (Detached, error) {
	wait, cancel := context.WithTimeout(ctx, r.host.upstreams.DetachWait)
	defer cancel()
	release, err := r.host.upstreams.worker.Hold(wait, r.record.ID)
	if err == nil {
		defer release()
		err = r.host.awaitSync(wait, r.record.ID)
	}
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return Detached{}, &failure{
			kind: ErrDetachTimeout, text: fmt.Sprintf("a sync did not end within %s", r.host.upstreams.DetachWait),
		}
	}
	if err != nil {
		return Detached{}, err
	}
	return r.detach(ctx, actor)
}

// undoDetach makes the repository synced again. Who syncs it may have changed meanwhile.
func (r *Repository) undoDetach(ctx context.Context, before upstream.State) error {
	err := upstream.Change(ctx, r.host.keys, r.record.ID, func(s *upstream.State, _ *kv.Batch) (changed bool, err error) {
		if s.Phase != upstream.Detaching {
			return false, nil
		}
		before.Syncer = s.Syncer
		*s = before
		return true, nil
	})
	r.host.upstreams.worker.WakeNow(r.record.ID)
	return err
}

// detach ends a detachment, if one has begun, in a transaction.
func (r *Repository) detach(ctx context.Context, actor *Actor) (Detached, error) {
	done, err := r.transact(ctx, actor, r.change(actor, "detach"), nil,
		func(ctx context.Context, tx *refs.Tx, _ *Repository) error {
			state, before, err := upstream.ReadState(ctx, r.host.keys, r.record.ID)
			if errors.Is(err, upstream.ErrNoState) || err == nil && state.Phase != upstream.Detaching {
				return refs.ErrUnchanged
			}
			if err != nil {
				return err
			}
			state = upstream.State{Phase: upstream.Detached, DefaultBranch: state.DefaultBranch}
			b := tx.Batch()
			upstream.Forget(b, r.record.ID)
			r.forgetAnnounced(b)
			_, err = state.Replace(b, r.record.ID, before)
			return err
		})
	if err != nil {
		return Detached{}, err
	}
	return Detached{Sequence: done.Sequence}, nil
}

// forgetAnnounced adds to b the removal of the pending outbox rows.
func (r *Repository) forgetAnnounced(b *kv.Batch) {
	outbox.DropFor(b, outbox.Upstream, r.record.ID)
}
