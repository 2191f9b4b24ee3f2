package refs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/invariants"
)

// FeedKind says what an event of a feed tells.
type FeedKind uint8

// The kinds of events.
const (
	FeedRef     FeedKind = iota + 1 // a change of a ref
	FeedCreated                     // the creation of a repository; Ref is empty
	FeedDeleted                     // its deletion; Ref is empty
	FeedRevived                     // its return after that; Ref is empty
)

// FeedEvent is one event of an organization's feed.
type FeedEvent struct {
	Kind FeedKind
	Repo RepoID
	// Name is that of a deleted repository, and empty in other events.
	Name string
	// Cursor is the position behind the event.
	Cursor FeedCursor
	Entry
}

// FeedPage is a stretch of an organization's feed.
type FeedPage struct {
	Events []FeedEvent
	// Next is the position behind the page, from which to go on. It moves on over transactions of
	// deleted repositories, also when the page is empty.
	Next FeedCursor
	// More reports whether the feed continues.
	More bool
}

// feedSkipMax bounds the rows without events, those of deleted repositories, that a page goes over
// beside those with events.
const feedSkipMax = 256

// feedAheadMax bounds the rows for which one read asks, three keys for each.
const feedAheadMax = 256

// Feed returns up to limit events of an organization after a position, all of them durable, at most
// [EventsMax]. No event appears before that position later. The events of one repository are in the
// order of their journal; those of a deleted repository are left out while it is gone, but for the
// deletion.
//
// Errors: [ErrFeedGone] when events behind the position have been trimmed, or when the position is
// not one of this feed.
func (s *Store) Feed(ctx context.Context, org string, after FeedCursor, limit int) (FeedPage, error) {
	r := &feedReader{org: org, after: after, limit: min(max(limit, 1), EventsMax), page: FeedPage{Next: after}}
	if err := s.readFeed(ctx, r); err != nil {
		return FeedPage{}, err
	}
	return r.page, nil
}

// FeedEnd returns the position behind all events that the feed has now, durable.
func (s *Store) FeedEnd(ctx context.Context, org string) (FeedCursor, error) {
	r := &feedReader{org: org, backwards: true}
	if err := s.readFeed(ctx, r); err != nil {
		return FeedCursor{}, err
	}
	return r.page.Next, nil
}

// AwaitFeed returns when the feed of an organization may have an event behind a position, or with
// the error of ctx. Writes of other processes wake it if the store is [Options.Shared].
func (s *Store) AwaitFeed(ctx context.Context, org string, after FeedCursor) error {
	for {
		moved, leave := s.feed.watch.enter(org)
		found, err := s.feedGoesOn(ctx, org, after)
		if !found && err == nil {
			err = s.wait(ctx, moved, feedQuestion(org, after))
		}
		leave()
		if found || err != nil {
			return err
		}
	}
}

// feedQuestion asks whether there is a row behind a cursor, with a place or without.
func feedQuestion(org string, after FeedCursor) question {
	start := after.place
	start.number++ // numbers begin with 1
	return question{
		name: string(feedKey(org, start)),
		set: kv.ReadSet{Ranges: []kv.ScanOptions{
			unplacedRange(org, 1), {Start: feedKey(org, start), End: kv.PrefixEnd(feedPrefix(org)), Limit: 1},
		}},
		met: func(rows kv.Rows) bool { return len(rows.Pages[0].Pairs)+len(rows.Pages[1].Pairs) > 0 },
	}
}

// feedGoesOn reports whether there is a stable row behind a cursor.
func (s *Store) feedGoesOn(ctx context.Context, org string, after FeedCursor) (bool, error) {
	if !after.IsZero() && after.index != feedWhole {
		return true, nil
	}
	if s.options.Shared {
		asks := feedQuestion(org, after)
		rows, err := s.kv.Read(ctx, asks.set)
		return err == nil && asks.met(rows), err
	}
	stable, err := s.stable(ctx, org)
	if err != nil {
		return false, err
	}
	start := after.place
	start.number++ // numbers begin with 1
	if start.compare(stable) > 0 {
		return false, nil
	}
	for _, err := range s.kv.Scan(ctx, feedScan(org, start, stable, 1)) {
		return err == nil, err
	}
	return false, nil
}

// feedScan selects the rows from a place up to a stable one.
func feedScan(org string, from, stable feedPlace, limit int) kv.ScanOptions {
	return kv.ScanOptions{Start: feedKey(org, from), End: append(feedKey(org, stable), 0), Limit: limit}
}

