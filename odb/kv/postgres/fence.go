package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"packhorse/odb/kv"
)

const (
	// housekeepingEvery is the interval of looks at fences and sizes.
	housekeepingEvery = time.Minute
	// raiseFenceSQL does nothing when the store was opened in an earlier tenure.
	raiseFenceSQL = `INSERT INTO kv_fence (id, number, closed, used) ` +
		`SELECT $1::bytea, 0, false, now() WHERE ` + tenureSQL + ` = $2::bigint`
	// tenureSQL counts how often others were fenced off.
	tenureSQL     = `coalesce((SELECT version FROM kv_schema WHERE id = 2), 0)`
	nextTenureSQL = `INSERT INTO kv_schema (id, version) VALUES (2, 1) ` +
		`ON CONFLICT (id) DO UPDATE SET version = kv_schema.version + 1 RETURNING version`
	closeFencesSQL = `UPDATE kv_fence SET closed = true, used = now() WHERE NOT closed`
	// closeFenceSQL changes the row in any case, so that its answer waits for the standbys, and with
	// it for the batch.
	closeFenceSQL = `UPDATE kv_fence SET closed = true, used = now() WHERE id = $1 RETURNING number`
	// sweepSQL forgets connections that have been away for longer than one is kept.
	sweepSQL = `DELETE FROM kv_fence WHERE used < now() - interval '3 hours'`
	sizeSQL  = `SELECT pg_total_relation_size('kv'::regclass) + pg_total_relation_size('kv_fence'::regclass)`
)

// decide finds out whether a batch whose answer was lost has happened: whether it has counted the
// fence of its connection up to number. If not, it never will.
//
// The fence is locked by the lost transaction from its first change on, so the question waits for
// its end. A row that is not there was lost with its server, and the batch with it, since the row
// was committed earlier.
func (c *call) decide(fence []byte, number int64) (bool, error) {
	c.prolong(c.store.deadline / 2)
	c.deciding = true
	defer func() { c.deciding = false }()
	found := int64(-1)
	err := c.run(context.Background(), c.store.writes, func(conn *pgx.Conn) error {
		state := sessionOf(conn)
		state.warned = false
		err := conn.QueryRow(context.Background(), closeFenceSQL, fence).Scan(&found)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err == nil && state.warned:
			return errWarned
		default:
			return err
		}
	})
	if err != nil {
		c.store.counters.undecided.Add(1)
		c.store.logger.Warn("kv: the outcome of a batch is unknown", "error", describe(err))
		return false, fmt.Errorf("%w: %s", kv.ErrUnknown, describe(err))
	}
	if found >= number {
		c.store.counters.happened.Add(1)
	} else {
		c.store.counters.vanished.Add(1)
	}
	return found >= number, nil
}

// FenceOff implements [kv.Fencer]. It begins a tenure, and closes the fences of all connections. A
// connection that is made at the same time raises its fence in the old tenure or not at all: both
// are serializable.
func (s *Store) FenceOff(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.RUnlock()
	var tenure int64
	err := s.begin().run(ctx, s.reads, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, nextTenureSQL).Scan(&tenure); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, closeFencesSQL)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("fence off those that have the database open: %w", err)
	}
	s.tenure.Store(tenure)
	s.writes.Reset() // its connections are fenced off, too
	return nil
}

// keepHouse removes old fences and measures the tables until ctx ends.
func (s *Store) keepHouse(ctx context.Context) error {
	ticker := time.NewTicker(housekeepingEvery)
	defer ticker.Stop()
	for {
		s.measure(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("kv: the database did not answer a look at its tables", "error", err)
		}
	}
}

// sweep removes the fences of connections that are gone. It reads all of them, so as a serializable
// transaction it would conflict with every batch.
func (s *Store) sweep(ctx context.Context) error {
	return s.begin().run(ctx, s.writes, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sweepSQL)
			return err
		})
	})
}

// measure asks for the size of the tables, which only PostgreSQL and its kin know.
func (s *Store) measure(ctx context.Context) {
	var size int64
	err := s.begin().run(ctx, s.reads, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sizeSQL).Scan(&size) })
	if err == nil {
		s.counters.diskBytes.Store(uint64(size))
	}
}
