package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"packhorse/odb/kv"
	"packhorse/pack/invariants"
)

// durable is a commit of this package.
type durable struct{}

// Wait implements kv.Commit.
func (durable) Wait(context.Context) error { return nil }

// Apply implements kv.Store. ctx ends the waits before the batch is sent, and those before another
// try. From when it is sent until its outcome is known, only the deadline of the store counts.
func (s *Store) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if err := batch.Err(); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	if batch.Count() == 0 {
		return durable{}, nil
	}
	err := s.block.Run(ctx, func() error {
		c := s.begin()
		keys := s.turns.keysOf(batch)
		if err := c.takeTurn(ctx, keys); err != nil {
			return err
		}
		defer s.turns.give(keys)
		return c.apply(ctx, batch, planOf(batch))
	})
	switch {
	case errors.Is(err, kv.ErrConflict):
		s.counters.conflicts.Add(1)
		return nil, err
	case err != nil:
		return nil, err
	}
	s.counters.commits.Add(1)
	return durable{}, nil
}

// takeTurn waits until no other batch of this process has one of the keys. While the database is
// away, each of them has its time, so the wait counts.
func (c *call) takeTurn(ctx context.Context, keys []uint64) error {
	waiting, cancel := context.WithDeadline(ctx, c.ends)
	defer cancel()
	err := c.store.turns.take(waiting, keys)
	if err != nil && ctx.Err() == nil {
		c.store.counters.unavailable.Add(1)
		return fmt.Errorf("%w: another batch with the same key has no answer", kv.ErrUnavailable)
	}
	return err
}

// apply sends the plan of a batch until it has happened, or cannot.
func (c *call) apply(ctx context.Context, batch *kv.Batch, p *plan) error {
	for {
		conn, err := c.acquire(ctx, c.store.writes)
		if err != nil {
			return err
		}
		state := sessionOf(conn.Conn())
		if !batch.AllowsRewinds(state.rewinds) {
			conn.Release()
			return &kv.ConflictError{}
		}
		attempt := newAttempt(p, state)
		// A large batch takes its time on the way and in the database.
		state.link.setSilence(c.store.deadline/2 + time.Duration(p.size)*time.Second>>20)
		state.warned = false
		err = c.store.trip(conn.Conn(), attempt.send)
		state.link.setSilence(c.store.deadline / 2)
		if err == nil && state.warned {
			err = errWarned
		}
		outcome := attempt.outcome(err)
		c.finish(conn, attempt, outcome)
		switch outcome {
		case done:
			return nil
		case conflicted:
			return &kv.ConflictError{Key: attempt.bad}
		case unknown:
			happened, unknownErr := c.decide(state.fence[:], attempt.final)
			if happened || unknownErr != nil {
				return unknownErr
			}
		case undone:
		}
		if err := c.again(ctx, err); err != nil {
			return err
		}
	}
}

// finish gives the connection back, or closes it unless it can be used for another batch.
func (c *call) finish(conn *pgxpool.Conn, a *attempt, outcome outcome) {
	state := sessionOf(conn.Conn())
	switch {
	case outcome == done || outcome == conflicted:
		state.number = a.reached
		if invariants.Enabled {
			invariants.Check(outcome == conflicted || a.reached == a.final, "kv: a batch counted its fence to %d of %d", a.reached, a.final)
		}
	case outcome == unknown || errors.Is(a.failed, errFenced):
		_ = state.link.Close() // the driver notices, and the pool drops the connection
		_ = conn.Conn().Close(context.Background())
	}
	c.store.release(conn)
}

// outcome is what is known of an attempt.
type outcome int

const (
	done       outcome = iota
	conflicted         // a precondition does not hold
	undone             // the database changed nothing, and never will
	unknown
)

// attempt is a plan on its way over one connection.
type attempt struct {
	plan    *plan
	fence   []byte
	start   int64 // the number of the fence before
	final   int64 // and after all checks
	token   []byte
	reached int64 // what the checks have answered
	bad     []byte
	failed  error
}

func newAttempt(p *plan, state *session) *attempt {
	a := &attempt{plan: p, fence: state.fence[:], start: state.number, reached: state.number}
	a.final = a.start + int64(len(p.checks))
	if len(p.holds) > 0 {
		a.token = make([]byte, 16)
		_, _ = rand.Read(a.token) // never fails
	}
	return a
}

// outcome judges the error of send.
func (a *attempt) outcome(err error) outcome {
	a.failed = err
	switch {
	case err == nil && a.bad != nil:
		return conflicted
	case err == nil:
		return done
	case errors.Is(err, errFenced), isRefusal(err), pgconn.SafeToRetry(err):
		return undone
	default:
		return unknown
	}
}

// send does the plan in one round trip. The caller's context has no part in it.
func (a *attempt) send(conn *pgx.Conn) error {
	ctx := context.Background()
	if a.plan.isOne() {
		var only *step
		if len(a.plan.steps) > 0 {
			only = &a.plan.steps[0]
		}
		q := checkQuery(&a.plan.checks[0], only, a.fence, a.start, nil)
		return a.judge(conn.QueryRow(ctx, q.sql, q.args...))
	}
	return a.sendAll(ctx, conn)
}

// sendAll sends the statements of a plan together.
func (a *attempt) sendAll(ctx context.Context, conn *pgx.Conn) (err error) {
	var all pgx.Batch
	all.Queue(beginSQL)
	if len(a.plan.holds) > 0 {
		all.Queue(holdSQL, a.plan.holds, a.token)
	}
	for i := range a.plan.checks {
		q := checkQuery(&a.plan.checks[i], nil, a.fence, a.start+int64(i), a.token)
		all.Queue(q.sql, q.args...).QueryRow(a.judge)
	}
	for i := range a.plan.steps {
		q := stepQuery(&a.plan.steps[i], a.fence, a.final)
		all.Queue(q.sql, q.args...)
	}
	if len(a.plan.holds) > 0 {
		all.Queue(unholdSQL, a.plan.holds, a.token)
	}
	all.Queue(commitSQL)
	return conn.SendBatch(ctx, &all).Close()
}

// judge reads the answer of a check.
func (a *attempt) judge(row pgx.Row) error {
	var bad []byte
	var number *int64
	if err := row.Scan(&bad, &number); err != nil {
		return err
	}
	switch {
	case a.bad != nil: // by an earlier check
	case number != nil:
		a.reached = *number
	case bad != nil:
		a.bad = bad
	default:
		return errFenced
	}
	return nil
}
