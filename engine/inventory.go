package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/outbox"
	"packhorse/engine/webhook"
)

// Listed is a repository as the operator of the store sees it in a listing.
type Listed struct {
	Org string
	Item
	// StoredBytes is what the repository's own layers take, as far as damage lets them be measured.
	StoredBytes int64
	// Written is the time of the last write, or else of the creation.
	Written time.Time
	// Sync is nil without an upstream.
	Sync  *SyncState
	Hooks webhook.Backlog
	// Damage is why the rest could not be read, or nil.
	Damage error
}

// Inventory walks the repositories of one organization, or of all for "", whose names contain
// query: organization by organization, and in the order of their creation. It holds a page of
// records at a time. Those that are deleted meanwhile are left out. Unlike [Host.Repositories] it
// takes some reads for each repository, and rests while there are requests.
//
// An error ends the walk. Damage to one repository is in its [Listed], unless it is to its record.
func (h *Host) Inventory(ctx context.Context, org, query string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		matches, pace := (&ListOptions{Query: query}).matcher(), h.objects.NewPacer(1)
		backlogs, err := h.hooks.Backlogs(ctx)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		for rec, err := range h.everyRecord(ctx, org) {
			if err == nil && !matches(rec.Name) {
				continue
			}
			var listed Listed
			if err == nil {
				listed, err = h.listed(ctx, &rec, backlogs)
			}
			if isNotFound(err) {
				continue // deleted since the walk began
			}
			if err == nil {
				err = pace.Rest(ctx)
			}
			if !yield(listed, err) || err != nil {
				return
			}
		}
	}
}

// everyRecord walks the records of an organization, or of all for "".
func (h *Host) everyRecord(ctx context.Context, org string) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for org, err := range one(org, h.catalog.Orgs(ctx)) {
			if err != nil {
				yield(record{}, err)
				return
			}
			for rec, err := range h.catalog.All(ctx, org, 0, catalog.Pace{Ahead: true}) {
				if !yield(rec, err) || err != nil {
					return
				}
			}
		}
	}
}

// one is the walk over one organization, or all for "".
func one(org string, all iter.Seq2[string, error]) iter.Seq2[string, error] {
	if org == "" {
		return all
	}
	return func(yield func(string, error) bool) { yield(org, nil) }
}

// listed returns what an inventory tells of a repository, once it is durable. Errors:
// [ErrNotFound].
func (h *Host) listed(ctx context.Context, rec *record, backlogs *webhook.Backlogs) (Listed, error) {
	listed := Listed{Org: rec.Org, Written: rec.Created}
	if err := h.keys.WaitDurable(ctx, catalog.RecordKey(rec.ID)); err != nil {
		return listed, fmt.Errorf("wait for record of repository %s: %w", rec.ID, err)
	}
	err := func() error {
		repo, err := h.opened(ctx, rec, nil)
		if err != nil {
			return err
		}
		if state, attached := repo.Sync(); attached {
			listed.Sync = &state
		}
		state, err := h.names.State(ctx, rec.ID)
		if err != nil {
			return repo.gone(err)
		}
		if !state.Changed.IsZero() {
			listed.Written = state.Changed
		}
		if listed.StoredBytes, err = repo.ownBytes(ctx); err != nil {
			return err
		}
		listed.Hooks, err = h.backlog(ctx, backlogs, rec)
		return err
	}()
	listed.Item = rec.item() // as the state of its upstream has it
	if isDamage(err) {
		listed.Damage, err = err, nil
	}
	return listed, err
}

// backlog returns what waits to be sent of a repository, what its hooks have not heard of yet
// included.
func (h *Host) backlog(ctx context.Context, backlogs *webhook.Backlogs, rec *record) (webhook.Backlog, error) {
	if !backlogs.Has(rec.Org) {
		return webhook.Backlog{}, nil
	}
	told, err := backlogs.Of(ctx, rec.Org, rec.ID)
	if err != nil {
		return told, fmt.Errorf("read what waits of repository %s: %w", rec.ID, err)
	}
	stretch, found, err := h.outbox.Span(ctx, outbox.Webhook, rec.ID, 0)
	if found {
		told.Behind += stretch.Last + 1 - stretch.First
	}
	return told, err
}

// Backlog returns what the organization's webhooks have not been sent of the repository.
func (r *Repository) Backlog(ctx context.Context) (webhook.Backlog, error) {
	backlogs, err := r.host.hooks.Backlogs(ctx)
	if err != nil {
		return webhook.Backlog{}, err
	}
	return r.host.backlog(ctx, backlogs, &r.record)
}

// ListedDeleted is a deleted repository as the operator of the store sees it in a listing.
type ListedDeleted struct {
	Org string
	DeletedItem
}

// DeletedInventory walks the deleted repositories that can be brought back, of one organization or
// of all for "", whose names contain query: organization by organization, and in the order of their
// deletion. It holds a page of them at a time.
func (h *Host) DeletedInventory(ctx context.Context, org, query string) iter.Seq2[ListedDeleted, error] {
	return func(yield func(ListedDeleted, error) bool) {
		matches, pace := (&ListOptions{Query: query}).matcher(), h.objects.NewPacer(1)
		for org, err := range one(org, h.catalog.DeletingOrgs(ctx)) {
			if err != nil {
				yield(ListedDeleted{}, err)
				return
			}
			for found, err := range h.catalog.AllDeleted(ctx, org, catalog.DeletedPosition{}, 0) {
				var gone *deletion
				if err == nil {
					gone, err = decodeDeletion(&found)
				}
				if err == nil && !matches(gone.record.Name) {
					continue
				}
				var listed ListedDeleted
				if err == nil {
					listed = ListedDeleted{Org: org, DeletedItem: h.deletedItem(gone)}
					err = errors.Join(h.keys.WaitDurable(ctx, catalog.DeletedKey(found.ID)), pace.Rest(ctx))
				}
				if !yield(listed, err) || err != nil {
					return
				}
			}
		}
	}
}
