package engine

import (
	"context"
	"errors"

	"packhorse/engine/catalog"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// Settings are what can be changed of a repository; "" leaves a setting as it is.
type Settings struct {
	Name          string
	DefaultBranch string
}

// ChangedSettings is the outcome of [Repository.ChangeSettings].
type ChangedSettings struct {
	Item     Item
	Sequence uint64
}

// ChangeSettings changes all given settings in one transaction and returns when that is durable.
//
// The old name of a repository is free at once, and tokens for it name a repository that is gone;
// writes that are under way fail like those on a deleted repository. Another default branch moves
// no ref, so ref policies do not apply; a repository without branches takes any name of one.
//
// Errors: [ErrInvalid]; [ErrExists] for a name that is taken; [ErrNotFound] for a branch that does
// not exist; refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) ChangeSettings(ctx context.Context, actor Actor, to Settings) (ChangedSettings, error) {
	cause := "default-branch"
	if to.Name != "" {
		if err := CheckRepositoryName(to.Name); err != nil {
			return ChangedSettings{}, err
		}
		if err := actor.checkRelease("the repository would be renamed"); err != nil {
			return ChangedSettings{}, err
		}
		cause = "rename"
	}
	if to.DefaultBranch != "" {
		if _, err := refs.Main.Branch(to.DefaultBranch); err != nil {
			return ChangedSettings{}, badName("default_branch", err)
		}
	}
	return changeRefs(ctx, r, &actor, cause,
		func(ctx context.Context, tx *refs.Tx, now *Repository) (ChangedSettings, error) {
			changed := ChangedSettings{Sequence: tx.After()}
			if to.DefaultBranch != "" {
				if err := now.moveDefault(ctx, tx, to.DefaultBranch); err != nil {
					return changed, err
				}
			}
			if to.Name != "" && to.Name != now.record.Name {
				if err := now.rename(ctx, tx.Batch(), to.Name); err != nil {
					return changed, err
				}
			}
			changed.Item = now.record.item()
			return changed, nil
		})
}

// ReplaySettings returns the outcome of an equal change that was made under the actor's idempotency
// key, for a repository that cannot be opened because of err: the change may have renamed it. The
// error is err if there was no such change.
func (h *Host) ReplaySettings(ctx context.Context, actor Actor, err error) (ChangedSettings, error) {
	if actor.Receipt == nil || !isNotFound(err) {
		return ChangedSettings{}, err
	}
	if replayed, found, lookupErr := replay[ChangedSettings](ctx, h, &actor); found || lookupErr != nil {
		return replayed, lookupErr
	}
	return ChangedSettings{}, err
}

// moveDefault makes a branch the default branch. Errors: [ErrNotFound], unless there is no branch.
func (r *Repository) moveDefault(ctx context.Context, tx *refs.Tx, name string) error {
	_, err := tx.Lookup(ctx, refs.Main.Full("refs/heads/"+name))
	if errors.Is(err, refs.ErrNotFound) {
		var others bool
		if others, err = hasBranches(ctx, tx); others {
			err = fail(ErrRefNotFound, "branch %q not found", name)
		}
	}
	if err != nil {
		return err
	}
	return r.putDefault(tx, name)
}

// rename gives the repository a name that is free. Errors: [ErrExists].
func (r *Repository) rename(ctx context.Context, b *kv.Batch, name string) error {
	free, err := r.host.catalog.Free(ctx, b, r.record.Org, name)
	if err == nil && !free {
		err = r.host.taken(ctx, r.record.Org, name)
	}
	if err != nil {
		return err
	}
	catalog.Rename(b, r.record.Org, r.record.Name, name, r.record.ID)
	return r.putRecord(b, func(rec *record) { rec.Name, rec.Renamed = name, true })
}

// putRecord adds the record to b as change leaves it. The batch depends on the record being stored
// as r has it.
func (r *Repository) putRecord(b *kv.Batch, change func(rec *record)) error {
	rec, err := decodeRecord(r.record.ID, r.stored)
	if err != nil {
		return err
	}
	change(&rec)
	stored, err := rec.encode()
	if err != nil {
		return err
	}
	b.Put(catalog.RecordKey(rec.ID), stored)
	r.stored = stored
	r.record.follow(&rec)
	return nil
}
