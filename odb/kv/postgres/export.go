package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"packhorse/odb/kv"
)

var _ kv.Exporter = (*Store)(nil)

const (
	// exportSilence is how long a page of an export may take: its rows are read from the disk, and
	// nobody waits for it.
	exportSilence = time.Minute
	// unlimitedSQL lifts the limits that a server may have on transactions that are long, or wait for
	// what their client does with a page. A server does not know all of them.
	unlimitedSQL = `SELECT set_config(name, '0', false) FROM pg_settings
	WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout')`
)

// Export implements kv.Exporter: a transaction of a connection of its own, which is none of
// [Options.Conns]. The database vacuums nothing that was deleted since, until it is closed.
func (s *Store) Export(ctx context.Context) (kv.Export, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	conn, err := s.beginExport(ctx)
	if err != nil {
		return nil, err
	}
	view := &snapshot{store: s, conn: conn, lost: kv.ErrUnavailable, free: func() { closeConn(conn) }}
	s.snapshots.add(view)
	return view, nil
}

// beginExport connects and begins a transaction that sees this instant.
func (s *Store) beginExport(ctx context.Context) (*pgx.Conn, error) {
	c := s.begin()
	for {
		conn, err := s.connectExport(ctx)
		if err == nil {
			if err = s.beginInstant(ctx, conn); err == nil {
				return conn, nil
			}
			closeConn(conn)
		}
		if err := c.again(ctx, err); err != nil {
			return nil, fmt.Errorf("begin an export: %w", err)
		}
	}
}

// connectExport returns a connection beside the pools.
func (s *Store) connectExport(ctx context.Context) (*pgx.Conn, error) {
	config := s.reads.Config().ConnConfig
	s.prepareLink(config, &s.readers)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	err = s.check(ctx, conn)
	if err == nil {
		err = s.trip(conn, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, unlimitedSQL)
			return err
		})
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	sessionOf(conn).link.setSilence(exportSilence)
	return conn, nil
}

// closeConn ends a connection that is in no pool. What fails then has ended it.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
