package refs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/kv"
	"packhorse/pack/invariants"
)

// The feed of an organization is the transactions of all its repositories in one order.
//
// A transaction that changes refs adds a row to the feed in its batch. The row's place is drawn
// when the batch is ready, without a precondition, so that writers of different repositories do not
// wait for each other. Rows therefore become visible in another order than that of their places. A
// reader stops below the lowest place whose batch is still under way, so that nothing appears
// behind it later; see [feed.stable]. A place whose batch was refused stays empty.
//
// In one repository the order is that of its sequence: a place is drawn after the head that the
// batch requires was read, and so after the previous transaction has drawn its own.
//
// All this is for a store of one process. Over one that others share, a row gets its place when it
// is visible: see feedplace.go.

// feedPlace is the place of a transaction in the feeds: the generation of the process that wrote
// it, and the number that it drew there. Each process begins a generation of its own with its first
// write, above all earlier ones, so no place is ever drawn twice, and after a crash none is under
// way. Over shared stores an organization has a generation.
type feedPlace struct {
	generation uint32
	number     uint64
}

func (p feedPlace) compare(other feedPlace) int {
	return cmp.Or(cmp.Compare(p.generation, other.generation), cmp.Compare(p.number, other.number))
}

const feedPlaceBytes = 4 + 8

func (p feedPlace) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(dst, p.generation), p.number)
}

// readFeedPlace decodes what append wrote; data has feedPlaceBytes.
func readFeedPlace(data []byte) feedPlace {
	return feedPlace{binary.BigEndian.Uint32(data), binary.BigEndian.Uint64(data[4:])}
}

// FeedCursor is a position in the feed of an organization, behind one of its events. The zero
// cursor is before the oldest event that is kept.
type FeedCursor struct {
	place feedPlace
	index uint32 // of the event in its transaction; feedWhole for the last one
	// nonce is that of the row, or of the generation if the row has none: a copy of the store, or one
	// that was restored, has others.
	nonce feedNonce
}

// feedNonce tells generations of one number apart that belong to different histories of a store.
type feedNonce [8]byte

// feedWhole is the index of a cursor behind all events of a transaction.
const feedWhole = math.MaxUint32

// IsZero reports whether c is before the oldest event.
func (c FeedCursor) IsZero() bool { return c == FeedCursor{} }

// feedCursorVersion is the first byte of a cursor.
const feedCursorVersion = 1

var feedCursorText = base64.RawURLEncoding.Strict()

// String returns the cursor as text that [ParseFeedCursor] reads, "" for the zero cursor.
func (c FeedCursor) String() string {
	if c.IsZero() {
		return ""
	}
	data := c.place.append([]byte{feedCursorVersion})
	data = binary.BigEndian.AppendUint32(data, c.index)
	return feedCursorText.EncodeToString(append(data, c.nonce[:]...))
}

// ParseFeedCursor returns the cursor that String wrote. Errors: [ErrInvalidFeedCursor].
func ParseFeedCursor(text string) (FeedCursor, error) {
	if text == "" {
		return FeedCursor{}, nil
	}
	data, err := feedCursorText.DecodeString(text)
	if err != nil || len(data) != 1+feedPlaceBytes+4+len(feedNonce{}) || data[0] != feedCursorVersion {
		return FeedCursor{}, fmt.Errorf("%w: %.100q", ErrInvalidFeedCursor, text)
	}
	rest := data[1+feedPlaceBytes:]
	cursor := FeedCursor{
		place: readFeedPlace(data[1:]), index: binary.BigEndian.Uint32(rest), nonce: feedNonce(rest[4:]),
	}
	if cursor.place.generation == 0 || cursor.place.number == 0 {
		return FeedCursor{}, fmt.Errorf("%w: %.100q", ErrInvalidFeedCursor, text)
	}
	return cursor, nil
}

// feed draws places, and knows which of them are under way.
type feed struct {
	watch    watchers[string] // by organization
	told     atomic.Int64     // rows that were written without a place
	placings placings

	mu    sync.Mutex // guards the fields below
	known bool       // base has been read
	// base is the newest generation of earlier processes, 0 if there is none.
	base       uint32
	generation uint32                 // of this process; 0 before its first write
	number     uint64                 // the last that was drawn
	under      map[string][]feedPlace // the places of an organization whose batch is under way, ascending
	stamp      uint64                 // the last that was drawn, see [Store.enqueue]
}

// telling is a row for the feed of an organization.
type telling struct {
	org string
	row *feedRow // nil if there is nothing to tell
}

func (t telling) isNothing() bool { return t.row == nil || t.org == "" }

// applyTold applies a batch that adds rows to the feeds of organizations, in their order. Its
// caller has read the head that the batch requires. Over shared stores the batch has the rows
// already.
func (s *Store) applyTold(ctx context.Context, batch *kv.Batch, told ...telling) (kv.Commit, error) {
	if s.options.Shared {
		commit, err := s.kv.Apply(ctx, batch)
		for _, t := range told {
			if err == nil && !t.isNothing() {
				s.feed.watch.notify(t.org)
			}
		}
		return commit, err
	}
	for _, t := range told {
		if t.isNothing() {
			continue
		}
		place, err := s.drawPlace(ctx, t.org)
		if err != nil {
			return nil, fmt.Errorf("draw a place in the feed: %w", err)
		}
		defer s.feed.settle(t.org, place)
		batch.Put(feedKey(t.org, place), t.row.encode())
	}
	return s.kv.Apply(ctx, batch)
}