// readFeed runs a reader over one instant of the store, and returns when what it tells is durable.
func (s *Store) readFeed(ctx context.Context, r *feedReader) error {
	more, err := s.placeFor(ctx, r)
	if err != nil {
		return err
	}
	stable, err := s.stable(ctx, r.org) // first: what is settled by now is visible in the snapshot
	if err != nil {
		return err
	}
	rows, err := s.kv.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read feed: %w", err)
	}
	r.rows, r.stable = rows, stable
	if r.backwards {
		err = r.last(ctx)
	} else if err = r.locate(ctx); err == nil {
		err = r.read(ctx)
		r.page.More = r.page.More || more
	}
	err = errors.Join(err, rows.Close())
	// Also a refusal speaks of what is durable: docs/invariants.md 1.
	for _, key := range r.keys {
		if waitErr := s.kv.WaitDurable(ctx, key); waitErr != nil {
			return errors.Join(err, waitErr)
		}
	}
	return err
}

// feedReader reads one page of a feed.
type feedReader struct {
	org       string
	after     FeedCursor
	limit     int
	backwards bool // only the end of the feed is wanted
	rows      kv.Reader
	stable    feedPlace

	ahead *prefetch // of rows, for the transactions that follow; nil before the first

	page   FeedPage
	keys   [][]byte // what the answer tells, to be made durable
	nonces map[uint32]feedNonce
	gone   map[RepoID]bool // whether a repository is gone, of those that were looked at
	lost   FeedCursor      // behind the last transaction that the journals no longer have, of those that follow
}

// Get returns a value from rows.
func (r *feedReader) Get(ctx context.Context, key []byte) ([]byte, error) {
	if r.ahead != nil {
		if value, err := r.ahead.Get(ctx, key); !errors.Is(err, errNotPrefetched) {
			return value, err
		}
	}
	return r.rows.Get(ctx, key)
}

// tell records a key whose value, or absence, the answer depends on.
func (r *feedReader) tell(key []byte) { r.keys = append(r.keys, key) }

// nonce returns the nonce of a generation, and false if there is none.
func (r *feedReader) nonce(ctx context.Context, generation uint32) (nonce feedNonce, found bool, err error) {
	if nonce, found = r.nonces[generation]; found {
		return nonce, true, nil
	}
	value, err := r.Get(ctx, feedGenerationKey(generation))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return nonce, false, nil
	case err != nil:
		return nonce, false, fmt.Errorf("read generation %d: %w", generation, err)
	case len(value) != len(nonce):
		return nonce, false, corrupt("generation of %d bytes", len(value))
	}
	if r.nonces == nil {
		r.nonces = make(map[uint32]feedNonce)
	}
	r.nonces[generation] = feedNonce(value)
	return feedNonce(value), true, nil
}

// cursor returns the position behind all events of the transaction at a place.
func (r *feedReader) cursor(ctx context.Context, at feedMark) (FeedCursor, error) {
	cursor := FeedCursor{place: at.place, index: feedWhole, nonce: at.nonce}
	if at.nonce != (feedNonce{}) {
		return cursor, nil
	}
	nonce, found, err := r.nonce(ctx, at.place.generation)
	if err == nil && !found {
		err = corrupt("generation %d of the feeds is missing", at.place.generation)
	}
	cursor.nonce = nonce
	return cursor, err
}

// locate makes sure that nothing is missing behind the cursor: it is where the feed has been
// trimmed to, or its row is there, and of the same history of the store.
func (r *feedReader) locate(ctx context.Context) error {
	if r.after.IsZero() {
		return nil
	}
	found, err := r.isThere(ctx, r.after)
	if found || err != nil {
		return err
	}
	value, err := r.rows.Get(ctx, feedFloorKey(r.org))
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return fmt.Errorf("read the floor of the feed: %w", err)
	}
	var floor FeedCursor
	if err == nil {
		at, err := decodeFeedMark(value)
		if err != nil {
			return err
		}
		if floor, err = r.cursor(ctx, at); err != nil {
			return err
		}
	}
	if r.after == floor {
		return nil
	}
	r.tell(feedFloorKey(r.org))
	return &FeedGoneError{Oldest: floor}
}

