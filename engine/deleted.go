package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/catalog"
	"packhorse/refs"
)

// deletion is a deleted repository with its record.
type deletion struct {
	catalog.Deleted
	record record
}

func decodeDeletion(found *catalog.Deleted) (*deletion, error) {
	rec, err := decodeRecord(found.ID, found.Record)
	return &deletion{*found, rec}, err
}

// findDeleted returns a deleted repository that was called name, of an id or the last one of that
// name, and what the name means now. Errors: [ErrExists], [ErrNotFound], [ErrPurged].
func (h *Host) findDeleted(
	ctx context.Context, org, name string, id refs.RepoID,
) (*deletion, catalog.Name, error) {
	row, err := h.catalog.Lookup(ctx, org, name)
	if err != nil && (!errors.Is(err, refs.ErrRepositoryNotFound) || id.IsZero()) {
		if isAbsent := errors.Is(err, refs.ErrRepositoryNotFound); isAbsent {
			err = fail(ErrRepositoryNotFound, "no repository was called %q", name)
		}
		return nil, row, err
	}
	told := catalog.NameKey(org, name)
	refuse := func(err error) (*deletion, catalog.Name, error) {
		return nil, row, cmp.Or(h.keys.WaitDurable(ctx, told), err)
	}
	switch {
	case id.IsZero() && !row.Deleted:
		return refuse(&failure{kind: ErrRepositoryExists, text: fmt.Sprintf(
			"repository %q exists; the ID says which deleted one of that name is meant", name)})
	case id.IsZero():
		id = row.ID
	}
	d, stored, err := h.catalog.Deletion(ctx, id)
	if err != nil && !errors.Is(err, refs.ErrRepositoryNotFound) {
		return nil, row, err
	}
	told = catalog.DeletedKey(id)
	if err == nil {
		found, err := decodeDeletion(&catalog.Deleted{ID: id, Deletion: d, Stored: stored})
		if err == nil && (d.Org != org || found.record.Name != name) {
			return refuse(fail(ErrRepositoryNotFound, "no deleted repository %s was called %q", id, name))
		}
		return found, row, err
	}
	rec, _, err := h.readRecord(ctx, id)
	switch {
	case err == nil && rec.Org == org && rec.Name == name:
		return refuse(&failure{kind: ErrRepositoryExists, text: fmt.Sprintf("repository %q exists and is not deleted", name)})
	case err != nil && !isNotFound(err):
		return nil, row, err
	case err != nil && row == catalog.Name{ID: id, Deleted: true}:
		return refuse(&failure{kind: ErrPurged, text: fmt.Sprintf("repository %q was deleted, and purged since", name)})
	}
	return refuse(fail(ErrRepositoryNotFound, "no deleted repository %s was called %q", id, name))
}

// DeletedItem is a deleted repository in a listing.
type DeletedItem struct {
	Item
	// Deleted is when it was deleted, by Actor, and Purge when it goes for good.
	Deleted, Purge time.Time
	Actor          string
	// Bytes is what it stores; what its forks share with it is part of that.
	Bytes int64
}

// cursorDeleted keeps the cursors of this listing from being used in another.
const cursorDeleted = 'd'

// DeletedRepositories lists the repositories of an organization that can be brought back, in the
// order of their deletion. Errors: [ErrInvalid] for a cursor that is not one of this listing.
func (h *Host) DeletedRepositories(ctx context.Context, org string, options ListOptions) (Page[DeletedItem], error) {
	after, err := decodeDeletedCursor(options.Cursor)
	if err != nil {
		return Page[DeletedItem]{}, err
	}
	var page Page[DeletedItem]
	var last catalog.DeletedPosition
	matches := options.matcher()
	for found, err := range h.catalog.AllDeleted(ctx, org, after, max(options.Limit+1, searchedMin)) {
		if err != nil {
			return Page[DeletedItem]{}, err
		}
		gone, err := decodeDeletion(&found)
		if err != nil {
			return Page[DeletedItem]{}, err
		}
		if !matches(gone.record.Name) {
			continue
		}
		if len(page.Items) == options.Limit {
			page.Next = encodeDeletedCursor(last)
			break
		}
		if err := h.keys.WaitDurable(ctx, catalog.DeletedKey(gone.ID)); err != nil {
			return Page[DeletedItem]{}, fmt.Errorf("wait for deletion of repository %s: %w", gone.ID, err)
		}
		last = found.Position()
		page.Items = append(page.Items, h.deletedItem(gone))
	}
	return page, nil
}

// deletedItem is a deleted repository as listings show it.
func (h *Host) deletedItem(gone *deletion) DeletedItem {
	return DeletedItem{
		Item: gone.record.item(), Deleted: gone.Time, Bytes: gone.Bytes,
		Purge: gone.Time.Add(h.window(gone.Org, h.maintenance.KeepHistory)), Actor: gone.Actor,
	}
}

func encodeDeletedCursor(at catalog.DeletedPosition) string {
	return cursors{}.encode(cursorDeleted, at.Append(nil))
}

func decodeDeletedCursor(text string) (at catalog.DeletedPosition, err error) {
	if text == "" {
		return at, nil
	}
	data, err := cursors{}.decode(cursorDeleted, text, catalog.DeletedPositionBytes)
	if err != nil {
		return at, err
	}
	return catalog.ReadDeletedPosition(data), nil
}

// deletedBytes is what the deleted repositories of an organization have stored.
func (h *Host) deletedBytes(ctx context.Context, org string) (bytes int64, err error) {
	for found, err := range h.catalog.AllDeleted(ctx, org, catalog.DeletedPosition{}, 0) {
		if err != nil {
			return 0, err
		}
		bytes += found.Bytes
	}
	return bytes, nil
}
