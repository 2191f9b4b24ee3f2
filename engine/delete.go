package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/credential"
	"packhorse/engine/upstream"
	"packhorse/refs"
)

// Deleted is the outcome of a deletion.
type Deleted struct {
	ID       refs.RepoID
	Sequence uint64
	// Purge is the time until which the repository can be brought back; zero when it cannot.
	Purge time.Time `json:",omitzero"`
}

// DeleteRepository deletes a repository and returns when that is durable. Its name is free again,
// and nobody finds it; until its purge, [Host.Undelete] brings it back, without its credential and
// its upstream.
//
// Errors: [ErrNotFound], [ErrDeleted] when the name's last repository has been deleted already;
// refs.ErrDenied.
func (h *Host) DeleteRepository(ctx context.Context, actor Actor, name string) (Deleted, error) {
	return h.deleteOnce(ctx, &actor, func() (Deleted, error) { return h.deleteRepository(ctx, &actor, name, false) })
}

// deleteOnce answers a request that has come before as it was answered then.
func (h *Host) deleteOnce(ctx context.Context, actor *Actor, do func() (Deleted, error)) (Deleted, error) {
	deleted, err := do()
	if err == nil || actor.Receipt == nil ||
		!isNotFound(err) && !errors.Is(err, ErrDeleted) && !errors.Is(err, ErrPurged) {
		return deleted, err
	}
	// The request that deleted it may have been this one.
	if replayed, found, lookupErr := replay[Deleted](ctx, h, actor); found || lookupErr != nil {
		return replayed, lookupErr
	}
	return Deleted{}, err
}

func (h *Host) deleteRepository(ctx context.Context, actor *Actor, name string, purge bool) (Deleted, error) {
	if err := actor.checkRelease("the repository would be deleted"); err != nil {
		return Deleted{}, err
	}
	row, err := h.lookupName(ctx, actor.Org, name)
	if err != nil {
		return Deleted{}, err
	}
	if row.Deleted {
		if err := h.keys.WaitDurable(ctx, catalog.NameKey(actor.Org, name)); err != nil {
			return Deleted{}, fmt.Errorf("wait for repository %q: %w", name, err)
		}
		return Deleted{}, &failure{kind: ErrDeleted, text: fmt.Sprintf("repository %q has been deleted already", name)}
	}
	repo, err := h.Repository(ctx, actor.Org, name)
	if err != nil {
		return Deleted{}, err
	}
	bytes := int64(0)
	if !purge {
		if bytes, err = repo.ownBytes(ctx); err != nil {
			return Deleted{}, err
		}
	}
	change := repo.change(actor, "delete")
	deleted := Deleted{ID: repo.record.ID}
	if !purge {
		deleted.Purge = change.Time.Add(h.window(repo.record.Org, h.maintenance.KeepHistory)).UTC()
	}
	done, err := repo.transact(ctx, actor, change, nil, func(_ context.Context, tx *refs.Tx, now *Repository) error {
		deleted.Sequence = tx.After()
		b := tx.Batch()
		b.Delete(credential.Key(repo.record.ID))
		upstream.Drop(b, repo.record.ID)
		if purge {
			tx.Drop()
			catalog.Remove(b, actor.Org, name, repo.record.Number, repo.record.ID)
			h.dropContent(b, &repo.record)
		} else if err := now.park(tx, &change, bytes); err != nil {
			return err
		}
		return setReceipt(tx, deleted)
	})
	if err != nil {
		return Deleted{}, err
	}
	if done.Replayed {
		return decodeReceipt[Deleted](done.Receipt)
	}
	if actor.DryRun {
		return deleted, nil
	}
	h.upstreams.worker.Cancel(repo.record.ID)
	if purge {
		err = h.quotas.Deleted(context.WithoutCancel(ctx), actor.Org, repo.record.Pool)
	}
	return deleted, err
}

// ownBytes returns what the layers of the repository take that are not borrowed, as far as they can
// be measured: damage does not keep a repository from being deleted.
func (r *Repository) ownBytes(ctx context.Context) (bytes int64, err error) {
	counted, err := r.host.quotas.Usage(ctx, r.counted())
	if err := cmp.Or(ctx.Err(), away(err)); err != nil {
		return 0, fmt.Errorf("measure repository %s: %w", r.record.ID, err)
	}
	if err != nil {
		return 0, nil //nolint:nilerr // what it stored is only told
	}
	for _, l := range counted.Layers {
		if !l.Borrowed {
			bytes += l.Bytes
		}
	}
	return bytes, nil
}

// park adds to a transaction that the repository is deleted and may come back.
func (r *Repository) park(tx *refs.Tx, change *refs.Change, bytes int64) error {
	rec, err := decodeRecord(r.record.ID, r.stored)
	if err != nil {
		return err
	}
	rec.DefaultBranch = r.record.DefaultBranch // perhaps that of the upstream, whose state goes
	stored, err := rec.encode()
	if err != nil {
		return err
	}
	sequence := tx.Sequence() + 1
	tx.Park(func(head []byte) error {
		return catalog.Park(tx.Batch(), rec.Name, rec.Number, rec.ID, &catalog.Deletion{
			Org: rec.Org, Record: stored, Head: head, Sequence: sequence,
			Time: change.Time.UTC(), Actor: change.Actor, Bytes: bytes,
		})
	})
	return nil
}