// isThere reports whether the row of a cursor is there, and of the history that the cursor is from.
func (r *feedReader) isThere(ctx context.Context, at FeedCursor) (bool, error) {
	value, err := r.rows.Get(ctx, feedKey(r.org, at.place))
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	row, err := decodeFeedRow(value)
	if err != nil {
		return false, err
	}
	nonce := row.nonce
	if nonce == (feedNonce{}) {
		var found bool
		if nonce, found, err = r.nonce(ctx, at.place.generation); err != nil || !found {
			return false, err
		}
	}
	return nonce == at.nonce, nil
}

// read fills the page.
func (r *feedReader) read(ctx context.Context) error {
	if r.after.place.compare(r.stable) > 0 { // a position that another process has told
		return nil
	}
	seen, last, most := 0, r.after.place, r.limit+feedSkipMax
	for pair, err := range r.scan(ctx, feedScan(r.org, r.after.place, r.stable, most)) {
		if err != nil {
			return fmt.Errorf("read feed: %w", err)
		}
		place, err := splitFeedKey(pair.Key)
		if err != nil {
			return err
		}
		if seen++; seen == most { // this one is left to the next page
			r.page.More = true
			break
		}
		if place == r.after.place && r.after.index == feedWhole {
			continue
		}
		if len(r.page.Events) >= r.limit {
			r.page.More = true
			break
		}
		if invariants.Enabled { // docs/invariants.md 54
			invariants.Check(place.compare(last) > 0 || seen == 1, "refs: a feed goes back to %v", place)
			invariants.Check(place.compare(r.stable) <= 0, "refs: a feed shows %v, and is stable at %v", place, r.stable)
		}
		last = place
		row, err := decodeFeedRow(pair.Value)
		if err != nil {
			return err
		}
		r.tell(feedKey(r.org, place))
		goOn, err := r.add(ctx, place, &row)
		if err != nil {
			return err
		}
		if !goOn {
			r.page.More = true
			break
		}
	}
	if !r.lost.IsZero() {
		return &FeedGoneError{Oldest: r.lost}
	}
	return nil
}

// scan walks rows of the feed, and reads together what add asks for each of them. It goes ahead by
// as many as the page has room for, at most feedAheadMax.
func (r *feedReader) scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		var group []kv.Pair
		var set kv.ReadSet
		asked := make(map[RepoID]bool) // whose heads are in set, or were in an earlier one
		events := 0
		flush := func() bool {
			ahead, err := newPrefetch(ctx, r.rows, set)
			if err != nil {
				yield(kv.Pair{}, err)
				return false
			}
			r.ahead = ahead
			for _, pair := range group {
				if !yield(pair, nil) {
					return false
				}
			}
			group, set, events = nil, kv.ReadSet{}, 0
			return true
		}
		generation := uint32(0)
		for pair, err := range r.rows.Scan(ctx, options) {
			if err != nil {
				yield(kv.Pair{}, err)
				return
			}
			group = append(group, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
			place, keyErr := splitFeedKey(pair.Key)
			row, rowErr := decodeFeedRow(pair.Value)
			if keyErr == nil && rowErr == nil { // else read tells of it
				if row.nonce == (feedNonce{}) && place.generation != generation {
					generation = place.generation
					set.Keys = append(set.Keys, feedGenerationKey(generation))
				}
				if row.kind != feedDeleted {
					if _, known := r.gone[row.repo]; !known && !asked[row.repo] {
						asked[row.repo] = true
						set.Keys = append(set.Keys, headKey(row.repo))
					}
					set.Keys = append(set.Keys, journalKey(row.repo, row.sequence, 0))
				}
				events += int(row.count)
			}
			if (events > r.limit-len(r.page.Events) || len(group) == feedAheadMax) && !flush() {
				return
			}
		}
		if len(group) > 0 {
			flush()
		}
	}
}

// add adds the events of a row to the page. It reports false when the page ends before the end of
// the row.
func (r *feedReader) add(ctx context.Context, place feedPlace, row *feedRow) (bool, error) {
	first := uint32(0)
	if place == r.after.place {
		first = r.after.index + 1
	}
	whole, err := r.cursor(ctx, feedMark{place, row.nonce})
	if err != nil {
		return false, err
	}
	if row.kind == feedDeleted {
		r.append(whole, FeedDeleted, row, Entry{
			Sequence: row.sequence, Actor: row.actor, Cause: row.cause, Time: time.UnixMilli(row.millis).UTC(),
		})
		return true, nil
	}
	entries, err := r.entries(ctx, row, first)
	switch {
	case errors.Is(err, errNoEntries):
		return r.gap(ctx, whole, row)
	case err != nil:
		return false, err
	case !r.lost.IsZero():
		return false, nil // the oldest event that can be read
	}
	for i := range entries {
		at := whole
		if index := first + uint32(i); index+1 < row.count {
			at.index = index
		}
		kind := FeedRef
		switch {
		case row.kind != feedCreated || first+uint32(i) > 0:
		case row.sequence > 1:
			kind = FeedRevived
		default:
			kind = FeedCreated
		}
		r.append(at, kind, row, entries[i])
	}
	if len(entries) == 0 {
		r.page.Next = whole
		return true, nil
	}
	return r.page.Next == whole, nil
}

