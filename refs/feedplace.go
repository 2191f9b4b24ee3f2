package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"packhorse/odb/kv"
)

// Over a store that several processes write to, none of them knows which batches of the others are
// under way. There a transaction adds its row to the feed without a place. The row gets one when it
// is visible: whoever reads a feed gives places first, one after the other, to the rows that wait.
//
// A batch that does so requires the end of the feed as of the instant at which it has found the
// rows, and moves the end on. So of two processes that give places at once one has to look again,
// each row gets one place, and none below another one that was given. What becomes of the batch of
// a slow, suspended or dead process decides nothing: its row gets its place if it appears, when it
// appears.
//
// The rows that wait sort by stamps. That of a transaction is above the one before it in the
// repository, whose row is visible whenever this one is. So the first rows of one instant are in
// the order of each repository, and none is missing.

const (
	// placeMax bounds the rows that one batch gives places to.
	placeMax = 1000
	// placeEvery is after how many transactions a writer gives places, so that few rows wait for the
	// first reader of a feed, and placeTimes the number of its batches.
	placeEvery = 512
	placeTimes = 4
)

// enqueue adds the row of a transaction to its batch, without a place, and the stamp to the head
// that the batch puts. It does nothing for a store of one process.
//
// A stamp is above that of the head before and above those that this process drew. It is the time
// in microseconds, as far as the clocks of processes agree.
func (s *Store) enqueue(batch *kv.Batch, change *Change, next *head, row *feedRow) {
	if !s.options.Shared || change.Org == "" {
		return
	}
	now := uint64(max(s.options.Now().UnixMicro(), 0))
	f := &s.feed
	f.mu.Lock()
	f.stamp = max(f.stamp+1, next.stamp+1, now)
	next.stamp = f.stamp
	f.mu.Unlock()
	batch.Put(unplacedKey(change.Org, next.stamp, row.repo), row.encode())
}

// placeSome is called after each transaction, and once in a while gives places in a feed.
func (s *Store) placeSome(ctx context.Context, org string) {
	if !s.options.Shared || org == "" || s.feed.told.Add(1)%placeEvery != 0 {
		return
	}
	for range placeTimes {
		// The transaction is done, whatever happens here. The next one, or a reader, tries again.
		if more, err := s.place(ctx, org); err != nil || !more {
			return
		}
	}
}

// placeFor gives places to the rows that a reader has to see: some of them, or all for one that
// wants the end of the feed. It reports whether more wait.
func (s *Store) placeFor(ctx context.Context, r *feedReader) (more bool, err error) {
	if !s.options.Shared {
		return false, nil
	}
	for {
		more, err = s.place(ctx, r.org)
		if err != nil || !more || !r.backwards {
			return more, err
		}
	}
}

// placeAll gives places to all rows that wait, in the feeds of all organizations. It goes on after
// the failure of a feed.
func (s *Store) placeAll(ctx context.Context) error {
	start := []byte{feedTable, feedUnplaced}
	end := kv.PrefixEnd(start)
	var failed error
	for {
		org, found, err := s.firstFeed(ctx, start, end, unplacedBytes)
		if err != nil || !found {
			return errors.Join(failed, err)
		}
		for more := true; more && err == nil; {
			more, err = s.place(ctx, org)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("place the events of %q: %w", org, err)
		}
		start = unplacedRange(org, 0).End
	}
}

// place gives places to up to placeMax of the rows of a feed that wait now, and reports whether
// more may wait. Callers at one time share the work.
func (s *Store) place(ctx context.Context, org string) (more bool, err error) {
	p, seen, leave := s.feed.placings.enter(org)
	defer leave()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-p.turn }()
	number, done := p.begin(seen)
	if done {
		return p.more, nil
	}
	if more, err = s.placeRows(ctx, org); err == nil {
		p.done, p.more = number, more
	}
	return more, err
}

// placeRows is place for one caller at a time.
func (s *Store) placeRows(ctx context.Context, org string) (more bool, err error) {
	for range triesMax {
		batch, more, err := s.placing(ctx, org)
		if err != nil || batch == nil {
			return false, err
		}
		if _, err = s.kv.Apply(ctx, batch); err == nil {
			return more, nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return false, fmt.Errorf("place events: %w", err)
		}
	}
	return true, nil // others give places all the time
}

// placing returns a batch that gives places to the rows that wait first, as of one instant; nil if
// none waits. It reports whether more do.
func (s *Store) placing(ctx context.Context, org string) (batch *kv.Batch, more bool, err error) {
	prefix, endKey := feedPrefix(org), feedEndKey(org)
	rows, err := s.kv.Read(ctx, kv.ReadSet{Keys: [][]byte{endKey}, Ranges: []kv.ScanOptions{
		unplacedRange(org, placeMax),
		{Start: prefix, End: kv.PrefixEnd(prefix), Reverse: true, Limit: 1},
		newestGeneration,
	}})
	if err != nil {
		return nil, false, fmt.Errorf("read events without a place: %w", err)
	}
	waiting, last := rows.Pages[0], rows.Pages[1]
	if len(waiting.Pairs) == 0 {
		return nil, false, nil
	}
	batch = kv.NewBatch()
	var end feedMark
	if value := rows.Values[0]; value == nil {
		batch.RequireAbsent(endKey)
	} else {
		if end, err = decodeFeedMark(value); err != nil {
			return nil, false, err
		}
		batch.Require(endKey, value)
	}
	if end.place.generation == 0 || len(last.Pairs) > 0 && bytes.Compare(last.Pairs[0].Key, feedKey(org, end.place)) > 0 {
		// The store was one of a single process before, which drew places of its own.
		newest, err := generationOf(rows.Pages[2])
		if err != nil {
			return nil, false, err
		}
		end.place = feedPlace{generation: newest + 1}
		putGeneration(batch, end.place.generation)
	}
	end.nonce = newFeedNonce()
	for _, pair := range waiting.Pairs {
		row, err := placedRow(pair.Value, end.nonce)
		if err != nil {
			return nil, false, err
		}
		end.place.number++
		batch.Put(feedKey(org, end.place), row)
		batch.Delete(pair.Key) // key by key: a range would meet the rows that writers add
	}
	batch.Put(endKey, end.encode())
	return batch, waiting.More, nil
}

// placings lets those who give places in one feed at one time share the work.
type placings struct {
	mu   sync.Mutex // guards orgs, and the fields of their elements that say so
	orgs map[string]*placingTurn
}

// placingTurn is the turn to give places in a feed.
type placingTurn struct {
	owner *placings
	turn  chan struct{} // has one while somebody has the turn
	users int           // guarded by owner.mu
	begun int           // how often somebody began; guarded by owner.mu
	done  int           // the last time that somebody succeeded; of who has the turn
	more  bool          // what that left; of who has the turn
}

// enter returns the turn of an organization, and how often somebody has begun so far. The caller
// leaves once.
func (p *placings) enter(org string) (t *placingTurn, seen int, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t = p.orgs[org]; t == nil {
		if p.orgs == nil {
			p.orgs = make(map[string]*placingTurn)
		}
		t = &placingTurn{owner: p, turn: make(chan struct{}, 1)}
		p.orgs[org] = t
	}
	t.users++
	return t, t.begun, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(p.orgs, org)
		}
	}
}

// begin is called by who has the turn. It reports whether another one has begun since, and done the
// work.
func (t *placingTurn) begin(seen int) (number int, done bool) {
	t.owner.mu.Lock()
	defer t.owner.mu.Unlock()
	if t.done > seen {
		return 0, true
	}
	t.begun++
	return t.begun, false
}
