package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"strings"

	"packhorse/odb/kv"
	"packhorse/refs"
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

// cursorRepositories keeps the cursors of this listing from being used in another.
const cursorRepositories = 'r'

// Repositories lists an organization's repositories in the order of their creation. Errors:
// [ErrInvalid] for a cursor that is not one of this listing.
func (h *Host) Repositories(ctx context.Context, org string, options ListOptions) (Page[Item], error) {
	start := numberKey(org, 0)
	if options.Cursor != "" {
		after, err := decodeCursor(cursorRepositories, options.Cursor, 8)
		if err != nil {
			return Page[Item]{}, err
		}
		start = append(numberKey(org, binary.BigEndian.Uint64(after)), 0)
	}
	query := strings.ToLower(options.Query)
	var page Page[Item]
	var last record
	for rec, err := range h.records(ctx, org, start) {
		if err != nil {
			return Page[Item]{}, err
		}
		if query != "" && !strings.Contains(strings.ToLower(rec.Name), query) {
			continue
		}
		if len(page.Items) == options.Limit {
			page.Next = encodeCursor(cursorRepositories, binary.BigEndian.AppendUint64(nil, last.Number))
			break
		}
		if _, err := h.withUpstream(ctx, h.keys, &rec); err != nil {
			return Page[Item]{}, err
		}
		if rec.Chosen == chosenLater || rec.Renamed {
			if err := h.keys.WaitDurable(ctx, recordKey(rec.ID)); err != nil {
				return Page[Item]{}, fmt.Errorf("wait for record of repository %s: %w", rec.ID, err)
			}
		}
		page.Items = append(page.Items, rec.item())
		last = rec
	}
	// A listing that shows a creation makes it durable first: docs/invariants.md 1.
	if err := h.keys.WaitDurable(ctx, counterKey(org)); err != nil {
		return Page[Item]{}, fmt.Errorf("wait for creations of %s: %w", org, err)
	}
	return page, nil
}

// records walks the repositories of an organization in the order of their creation, from the key of
// a number on.
func (h *Host) records(ctx context.Context, org string, start []byte) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		scan := kv.ScanOptions{Start: start, End: kv.PrefixEnd(orgKey(tableNumber, org))}
		for pair, err := range h.keys.Scan(ctx, scan) {
			if err != nil {
				err = fmt.Errorf("list repositories of %s: %w", org, err)
			} else if len(pair.Value) != len(refs.RepoID{}) {
				err = fmt.Errorf("%w: number row of %d bytes", ErrCorrupt, len(pair.Value))
			}
			var rec record
			if err == nil {
				rec, _, err = readRecord(ctx, h.keys, refs.RepoID(pair.Value))
			}
			if isNotFound(err) {
				continue // deleted since the scan began
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}
