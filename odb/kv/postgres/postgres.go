// Package postgres is a key-value store in a database that speaks the PostgreSQL wire protocol, so
// that several servers share it.
//
// It was tested with PostgreSQL 15 only. Its SQL avoids what is said to be missing in CockroachDB
// and YugabyteDB, such as two changes of one table in one statement, but nothing was ever run
// there.
//
// Start at [Open]. apply.go holds the way of a batch, plan.go and statement.go its SQL, fence.go
// what becomes of a batch whose answer was lost, read.go and snapshot.go the readers, connect.go
// and schema.go the beginning.
//
// # Tables
//
// The pairs are the rows of kv, whose order of bytea is that of [bytes.Compare]. kv_fence has a row
// for each connection that writes, kv_schema one for the version of the tables, and one for the
// tenure: how often a process has fenced off all others. All of them lie in the first schema of the
// role's search path. docs/formats.md describes them.
//
// # Batches
//
// A batch is one serializable transaction and one round trip: a single statement if it can be,
// otherwise statements that are sent together. Its preconditions are rows that it locks in the
// order of their keys, and a key that must be absent is held by a row, its own or one that goes
// again before the commit; so they hold when the batch becomes visible. A batch that removes a key
// or a range takes no hold of absent keys: one that another batch puts there at the same time may
// stay, as if it had been put later, unless both have a precondition in common.
//
// The database shows a transaction only once it is durable, and with it the answer waits for the
// synchronous standbys. So [kv.Commit.Wait] and [Store.WaitDurable] have nothing to wait for.
//
// # Lost connections
//
// A read is repeated. A batch whose answer was lost has happened or not: each batch counts up the
// row of its connection in kv_fence, so another connection finds out, and closes that row, after
// which a batch that is still on its way does nothing. The answer of that question waits for the
// synchronous standbys too.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

const (
	connsDefault    = 24
	connsMin        = 4
	deadlineDefault = 5 * time.Second
)

// Options adjusts a store. URL is required; the zero value of the rest works.
type Options struct {
	// URL names the database, as libpq understands it: postgres://user@host1,host2/database, or
	// keywords and values. Several hosts are tried in their order; target_session_attrs=read-write
	// skips standbys.
	URL string
	// Conns is the largest number of connections; 0 means 24, and there are at least 4. Half of them
	// read. A server that does not answer may have as many again, which were given up.
	Conns int
	// Logger receives what an operator should know; nil is slog.Default().
	Logger *slog.Logger
	// SnapshotAge shortens the life of snapshots; 0 means [kv.SnapshotAgeMax], which is also the most.
	SnapshotAge time.Duration
	// Deadline is how long a call goes on trying while the database is away; 0 means 5 seconds. A
	// connection that says nothing for half of it is given up. A call that meets such a connection at
	// the end of its time, or sends a large batch, may take twice as long.
	Deadline time.Duration
	// Block, if not nil, runs each wait of a call for the database.
	Block kv.Block
	// Trip, if not nil, is called with the time of each round trip, but for the rollback that ends a
	// snapshot. Any goroutine calls it.
	Trip func(took time.Duration)
}

// Store is a kv.Store in a database. Other stores, of this process or others, may use the same
// tables at the same time.
type Store struct {
	logger      *slog.Logger
	place       string // of the database, without secrets
	deadline    time.Duration
	snapshotAge time.Duration
	block       kv.Block
	tripped     func(took time.Duration) // not nil

	reads  *pgxpool.Pool
	writes *pgxpool.Pool // whose sessions are serializable and have a fence
	// readers and writers are the connections that the pools gave up.
	readers, writers lingering

	// life is held shared by every call.
	life   sync.RWMutex
	closed atomic.Bool // set under life

	tenure    atomic.Int64 // in which it was opened, or which it began: see FenceOff
	history   history
	turns     turns
	snapshots snapshotSet
	running   sync.WaitGroup // the housekeeper
	stop      context.CancelFunc

	counters counters
}

var (
	_ kv.Store  = (*Store)(nil)
	_ kv.Fencer = (*Store)(nil)
)

