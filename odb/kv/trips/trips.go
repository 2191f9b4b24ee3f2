// Package trips counts the round trips that requests would cost over a key-value store behind a
// network, and can make each take longer.
//
// A read of one or of many rows, a page of a walk, the begin of a snapshot, and an applied batch
// are one trip each. Waiting for durability is none: such stores show a batch when it is durable.
// Start at [Over]; [Record] tells the trips of one request.
package trips

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"packhorse/odb/kv"
)

// Store counts the trips to the store that it wraps. It is no [kv.Checkpointer].
type Store struct {
	kv.Store
	reader
}

// Over wraps a store, which stays the caller's to close. Each trip takes delay longer.
func Over(store kv.Store, delay time.Duration) *Store {
	return &Store{Store: store, reader: reader{store, delay}}
}

// Get implements [kv.Reader].
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) { return s.reader.Get(ctx, key) }

// Scan implements [kv.Reader].
func (s *Store) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return s.reader.Scan(ctx, options)
}

// Read implements [kv.Reader].
func (s *Store) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return s.reader.Read(ctx, set)
}

// Apply implements [kv.Store].
func (s *Store) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if batch.Count() > 0 {
		if err := s.trip(ctx, func() string { return "apply" + tablesOf(batch) }); err != nil {
			return nil, err
		}
	}
	return s.Store.Apply(ctx, batch)
}

// Snapshot implements [kv.Store].
func (s *Store) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	if err := s.trip(ctx, func() string { return "snapshot" }); err != nil {
		return nil, err
	}
	under, err := s.Store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshot{Snapshot: under, reader: reader{under, s.delay}}, nil
}

// snapshot counts the trips of a snapshot.
type snapshot struct {
	kv.Snapshot
	reader
}

func (s *snapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	return s.reader.Get(ctx, key)
}

func (s *snapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return s.reader.Scan(ctx, options)
}

func (s *snapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return s.reader.Read(ctx, set)
}

// reader counts the trips of a [kv.Reader].
type reader struct {
	under kv.Reader
	delay time.Duration
}

func (r reader) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := r.trip(ctx, func() string { return "get " + table(key) }); err != nil {
		return nil, err
	}
	return r.under.Get(ctx, key)
}

func (r reader) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return kv.ScanPages(options, func(options kv.ScanOptions) (kv.Page, error) {
		rows, err := r.read(ctx, "page", kv.ReadSet{Ranges: []kv.ScanOptions{options}})
		if err != nil {
			return kv.Page{}, err
		}
		return rows.Pages[0], nil
	})
}

func (r reader) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return r.read(ctx, "read", set)
}

func (r reader) read(ctx context.Context, verb string, set kv.ReadSet) (kv.Rows, error) {
	if err := r.trip(ctx, func() string {
		var text strings.Builder
		text.WriteString(verb)
		for _, key := range set.Keys {
			text.WriteString(" " + table(key))
		}
		for _, options := range set.Ranges {
			text.WriteString(" " + table(options.Start) + "..")
		}
		return text.String()
	}); err != nil {
		return kv.Rows{}, err
	}
	return r.under.Read(ctx, set)
}

// trip records a trip of ctx and waits for its delay.
func (r reader) trip(ctx context.Context, describe func() string) error {
	if log, ok := ctx.Value(logKey{}).(*Log); ok {
		log.add(describe())
	}
	if r.delay == 0 {
		return nil
	}
	timer := time.NewTimer(r.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// table names the table of a key: its first byte.
func table(key []byte) string {
	if len(key) == 0 {
		return "all"
	}
	return fmt.Sprintf("%q", key[:1])
}

// tablesOf names the tables that a batch requires and writes, in order and each run of one once.
func tablesOf(batch *kv.Batch) string {
	var text strings.Builder
	last := ""
	say := func(verb string, key []byte) {
		if now := " " + verb + " " + table(key); now != last {
			text.WriteString(now)
			last = now
		}
	}
	for p := range batch.Preconditions() {
		say("requires", p.Key)
	}
	for op := range batch.Operations() {
		say("writes", op.Key)
	}
	return text.String()
}

type logKey struct{}

// Log is the trips of a request.
type Log struct {
	mu    sync.Mutex // guards trips
	trips []string
}

// Record returns a context whose trips the log tells, in the order of their begin.
func Record(ctx context.Context) (context.Context, *Log) {
	log := new(Log)
	return context.WithValue(ctx, logKey{}, log), log
}

func (l *Log) add(trip string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips = append(l.trips, trip)
}

// Count returns the number of trips.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.trips)
}

// String tells each trip on a line of its own, with the tables of its keys.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.trips, "\n")
}
