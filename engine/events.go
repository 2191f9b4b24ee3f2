package engine

import (
	"context"

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
		head, err := r.Sequence(ctx)
		if err != nil {
			return page, err
		}
		if request.After > head {
			return page, invalid("after: the journal is at %d and has not reached %d", head, request.After)
		}
	}
	return page, nil
}
