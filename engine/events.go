package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"packhorse/engine/catalog"
	"packhorse/refs"
)

// EventsRequest selects a stretch of the journal.
type EventsRequest struct {
	// After is the last sequence that the caller has; 0 is before the first.
	After uint64
	// Limit is the number of events to return. The last transaction is complete, so that there may
	// be more.
	Limit int
}

// Events returns the changes of refs, in all namespaces, that follow a position of the journal. All
// of them are durable.
//
// Errors: [refs.ErrTrimmed] when the following entries have been trimmed from the journal;
// [ErrInvalid] for a position that it has not reached.
func (r *Repository) Events(ctx context.Context, request EventsRequest) (refs.Page, error) {
	page, err := r.host.names.Events(ctx, r.record.ID, request.After, request.Limit)
	if err != nil {
		return page, r.gone(err)
	}
	if len(page.Entries) == 0 && page.Next == request.After {
		return page, r.checkReached(ctx, request.After, "after: ")
	}
	return page, nil
}

// checkReached makes sure that the journal has reached a position, which a field names.
func (r *Repository) checkReached(ctx context.Context, after uint64, field string) error {
	head, err := r.Sequence(ctx)
	if err == nil && after > head {
		err = fail(ErrFuture, "%sthe journal is at %d and has not reached %d", field, head, after)
	}
	return err
}

// EventsBehind is [Repository.Events] for a position that may be within a transaction, with at most
// limit events.
func (r *Repository) EventsBehind(
	ctx context.Context, after refs.JournalCursor, limit int,
) (refs.JournalPage, error) {
	page, err := r.host.names.EventsBehind(ctx, r.record.ID, after, limit)
	if err != nil {
		return page, r.gone(err)
	}
	if len(page.Events) == 0 && page.Next == after {
		return page, r.checkReached(ctx, after.Sequence, "")
	}
	return page, nil
}

// OrgEvents returns up to limit events of all repositories of an organization that follow a
// position, all of them durable. Events of a repository that has been deleted are left out, but for
// the deletion; Name is in each what the repository is called now.
//
// Errors: those of [refs.Store.Feed].
func (h *Host) OrgEvents(ctx context.Context, org string, after refs.FeedCursor, limit int) (refs.FeedPage, error) {
	page, err := h.names.Feed(ctx, org, after, limit)
	if err != nil {
		return page, err
	}
	names, err := h.namesOf(ctx, page.Events)
	if err != nil {
		return refs.FeedPage{}, err
	}
	events := page.Events[:0]
	for _, event := range page.Events {
		if event.Kind != refs.FeedDeleted {
			if event.Name = names[event.Repo]; event.Name == "" {
				continue
			}
		}
		events = append(events, event)
	}
	page.Events = events
	return page, nil
}

// namesOf returns the durable names of the repositories in events, but for those that have been
// deleted.
func (h *Host) namesOf(ctx context.Context, events []refs.FeedEvent) (map[refs.RepoID]string, error) {
	names := make(map[refs.RepoID]string)
	for i := range events {
		if events[i].Kind != refs.FeedDeleted {
			names[events[i].Repo] = ""
		}
	}
	ids := slices.Collect(maps.Keys(names))
	records, err := h.catalog.Read(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		names[id] = records[id].Name
		if err := h.keys.WaitDurable(ctx, catalog.RecordKey(id)); err != nil {
			return nil, fmt.Errorf("wait for record of repository %s: %w", id, err)
		}
	}
	return names, nil
}

// OrgEventsEnd returns the position behind all events that an organization has now.
func (h *Host) OrgEventsEnd(ctx context.Context, org string) (refs.FeedCursor, error) {
	return h.names.FeedEnd(ctx, org)
}

// AwaitOrgEvents returns when an organization may have an event behind a position, or with the
// error of ctx.
func (h *Host) AwaitOrgEvents(ctx context.Context, org string, after refs.FeedCursor) error {
	return h.names.AwaitFeed(ctx, org, after)
}
