package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"packhorse/odb/kv"
)

// schemaVersion is the version of the tables that this package reads and writes.
const schemaVersion = 1

// tablesSQL makes what does not exist yet.
var tablesSQL = []string{
	`CREATE TABLE IF NOT EXISTS kv (k bytea NOT NULL PRIMARY KEY, v bytea NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS kv_fence (id bytea NOT NULL PRIMARY KEY, number bigint NOT NULL, ` +
		`closed boolean NOT NULL, used timestamptz NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS kv_schema (id bigint NOT NULL PRIMARY KEY, version bigint NOT NULL)`,
}

// storageSQL adjusts the tables in PostgreSQL. Values are compressed already. Rows that change
// often do so in place where their page has room. The rows of the hot tier die within minutes, so
// vacuum comes early.
var storageSQL = []string{
	`ALTER TABLE kv ALTER COLUMN v SET STORAGE EXTERNAL`,
	`ALTER TABLE kv SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)`,
	`ALTER TABLE kv_fence SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`,
}

const (
	versionSQL = `SELECT version, ` + tenureSQL + ` FROM kv_schema WHERE id = 1`
	markSQL    = `INSERT INTO kv_schema (id, version) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`
)

// probesSQL does what the store will do, in a transaction that is undone. The empty key belongs to
// nobody.
var probesSQL = []string{
	`INSERT INTO kv (k, v) VALUES ('', '') ON CONFLICT (k) DO UPDATE SET v = excluded.v`,
	`SELECT v FROM kv WHERE k = '' FOR UPDATE`,
	`DELETE FROM kv WHERE k = ''`,
	`INSERT INTO kv_fence (id, number, closed, used) VALUES ('', 0, false, now()) ON CONFLICT (id) DO UPDATE SET number = 1`,
	`SELECT number FROM kv_fence WHERE id = '' FOR UPDATE`,
	`DELETE FROM kv_fence WHERE id = ''`,
}

// prepare checks the server, makes the tables and checks them.
//
// Two servers that do so at once meet in the catalogue of the database, which refuses one of them;
// that one tries again and finds the tables.
func (s *Store) prepare(ctx context.Context) error {
	c := s.begin()
	for {
		err := s.prepareOnce(ctx, c)
		if err == nil {
			return nil
		}
		setting, isSetting := errors.AsType[*settingError](err)
		switch code := codeOf(err); {
		case isSetting:
			return setting
		case errors.Is(err, kv.ErrUnavailable) || ctx.Err() != nil:
			return err
		case code == codeDenied:
			return translate(err)
		case class(code) == classAuthorization || class(code) == classCatalog:
			return fmt.Errorf("the database cannot be opened: %s", describe(err))
		case isTransient(err) || isRace(code):
			err = fmt.Errorf("%s", describe(err))
		}
		if err := c.again(ctx, err); err != nil {
			return err
		}
	}
}

// isRace reports whether a statement that makes a table met another one.
func isRace(code string) bool {
	switch code {
	case "23505", "42P07", "42710", "42P16", "XX000":
		return true
	}
	return false
}

func (s *Store) prepareOnce(ctx context.Context, c *call) error {
	waiting, cancel := context.WithDeadline(ctx, c.ends)
	defer cancel()
	conn, err := s.reads.Acquire(waiting)
	if err != nil {
		return err
	}
	defer s.release(conn)
	err = s.checkVersion(waiting, conn)
	if codeOf(err) == codeNoTable || errors.Is(err, pgx.ErrNoRows) {
		if err := s.makeTables(waiting, conn); err != nil {
			return err
		}
		err = s.checkVersion(waiting, conn)
	}
	if err != nil {
		return err
	}
	return probe(waiting, conn)
}

// checkVersion refuses tables of another version, and notes the tenure. It returns the error of the
// database when there are no tables, and pgx.ErrNoRows when they are being made.
func (s *Store) checkVersion(ctx context.Context, conn *pgxpool.Conn) error {
	var version, tenure int64
	if err := conn.QueryRow(ctx, versionSQL).Scan(&version, &tenure); err != nil {
		return explainDenied(err, "read the tables", "SELECT, INSERT, UPDATE, DELETE ON kv, kv_fence, kv_schema")
	}
	if version != schemaVersion {
		return refuse("the tables have version %d and this packhorse reads version %d: "+
			"run the packhorse that wrote them, or name another database", version, schemaVersion)
	}
	s.tenure.Store(tenure)
	return nil
}

func (s *Store) makeTables(ctx context.Context, conn *pgxpool.Conn) error {
	found, err := s.ask(ctx, conn.Conn())
	if err != nil {
		return err
	}
	statements := tablesSQL
	if found.isPostgreSQL() {
		statements = append(slices.Clip(statements), storageSQL...)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return explainDenied(err, "make tables", "CREATE, USAGE ON SCHEMA public")
		}
	}
	if _, err := conn.Exec(ctx, markSQL, schemaVersion); err != nil {
		return err
	}
	s.logger.Info("kv: made the tables", "database", s.place)
	return nil
}

// probe finds out whether the role may do everything that the store does.
func probe(ctx context.Context, conn *pgxpool.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for _, sql := range probesSQL {
		if _, err := tx.Exec(ctx, sql); err != nil {
			_ = tx.Rollback(ctx) // or the connection is closed
			return explainDenied(err, "read and write the tables", "SELECT, INSERT, UPDATE, DELETE ON kv, kv_fence, kv_schema")
		}
	}
	return tx.Rollback(ctx)
}

// explainDenied says which right is missing, if it is one.
func explainDenied(err error, what, rights string) error {
	if codeOf(err) != codeDenied {
		return err
	}
	return refuse("the role may not %s: GRANT %s TO it (%s)", what, rights, describe(err))
}
