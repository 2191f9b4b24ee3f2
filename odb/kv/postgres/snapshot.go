package postgres

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// snapshot is a transaction of its own connection, with a timer on its life.
type snapshot struct {
	store *Store
	timer *time.Timer  // nil: it lives until it is closed, and has no slot
	used  atomic.Int64 // when it was last read, in Unix nanoseconds; reading while it is read
	lost  error        // what reads fail with when the connection is lost
	free  func()       // gives the connection back

	mu   sync.Mutex // guards the fields below, and the connection while it is read
	conn *pgx.Conn  // nil once the snapshot has ended
	gone error      // why
}

const (
	// reading is later than every time.
	reading = math.MaxInt64
	// idleLeast is how long nobody has read a snapshot that has to go for another one. Who reads one
	// goes on within a few milliseconds; who holds one longer works for a client, or waits for it.
	idleLeast = 250 * time.Millisecond
)

// snapshotSet is the open snapshots of a store.
type snapshotSet struct {
	slots chan struct{} // a value for each snapshot, so that connections for other reads are left
	mu    sync.Mutex    // guards open
	open  map[*snapshot]struct{}
}

// Snapshot implements kv.Store. A snapshot has a connection to itself; at most a third of the
// store's are given out so. Who comes then waits until one is closed, or takes the place of the one
// that nobody has read for the longest time.
func (s *Store) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	if err := s.takeSlot(ctx); err != nil {
		return nil, err
	}
	var conn *pgxpool.Conn
	err := s.block.Run(ctx, func() (err error) {
		conn, err = s.beginSnapshot(ctx)
		return err
	})
	if err != nil {
		<-s.snapshots.slots
		return nil, err
	}
	view := &snapshot{store: s, conn: conn.Conn(), lost: kv.ErrSnapshotExpired, free: func() {
		defer func() { <-s.snapshots.slots }()
		s.release(conn) // with a rollback
	}}
	view.used.Store(time.Now().UnixNano())
	view.mu.Lock() // the time may be over at once
	view.timer = rescue.After(s.snapshotAge, func() error {
		view.end(kv.ErrSnapshotExpired)
		return nil
	}, func(err error) {
		s.logger.Error("kv: failed to end an old snapshot", "error", err)
	})
	s.snapshots.add(view)
	view.mu.Unlock()
	return view, nil
}

// takeSlot waits for the place of a snapshot.
func (s *Store) takeSlot(ctx context.Context) error {
	select {
	case s.snapshots.slots <- struct{}{}:
		return nil
	default:
	}
	timeout := time.NewTimer(s.snapshotAge + s.deadline)
	defer timeout.Stop()
	look := time.NewTicker(idleLeast / 8)
	defer look.Stop()
	for {
		select {
		case s.snapshots.slots <- struct{}{}:
			return nil
		case <-look.C:
			s.snapshots.endIdle()
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C: // not all of them can have lived that long, unless the database is away
			return fmt.Errorf("%w: too many snapshots are open", kv.ErrUnavailable)
		}
	}
}

// beginSnapshot returns a connection with a transaction that sees this instant.
func (s *Store) beginSnapshot(ctx context.Context) (*pgxpool.Conn, error) {
	c := s.begin()
	for {
		conn, err := c.acquire(ctx, s.reads)
		if err != nil {
			return nil, err
		}
		if err = s.beginInstant(ctx, conn.Conn()); err == nil {
			return conn, nil
		}
		s.release(conn)
		if err := c.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// beginInstant begins a transaction that sees this instant.
func (s *Store) beginInstant(ctx context.Context, conn *pgx.Conn) error {
	return s.trip(conn, func(conn *pgx.Conn) error {
		var both pgx.Batch
		both.Queue(instantSQL)
		both.Queue(`SELECT 1`)
		return conn.SendBatch(ctx, &both).Close()
	})
}

// Get implements kv.Reader.
func (v *snapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	var value []byte
	err := v.run(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		value, err = get(ctx, conn, key)
		return err
	})
	return found(value, err)
}

// Scan implements kv.Reader.
func (v *snapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return kv.ScanPages(options, func(options kv.ScanOptions) (kv.Page, error) {
		var page kv.Page
		err := v.run(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			page, err = scan(ctx, conn, options)
			return err
		})
		return page, err
	})
}

// Read implements kv.Reader.
func (v *snapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	r, err := newReadQuery(set)
	var rows kv.Rows
	if err == nil {
		err = v.run(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			if !r.isEmpty() {
				rows, err = r.read(ctx, conn, false)
			}
			return err
		})
	}
	if err != nil {
		return kv.Rows{}, err
	}
	return r.complete(rows), nil
}

// Close implements kv.Snapshot.
func (v *snapshot) Close() error {
	v.end(kv.ErrClosed)
	return nil
}

// run calls work with the connection. A reader that gives up does not end the snapshot of the
// others, so work goes on without its cancellation. A lost connection ends the snapshot.
func (v *snapshot) run(ctx context.Context, work func(ctx context.Context, conn *pgx.Conn) error) error {
	return v.store.block.Run(ctx, func() error { return v.runAlone(ctx, work) })
}

func (v *snapshot) runAlone(ctx context.Context, work func(ctx context.Context, conn *pgx.Conn) error) error {
	if err := v.store.alive(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conn == nil {
		return v.gone
	}
	v.used.Store(reading)
	defer func() { v.used.Store(time.Now().UnixNano()) }()
	err := v.store.trip(v.conn, func(conn *pgx.Conn) error { return work(context.WithoutCancel(ctx), conn) })
	switch {
	case err == nil:
		return nil
	case isTransient(err):
		v.endLocked(v.lost)
		return fmt.Errorf("%w: its connection is lost: %s", v.lost, describe(err))
	default:
		v.endLocked(v.lost) // its transaction has failed
		return translate(err)
	}
}

// end gives the connection back; reads fail with reason from now on. Only the first call has an
// effect.
func (v *snapshot) end(reason error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endLocked(reason)
}

func (v *snapshot) endLocked(reason error) {
	if v.conn == nil {
		return
	}
	if v.timer != nil {
		v.timer.Stop()
	}
	v.conn, v.gone = nil, reason
	v.store.snapshots.remove(v)
	v.free()
}

func (t *snapshotSet) add(v *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*snapshot]struct{})
	}
	t.open[v] = struct{}{}
}

func (t *snapshotSet) remove(v *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, v)
}

func (t *snapshotSet) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.open))
}

// endIdle ends the snapshot that nobody has read for the longest time, if that is long enough.
func (t *snapshotSet) endIdle() {
	var idle *snapshot
	t.mu.Lock()
	for v := range t.open {
		if v.timer != nil && (idle == nil || v.used.Load() < idle.used.Load()) {
			idle = v
		}
	}
	t.mu.Unlock()
	if idle == nil {
		return
	}
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if time.Now().UnixNano()-idle.used.Load() >= int64(idleLeast) {
		idle.endLocked(kv.ErrSnapshotExpired)
	}
}

// endAll ends every open snapshot, waiting for the reads under way.
func (t *snapshotSet) endAll() {
	t.mu.Lock()
	var open []*snapshot
	for v := range t.open {
		open = append(open, v)
	}
	t.mu.Unlock()
	for _, v := range open {
		v.end(kv.ErrClosed)
	}
}