func (r *feedReader) append(at FeedCursor, kind FeedKind, row *feedRow, entry Entry) {
	r.page.Events = append(r.page.Events, FeedEvent{Kind: kind, Repo: row.repo, Name: row.name, Cursor: at, Entry: entry})
	r.page.Next = at
}

// gap goes over a row that the journal of its repository no longer has: with the repository, or
// because it has been trimmed.
func (r *feedReader) gap(ctx context.Context, whole FeedCursor, row *feedRow) (bool, error) {
	switch gone, err := r.isGone(ctx, row.repo); {
	case gone:
		r.tell(headKey(row.repo)) // or a crash brings back the repository, and its events are behind the cursor
		if r.lost.IsZero() {
			r.page.Next = whole
		}
		return true, nil
	case err != nil:
		return false, err
	case r.after.IsZero() && len(r.page.Events) == 0: // nothing was seen that could be missed
		r.page.Next = whole
		return true, nil
	case len(r.page.Events) > 0:
		return false, nil
	}
	r.lost = whole
	return true, nil
}

// errNoEntries says that the journal does not have a transaction.
var errNoEntries = errors.New("refs: no entries")

// isGone reports whether a repository has been deleted. Its journal may still be there.
func (r *feedReader) isGone(ctx context.Context, repo RepoID) (bool, error) {
	gone, known := r.gone[repo]
	if known {
		return gone, nil
	}
	_, err := r.Get(ctx, headKey(repo))
	if gone = errors.Is(err, kv.ErrNotFound); err != nil && !gone {
		return false, fmt.Errorf("read head of %s: %w", repo, err)
	}
	if r.gone == nil {
		r.gone = make(map[RepoID]bool)
	}
	r.gone[repo] = gone
	return gone, nil
}

// entries returns the events of a row from an index on, as many as the page has room for. The first
// one of a creation is the creation.
func (r *feedReader) entries(ctx context.Context, row *feedRow, first uint32) ([]Entry, error) {
	if gone, err := r.isGone(ctx, row.repo); err != nil || gone {
		return nil, cmp.Or(err, errNoEntries)
	}
	begin, shared, err := firstEntry(ctx, r, row.repo, row.sequence)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, errNoEntries
	}
	if err != nil {
		return nil, err
	}
	if first >= row.count {
		return nil, nil
	}
	entries := make([]Entry, 0, 1)
	want := min(int(row.count-first), r.limit-len(r.page.Events))
	index := first // of the next ref in the journal
	if row.kind == feedCreated {
		if first == 0 {
			entries = append(entries, shared)
		} else {
			index--
		}
	}
	if index == 0 && len(entries) < want {
		entries = append(entries, begin)
		index++
	}
	if len(entries) == want {
		return entries, nil
	}
	for pair, err := range r.rows.Scan(ctx, kv.ScanOptions{
		Start: journalKey(row.repo, row.sequence, index), End: journalKey(row.repo, row.sequence+1, 0),
		Limit: want - len(entries),
	}) {
		if err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		entry, err := decodeEntry(pair, &shared)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	if len(entries) < want {
		return nil, corrupt("transaction %d of %s has fewer changes than the feed says", row.sequence, row.repo)
	}
	return entries, nil
}

// last sets the page's end to that of the feed.
func (r *feedReader) last(ctx context.Context) error {
	scan := feedScan(r.org, feedPlace{}, r.stable, 1)
	scan.Reverse = true
	for pair, err := range r.rows.Scan(ctx, scan) {
		if err != nil {
			return fmt.Errorf("read feed: %w", err)
		}
		place, err := splitFeedKey(pair.Key)
		if err != nil {
			return err
		}
		r.tell(feedKey(r.org, place))
		row, err := decodeFeedRow(pair.Value)
		if err != nil {
			return err
		}
		r.page.Next, err = r.cursor(ctx, feedMark{place, row.nonce})
		return err
	}
	return nil
}
