package main_test

import (
	"net/url"
	"strings"
	"testing"

	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestKillDatabase crashes the database of two servers in the midst of keyed writes and starts it
// again; at last it is gone for good, and its synchronous standby takes its place. Each write has
// happened exactly once, and is answered as before. PACKHORSE_KILL_ROUNDS sets the number of
// crashes.
func TestKillDatabase(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	standby := primary.Standby(t)
	standby.Configure(t, "wal_retrieve_retry_interval = '50ms'") // until then the primary acknowledges nothing
	stores := &sharedStores{keys: oneOf(t, primary.Database(t), primary, standby)}
	stores.files, stores.env = s3test.Start(t).Place(t)
	rounds := killRounds(t, 2)
	k := newKilling(t, stores, 5, uint64(rounds))
	k.flags = []string{"--log-level", "error"}
	k.start()
	s := newKeyedStorm(k, 100)
	for range rounds {
		s.round(func() {
			primary.Crash(t)
			primary.Restart(t)
		}, func() {})
	}
	s.round(func() {
		primary.Crash(t)
		standby.Promote(t)
	}, func() {})
	k.look()
	k.stop()
}

// oneOf returns the URL of a database that is on the cluster which takes writes.
func oneOf(t *testing.T, database string, clusters ...*postgrestest.Cluster) string {
	t.Helper()
	var hosts []string
	for _, c := range clusters {
		parsed, err := url.Parse(c.URL(database))
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, parsed.Query().Get("host"))
	}
	query := url.Values{"host": {strings.Join(hosts, ",")}, "target_session_attrs": {"read-write"}}
	return "postgres://postgres@/" + database + "?" + query.Encode()
}
