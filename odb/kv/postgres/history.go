package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// history is the timeline of the database, which changes when a standby takes the place of its
// primary, or a backup that of both. If the standby lagged, commits are lost.
type history struct {
	mu       sync.Mutex // guards the fields below, and is held while rewound is called
	timeline string     // empty before the first connection
	rewound  []func()
	count    atomic.Uint64 // how often it has changed
}

// OnRewind implements [kv.Rewinder].
func (s *Store) OnRewind(call func()) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	s.history.rewound = append(s.history.rewound, call)
}

// Rewinds implements [kv.Rewinder].
func (s *Store) Rewinds() uint64 { return s.history.count.Load() }

// historySQL asks for the timeline as the name of a file of the log has it. A control file has the
// new one only after a checkpoint.
const historySQL = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"

// noteHistory compares the timeline behind a new connection with the former one. A server without
// timelines is left alone.
func (s *Store) noteHistory(ctx context.Context, conn *pgx.Conn) error {
	var timeline string
	err := s.trip(conn, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, historySQL).Scan(&timeline) })
	if _, told := errors.AsType[*pgconn.PgError](err); told {
		return nil
	}
	if err != nil {
		return err
	}
	rewinds := s.enterHistory(timeline)
	if state, pooled := conn.PgConn().CustomData()[sessionKey].(*session); pooled {
		state.rewinds = rewinds
	}
	return nil
}

// enterHistory returns how often the timeline has changed up to the given one, which is that of a
// new connection.
func (s *Store) enterHistory(timeline string) uint64 {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.timeline
	h.timeline = timeline
	if before == "" || before == timeline {
		return h.count.Load()
	}
	s.logger.Warn("kv: the database goes on with another history", "timeline", timeline, "before", before)
	h.count.Add(1)
	for _, call := range h.rewound {
		call()
	}
	return h.count.Load()
}
