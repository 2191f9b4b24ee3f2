package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"packhorse/engine/catalog"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
)

// Page is a page of a listing: the items, and the cursor of the next page when there is more.
type Page[T any] struct {
	Items []T
	// Next is the cursor after the last item, "" when the listing is at its end.
	Next string
}

// ListOptions select from the organization's repositories.
type ListOptions struct {
	// Query is a part of the name, in any case; "" selects all.
	Query  string
	Cursor string
	Limit  int
}

// matcher returns a function that says whether a name is selected.
func (o *ListOptions) matcher() func(name string) bool {
	query := strings.ToLower(o.Query)
	return func(name string) bool { return query == "" || strings.Contains(strings.ToLower(name), query) }
}

// cursorRepositories keeps the cursors of this listing from being used in another.
const cursorRepositories = 'r'

// Repositories lists an organization's repositories in the order of their creation. Errors:
// [ErrInvalid] for a cursor that is not one of this listing.
func (h *Host) Repositories(ctx context.Context, org string, options ListOptions) (Page[Item], error) {
	var after uint64
	if options.Cursor != "" {
		position, err := cursors{}.decode(cursorRepositories, options.Cursor, 8)
		if err != nil {
			return Page[Item]{}, err
		}
		after = binary.BigEndian.Uint64(position)
	}
	matches := options.matcher()
	pace := catalog.Pace{First: options.Limit + 1}
	if options.Query != "" {
		pace = catalog.Pace{First: max(pace.First, searchedMin), Ahead: true}
	}
	var page Page[Item]
	var found []record
	for rec, err := range h.catalog.All(ctx, org, after, pace) {
		if err != nil {
			return Page[Item]{}, err
		}
		if !matches(rec.Name) {
			continue
		}
		if len(found) == options.Limit {
			last := found[len(found)-1].Number
			page.Next = cursors{}.encode(cursorRepositories, binary.BigEndian.AppendUint64(nil, last))
			break
		}
		found = append(found, rec)
	}
	if err := h.withUpstreams(ctx, found); err != nil {
		return Page[Item]{}, err
	}
	for i := range found {
		rec := &found[i]
		if rec.Chosen == chosenLater || rec.Renamed {
			if err := h.keys.WaitDurable(ctx, catalog.RecordKey(rec.ID)); err != nil {
				return Page[Item]{}, fmt.Errorf("wait for record of repository %s: %w", rec.ID, err)
			}
		}
		page.Items = append(page.Items, rec.item())
	}
	// A listing that shows a creation makes it durable first: docs/invariants.md 1.
	if err := h.keys.WaitDurable(ctx, catalog.CounterKey(org)); err != nil {
		return Page[Item]{}, fmt.Errorf("wait for creations of %s: %w", org, err)
	}
	return page, nil
}

// searchedMin is how many repositories a search reads at first.
const searchedMin = 20

// withUpstreams is withUpstream for many records, a read for as many as it allows.
func (h *Host) withUpstreams(ctx context.Context, all []record) error {
	attached := make([]*record, 0, len(all))
	for i := range all {
		if all[i].Upstream != nil {
			attached = append(attached, &all[i])
		}
	}
	for some := range slices.Chunk(attached, kv.ReadCountMax) {
		var set kv.ReadSet
		for _, rec := range some {
			set.Keys = append(set.Keys, upstream.StateKey(rec.ID))
		}
		rows, err := h.keys.Read(ctx, set)
		if err != nil {
			return fmt.Errorf("read sync states: %w", err)
		}
		for i, rec := range some {
			if rows.Values[i] == nil {
				continue
			}
			state, err := upstream.DecodeState(rec.ID, rows.Values[i])
			if err != nil {
				return err
			}
			rec.see(&state)
		}
	}
	return nil
}
