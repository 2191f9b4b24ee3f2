package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/engine/catalog"
	"packhorse/engine/credential"
	"packhorse/engine/outbox"
	"packhorse/engine/removal"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// Deleted is the outcome of a deletion.
type Deleted struct {
	ID       refs.RepoID
	Sequence uint64
}

// DeleteRepository deletes a repository and returns when that is durable. Its name is free again.
//
// Errors: [ErrNotFound], [ErrDeleted] when the name's last repository has been deleted already;
// refs.ErrDenied.
func (h *Host) DeleteRepository(ctx context.Context, actor Actor, name string) (Deleted, error) {
	deleted, err := h.deleteRepository(ctx, &actor, name)
	if err == nil || actor.Receipt == nil || !isNotFound(err) && !errors.Is(err, ErrDeleted) {
		return deleted, err
	}
	// The request that deleted it may have been this one.
	if replayed, found, lookupErr := replay[Deleted](ctx, h, &actor); found || lookupErr != nil {
		return replayed, lookupErr
	}
	return Deleted{}, err
}

func (h *Host) deleteRepository(ctx context.Context, actor *Actor, name string) (Deleted, error) {
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
	change := repo.change(actor, "delete")
	deleted := Deleted{ID: repo.record.ID}
	done, err := repo.transact(ctx, actor, change, nil, func(_ context.Context, tx *refs.Tx, _ *Repository) error {
		tx.Drop()
		b := tx.Batch()
		catalog.Remove(b, actor.Org, name, repo.record.Number, repo.record.ID)
		b.Delete(credential.Key(repo.record.ID))
		upstream.Drop(b, repo.record.ID)
		h.objects.DropPool(b, repo.record.Pool)
		removal.Add(b, repo.record.ID)
		deleted.Sequence = tx.Sequence() + 1
		return setReceipt(tx, deleted)
	})
	if err != nil {
		return Deleted{}, err
	}
	if done.Replayed {
		return decodeReceipt[Deleted](done.Receipt)
	}
	h.upstreams.worker.Cancel(repo.record.ID)
	if err := h.quotas.Deleted(context.WithoutCancel(ctx), actor.Org, repo.record.Pool); err != nil {
		return Deleted{}, err
	}
	return deleted, nil
}

// leftovers selects what a deletion leaves of a repository for [removal.Sweeper]: what may be many
// rows.
func leftovers(id refs.RepoID) []kv.ScanOptions {
	return slices.Concat(refs.Leftovers(id), outbox.Leftovers(id), []kv.ScanOptions{upstream.Leftovers(id)})
}