// Open opens the store in the database of options.URL and makes the tables if they do not exist.
//
// Errors: [kv.ErrUnavailable] when no server answers within the deadline. A server that could lose
// commits or takes no writes, a role without the rights, and tables of another version are refused
// with a line that says how to mend it. No error and no log line has the password of the URL.
func Open(ctx context.Context, options Options) (*Store, error) {
	s := &Store{
		logger:      options.Logger,
		deadline:    cmp.Or(max(options.Deadline, 0), deadlineDefault),
		snapshotAge: options.SnapshotAge,
		block:       options.Block,
		tripped:     options.Trip,
	}
	if s.tripped == nil {
		s.tripped = func(time.Duration) {}
	}
	s.turns.seed = maphash.MakeSeed()
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.snapshotAge <= 0 || s.snapshotAge > kv.SnapshotAgeMax {
		s.snapshotAge = kv.SnapshotAgeMax
	}
	conns := max(cmp.Or(max(options.Conns, 0), connsDefault), connsMin)
	if err := s.openPools(ctx, options.URL, conns); err != nil {
		return nil, fmt.Errorf("open key-value store: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		s.closePools()
		return nil, fmt.Errorf("open key-value store in %s: %w", s.place, err)
	}
	s.snapshots.slots = make(chan struct{}, max(conns/3, 1))
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	rescue.Keep(ctx, &s.running, housekeepingEvery, s.keepHouse, func(err error) {
		s.logger.Error("kv: housekeeping has failed", "error", err)
	})
	return s, nil
}

// String names the hosts and the database, without secrets.
func (s *Store) String() string { return s.place }

// WaitDurable implements kv.Store. What is visible is durable.
func (s *Store) WaitDurable(ctx context.Context, _ []byte) error { return s.alive(ctx) }

// Close implements kv.Store.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed.Swap(true) {
		return kv.ErrClosed
	}
	s.stop()
	s.running.Wait()
	s.snapshots.endAll()
	s.closePools()
	return nil
}

func (s *Store) closePools() {
	s.reads.Close()
	s.writes.Close()
	s.readers.close()
	s.writers.close()
}

// enter begins a call, which ends with life.RUnlock.
func (s *Store) enter(ctx context.Context) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	s.life.RLock()
	if s.closed.Load() {
		s.life.RUnlock()
		return kv.ErrClosed
	}
	return nil
}

// alive returns why a call cannot begin.
func (s *Store) alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return kv.ErrClosed
	}
	return nil
}

// call is one call of a store and the time that it has.
type call struct {
	store    *Store
	ends     time.Time
	tries    int
	deciding bool // about a batch that was sent before
}

func (s *Store) begin() *call { return &call{store: s, ends: time.Now().Add(s.deadline)} }

// prolong gives the call at least that much time from now on.
func (c *call) prolong(by time.Duration) {
	if ends := time.Now().Add(by); ends.After(c.ends) {
		c.ends = ends
	}
}

// acquire takes a connection of a pool. Errors are those of [call.again].
func (c *call) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	for {
		waiting, cancel := context.WithDeadline(ctx, c.ends)
		conn, err := pool.Acquire(waiting)
		cancel()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("no connection became free: %w", err)
		}
		if err := c.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// again waits a moment before the next try after err. It returns the error of ctx, err in the words
// of package kv if another try cannot help, and [kv.ErrUnavailable] when the time of the call is
// over.
func (c *call) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !isTransient(err) {
		return translate(err)
	}
	pause := time.Duration(0)
	if c.tries > 0 {
		pause = jitter(time.Millisecond << min(c.tries, 7))
	}
	c.tries++
	if time.Now().Add(pause).After(c.ends) {
		if !c.deciding {
			c.store.counters.unavailable.Add(1)
		}
		return fmt.Errorf("%w: %s", kv.ErrUnavailable, describe(err))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		c.store.counters.retries.Add(1)
		return nil
	}
}

// run calls work with a connection of a pool until it succeeds, since work only reads or may be
// repeated. Errors are those of [call.again].
func (c *call) run(ctx context.Context, pool *pgxpool.Pool, work func(conn *pgx.Conn) error) error {
	return c.store.block.Run(ctx, func() error { return c.repeat(ctx, pool, work) })
}

func (c *call) repeat(ctx context.Context, pool *pgxpool.Pool, work func(conn *pgx.Conn) error) error {
	for {
		conn, err := c.acquire(ctx, pool)
		if err != nil {
			return err
		}
		err = c.store.trip(conn.Conn(), work)
		c.store.release(conn)
		if err == nil {
			return nil
		}
		if err := c.again(ctx, err); err != nil {
			return err
		}
	}
}

// trip calls work, which takes one round trip, and tells its time.
func (s *Store) trip(conn *pgx.Conn, work func(conn *pgx.Conn) error) error {
	begin := time.Now()
	err := work(conn)
	s.tripped(time.Since(begin))
	if isStale(err) {
		_ = conn.Close(context.Background())
	}
	if conn.IsClosed() {
		s.counters.lost.Add(1)
		if isSilence(err) {
			// Its siblings lead to the same place, which may be gone without a word.
			s.reads.Reset()
			s.writes.Reset()
		}
	}
	return err
}

// release gives a connection back, without a transaction that has failed.
func (s *Store) release(conn *pgxpool.Conn) {
	if raw := conn.Conn(); !raw.IsClosed() && raw.PgConn().TxStatus() != 'I' {
		_, _ = raw.Exec(context.Background(), "ROLLBACK") // a connection where this fails is closed
	}
	conn.Release()
}
