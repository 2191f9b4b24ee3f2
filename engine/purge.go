package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/outbox"
	"packhorse/engine/removal"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// PurgeRepository deletes a repository for good, of an id, or for the zero id the one that a name
// has now, or had last: nothing brings it back. Its objects and rows are removed as soon as nobody
// reads them.
//
// Errors: [ErrNotFound], [ErrPurged]; refs.ErrDenied.
func (h *Host) PurgeRepository(ctx context.Context, actor Actor, name string, id refs.RepoID) (Deleted, error) {
	return h.deleteOnce(ctx, &actor, func() (Deleted, error) {
		row, err := h.catalog.Lookup(ctx, actor.Org, name)
		if err == nil && !row.Deleted && (id.IsZero() || id == row.ID) {
			return h.deleteRepository(ctx, &actor, name, true)
		}
		if err := actor.checkRelease("the repository would be deleted"); err != nil {
			return Deleted{}, err
		}
		gone, _, err := h.findDeleted(ctx, actor.Org, name, id)
		if err != nil {
			return Deleted{}, err
		}
		if err := actor.recheck(); err != nil {
			return Deleted{}, err
		}
		deleted := Deleted{ID: gone.ID, Sequence: gone.Sequence}
		var receipt []byte
		if actor.Receipt != nil {
			if receipt, err = json.Marshal(deleted); err != nil {
				return Deleted{}, fmt.Errorf("encode receipt: %w", err)
			}
		}
		err = h.purge(ctx, gone, func(b *kv.Batch) {
			if actor.Receipt != nil {
				h.names.PutReceipt(b, actor.Receipt, refs.StoredReceipt{Sequence: gone.Sequence, Result: receipt})
			}
		})
		if errors.Is(err, kv.ErrConflict) { // purged, or brought back
			_, _, err = h.findDeleted(ctx, actor.Org, name, gone.ID)
			err = cmp.Or(err, fmt.Errorf("purge repository %q: %w", name, refs.ErrBusy))
		}
		return deleted, err
	})
}

// purge removes a deleted repository for good, and returns when that is durable. Errors:
// kv.ErrConflict when it has been purged or brought back since it was read.
func (h *Host) purge(ctx context.Context, gone *deletion, and func(b *kv.Batch)) error {
	b := kv.NewBatch()
	catalog.Forget(b, gone.ID, &gone.Deletion, gone.Stored)
	h.dropContent(b, &gone.record)
	and(b)
	commit, err := h.keys.Apply(ctx, b)
	if err == nil {
		err = commit.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("purge repository %s: %w", gone.ID, err)
	}
	return h.quotas.Deleted(context.WithoutCancel(ctx), gone.Org, gone.record.Pool)
}

// window is the time for which the history of an organization can be read, and what it deletes can
// be brought back; server is that of organizations without one of their own.
func (h *Host) window(org string, server time.Duration) time.Duration {
	if own, ok := h.keepHistory(org); ok {
		return own
	}
	return server
}

// purgeDue purges the repositories whose deletion is longer ago than the history of their
// organization is kept, or than window for those without one of their own.
func (h *Host) purgeDue(ctx context.Context, window time.Duration) error {
	now := h.now()
	var failed error // of the first; the others are purged nevertheless
	for org, err := range h.catalog.DeletingOrgs(ctx) {
		if err != nil {
			return errors.Join(failed, err)
		}
		due := now.Add(-h.window(org, window))
		for found, err := range h.catalog.AllDeleted(ctx, org, catalog.DeletedPosition{}, 0) {
			if err != nil {
				failed = cmp.Or(failed, err)
				break
			}
			if found.Time.After(due) {
				break
			}
			gone, err := decodeDeletion(&found)
			if err == nil {
				err = h.purge(ctx, gone, func(*kv.Batch) {})
			}
			if errors.Is(err, kv.ErrConflict) { // purged, or brought back
				err = nil
			}
			if err != nil {
				failed = cmp.Or(failed, err)
			}
			if ctx.Err() != nil {
				return failed
			}
		}
	}
	return failed
}

// dropContent adds to b, which makes a repository gone for good, that its objects and the rest of
// its rows are removed.
func (h *Host) dropContent(b *kv.Batch, rec *record) {
	h.objects.DropPool(b, rec.Pool)
	removal.Add(b, rec.ID)
}

// leftovers selects what a deletion leaves of a repository for [removal.Sweeper]: what may be many
// rows.
func leftovers(id refs.RepoID) []kv.ScanOptions {
	return slices.Concat(refs.Leftovers(id), outbox.Leftovers(id), []kv.ScanOptions{upstream.Leftovers(id)})
}
