package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestRefused opens databases that could not keep the promises of a store. Each refusal is one line
// that says how to mend it.
func TestRefused(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := parsed.Path[1:]
	asRole := func(role string) string {
		other := *parsed
		other.User = url.User(role)
		return other.String()
	}
	role := strings.ReplaceAll(name, "packhorse", "role")
	tests := map[string]struct {
		before, after []string
		url           string
		want          string
	}{
		"synchronous_commit": {
			before: []string{"ALTER DATABASE " + name + " SET synchronous_commit = off"},
			after:  []string{"ALTER DATABASE " + name + " RESET synchronous_commit"},
			url:    database, want: "set synchronous_commit = on",
		},
		"standbys that have not written": {
			before: []string{"ALTER DATABASE " + name + " SET synchronous_commit = remote_write"},
			after:  []string{"ALTER DATABASE " + name + " RESET synchronous_commit"},
			url:    database, want: "set synchronous_commit = on",
		},
		"read-only": {
			before: []string{"ALTER DATABASE " + name + " SET default_transaction_read_only = on"},
			after:  []string{"SET default_transaction_read_only = off", "ALTER DATABASE " + name + " RESET default_transaction_read_only"},
			url:    database, want: "set default_transaction_read_only = off",
		},
		"another version": {
			before: []string{"UPDATE kv_schema SET version = 7"},
			after:  []string{"UPDATE kv_schema SET version = 1"},
			url:    database, want: "the tables have version 7",
		},
		"no right to read": {
			before: []string{"CREATE ROLE " + role + " LOGIN"},
			after:  []string{"DROP ROLE " + role},
			url:    asRole(role), want: "GRANT SELECT, INSERT, UPDATE, DELETE ON kv, kv_fence, kv_schema",
		},
		"no right to write": {
			before: []string{"CREATE ROLE " + role + " LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + role},
			after:  []string{"DROP OWNED BY " + role, "DROP ROLE " + role},
			url:    asRole(role), want: "GRANT SELECT, INSERT, UPDATE, DELETE ON kv, kv_fence, kv_schema",
		},
		"no right to make tables": {
			before: []string{"CREATE ROLE " + role + " LOGIN", "DROP TABLE kv, kv_fence, kv_schema"},
			after:  []string{"DROP ROLE " + role},
			url:    asRole(role), want: "GRANT CREATE, USAGE ON SCHEMA",
		},
		"no such database": {url: strings.ReplaceAll(database, name, "nowhere"), want: `"nowhere" does not exist`},
	}
	// One after the other: they change one database.
	for name, test := range tests {
		if err := open(t, postgres.Options{URL: database}).Close(); err != nil { // makes the tables
			t.Fatal(err)
		}
		postgrestest.Exec(t, database, test.before...)
		checkRefused(t, name, test.url, test.want)
		postgrestest.Exec(t, database, test.after...)
	}
}

// checkRefused opens a database in vain.
func checkRefused(t *testing.T, name, address, want string) {
	t.Helper()
	var log bytes.Buffer
	store, err := postgres.Open(t.Context(), postgres.Options{
		URL: address, Deadline: patient, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err == nil {
		t.Errorf("%s: opens", name)
		_ = store.Close()
		return
	}
	text := err.Error()
	if !strings.Contains(text, want) || strings.Contains(text, "\n") || errors.Is(err, kv.ErrUnavailable) || isOfDriver(err) {
		t.Errorf("%s: %v", name, err)
	}
	checkSecret(t, name, text+log.String())
}

const secret = "s3cr#t/ä"

func checkSecret(t *testing.T, name, text string) {
	t.Helper()
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "s3cr"} {
		if strings.Contains(text, form) {
			t.Errorf("%s: the password is in %q", name, text)
		}
	}
}

// TestRefusedServers opens servers that nobody should use.
func TestRefusedServers(t *testing.T) {
	t.Parallel()
	loose := postgrestest.Start(t, "fsync = off")
	checkRefused(t, "fsync", loose.URL("postgres"), "set fsync = on")
	primary := postgrestest.Start(t)
	standby := primary.Standby(t)
	checkRefused(t, "standby", standby.URL("postgres"), "target_session_attrs=read-write")
}

// TestSecret opens URLs that lead nowhere. No error has their password.
func TestSecret(t *testing.T) {
	t.Parallel()
	password := url.QueryEscape(secret)
	for _, address := range []string{
		"postgres://user:" + password + "@127.0.0.1:1/database?sslmode=disable",
		"postgres://user:" + password + "@127.0.0.1:1/database?sslmode=nonsense",
		"postgres://user:" + password + "@127.0.0.1:port/database",
		"postgres://user:" + secret + "@127.0.0.1:1/database",
		"postgres://user@127.0.0.1:1/database?sslmode=disable&password=" + password,
		"postgres://user@127.0.0.1:1/database?sslmode=nonsense&password=" + password,
		"host=127.0.0.1 port=1 user=user password=" + secret,
		"host=127.0.0.1 port=none user=user password='" + secret + "'",
		"user:" + secret,
	} {
		var log bytes.Buffer
		_, err := postgres.Open(t.Context(), postgres.Options{
			URL: address, Deadline: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err == nil || strings.Contains(err.Error(), "\n") || isOfDriver(err) {
			t.Errorf("%s: %v", address, err)
			continue
		}
		checkSecret(t, address, err.Error()+log.String())
	}
}

// TestOpenTogether lets servers make the tables of one database at the same time.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	const servers = 8
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() {
			store, err := postgres.Open(t.Context(), postgres.Options{
				URL: database, Deadline: patient, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := store.Apply(t.Context(), batchOf("1", fmt.Sprint("key/", i))); err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if found := count(t, openHere(t, postgres.Options{URL: database}), "key/"); found != servers {
		t.Errorf("%d keys, want %d", found, servers)
	}
}
