package refs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
)

// TrimFeeds removes the transactions that are older than before from the feeds of all
// organizations, each from its oldest on, as [Store.TrimJournal] does with a journal.
func (s *Store) TrimFeeds(ctx context.Context, before time.Time) error {
	var failed error // of the first feed; the others are trimmed nevertheless
	if s.options.Shared {
		failed = s.placeAll(ctx)
	}
	start := []byte{feedTable, feedRows}
	end := kv.PrefixEnd(start)
	for {
		org, found, err := s.firstFeed(ctx, start, end, feedPlaceBytes)
		if err != nil || !found {
			return errors.Join(failed, err)
		}
		if err := s.trimFeed(ctx, org, before); err != nil && failed == nil {
			failed = fmt.Errorf("trim the feed of %q: %w", org, err)
		}
		start = kv.PrefixEnd(feedPrefix(org))
	}
}

// firstFeed returns the organization of the first row of a range, in whose keys so many bytes
// follow it.
func (s *Store) firstFeed(ctx context.Context, start, end []byte, size int) (org string, found bool, err error) {
	for pair, err := range s.kv.Scan(ctx, kv.ScanOptions{Start: start, End: end, Limit: 1}) {
		if err != nil {
			return "", false, fmt.Errorf("scan feeds: %w", err)
		}
		org, _, err := splitOrg(pair.Key, size)
		return org, err == nil, err
	}
	return "", false, nil
}

func (s *Store) trimFeed(ctx context.Context, org string, before time.Time) error {
	stable, err := s.stable(ctx, org)
	if err != nil {
		return err
	}
	batch := kv.NewBatch()
	floor, err := s.kv.Get(ctx, feedFloorKey(org))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		batch.RequireAbsent(feedFloorKey(org))
	case err != nil:
		return err
	default:
		batch.Require(feedFloorKey(org), floor)
	}
	var last []byte // key of the last row to remove
	var nonce feedNonce
	for pair, err := range s.kv.Scan(ctx, feedScan(org, feedPlace{}, stable, 0)) {
		if err != nil {
			return err
		}
		row, err := decodeFeedRow(pair.Value)
		if err != nil {
			return err
		}
		if !time.UnixMilli(row.millis).Before(before) {
			break
		}
		last, nonce = append(last[:0], pair.Key...), row.nonce
	}
	if last == nil {
		return nil
	}
	prefix := feedPrefix(org)
	batch.Put(feedFloorKey(org), feedMark{readFeedPlace(last[len(prefix):]), nonce}.encode())
	batch.DeleteRange(prefix, append(last, 0))
	_, err = s.kv.Apply(ctx, batch)
	if errors.Is(err, kv.ErrConflict) {
		return nil // another process trims
	}
	return err
}