// ApplyCreation applies a batch with a repository that [Store.CreateWith], [Store.CreateBy] or
// [Store.Create] has added to it for the same change, and adds the creation to the feed of the
// change's organization. refs are what the first two have returned. It is otherwise
// [kv.Store.Apply].
func (s *Store) ApplyCreation(
	ctx context.Context, batch *kv.Batch, repo RepoID, change Change, refs []Entry,
) (kv.Commit, error) {
	commit, err := s.applyTold(ctx, batch, telling{change.Org, createdRow(repo, &change, len(refs))})
	if err == nil {
		s.tellCommitted(ctx, repo, &change, refs, true)
	}
	return commit, err
}

func createdRow(repo RepoID, change *Change, refs int) *feedRow {
	return &feedRow{
		kind: feedCreated, repo: repo, sequence: 1, count: uint32(refs) + 1, millis: change.Time.UnixMilli(),
	}
}

// drawPlace returns the next place in the feeds, as under way: the caller settles it.
func (s *Store) drawPlace(ctx context.Context, org string) (feedPlace, error) {
	f := &s.feed
	f.mu.Lock()
	for f.generation == 0 {
		f.mu.Unlock()
		if err := s.beginGeneration(ctx); err != nil {
			return feedPlace{}, err
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	f.number++
	place := feedPlace{f.generation, f.number}
	if f.under == nil {
		f.under = make(map[string][]feedPlace)
	}
	f.under[org] = append(f.under[org], place)
	return place, nil
}

// beginGeneration gives the process a generation of its own. Two calls may each begin one; the
// process uses that of the first. Its row need not be durable: what is applied later is durable
// only after it.
func (s *Store) beginGeneration(ctx context.Context) error {
	base, err := s.feedBase(ctx)
	if err != nil {
		return err
	}
	for next := base + 1; ; next++ {
		batch := kv.NewBatch()
		putGeneration(batch, next)
		_, err := s.kv.Apply(ctx, batch)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("begin generation %d: %w", next, err)
		}
		s.feed.mu.Lock()
		if s.feed.generation == 0 {
			s.feed.generation = next
		}
		s.feed.mu.Unlock()
		return nil
	}
}

// putGeneration adds a generation to a batch that fails with kv.ErrConflict if it is there.
func putGeneration(batch *kv.Batch, generation uint32) {
	nonce := newFeedNonce()
	batch.RequireAbsent(feedGenerationKey(generation))
	batch.Put(feedGenerationKey(generation), nonce[:])
}

func newFeedNonce() (nonce feedNonce) {
	for nonce == (feedNonce{}) {
		_, _ = rand.Read(nonce[:]) // does not fail
	}
	return nonce
}

// feedBase returns the newest generation of earlier processes. The first call reads it, before this
// process begins its own.
func (s *Store) feedBase(ctx context.Context) (uint32, error) {
	s.feed.mu.Lock()
	base, known := s.feed.base, s.feed.known
	s.feed.mu.Unlock()
	if known {
		return base, nil
	}
	for {
		rows, err := s.kv.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{newestGeneration, anyUnplaced}})
		if err == nil {
			base, err = generationOf(rows.Pages[0])
		}
		if err != nil {
			return 0, fmt.Errorf("read the generations of the feeds: %w", err)
		}
		if len(rows.Pages[1].Pairs) == 0 {
			break
		}
		// They were written while the store was shared, and come before all that follows.
		if err := s.placeAll(ctx); err != nil {
			return 0, err
		}
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if !s.feed.known {
		s.feed.base, s.feed.known = base, true
	}
	return s.feed.base, nil
}

// newestGeneration selects the last generation that was begun.
var newestGeneration = kv.ScanOptions{
	Start: []byte{feedTable, feedGenerations}, End: []byte{feedTable, feedGenerations + 1}, Reverse: true, Limit: 1,
}

// generationOf returns what newestGeneration has found, 0 for none.
func generationOf(page kv.Page) (uint32, error) {
	if len(page.Pairs) == 0 {
		return 0, nil
	}
	key := page.Pairs[0].Key
	if len(key) != 2+4 {
		return 0, corrupt("generation key of %d bytes", len(key))
	}
	return binary.BigEndian.Uint32(key[2:]), nil
}

// settle ends a place: its batch is visible, or refused. It wakes the readers that waited for it.
func (f *feed) settle(org string, place feedPlace) {
	f.mu.Lock()
	under := f.under[org]
	at := slices.Index(under, place)
	if invariants.Enabled {
		invariants.Check(at >= 0, "refs: a place in the feed of %s is settled twice", org)
	}
	if len(under) == 1 {
		delete(f.under, org)
	} else {
		f.under[org] = slices.Delete(under, at, at+1)
	}
	f.mu.Unlock()
	if at == 0 {
		f.watch.notify(org)
	}
}

// stable returns a place up to which the feed of an organization is complete: all rows at or below
// it that will ever exist are visible now, durable or not.
func (s *Store) stable(ctx context.Context, org string) (feedPlace, error) {
	if s.options.Shared { // who has a place is visible
		return feedPlace{math.MaxUint32, math.MaxUint64}, nil
	}
	base, err := s.feedBase(ctx)
	if err != nil {
		return feedPlace{}, err
	}
	f := &s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch under := f.under[org]; {
	case len(under) > 0:
		first := under[0]
		first.number-- // numbers begin with 1
		return first, nil
	case f.generation == 0:
		return feedPlace{base, math.MaxUint64}, nil
	default:
		return feedPlace{f.generation, f.number}, nil
	}
}
