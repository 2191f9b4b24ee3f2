package main_test

import (
	"testing"

	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestKillDatabase crashes the database of two servers in the midst of keyed writes and starts it
// again; at last it is gone for good, and its synchronous standby takes its place. Each write has
// happened exactly once, and is answered as before, and a receiver of webhooks has heard of all.
// PACKHORSE_KILL_ROUNDS sets the number of crashes, PACKHORSE_FAILOVER_ROUNDS that of failovers,
// after each of which the former primary follows the new one.
func TestKillDatabase(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	standby := primary.Standby(t)
	standby.Configure(t, "wal_retrieve_retry_interval = '50ms'") // until then the primary acknowledges nothing
	stores := &sharedStores{keys: postgrestest.Hosts(primary.Database(t), primary, standby)}
	stores.files, stores.env = s3test.Start(t).Place(t)
	rounds := killRounds(t, 2)
	k := newKilling(t, stores, 5, uint64(rounds))
	k.flags = []string{"--upstream-allow", "127.0.0.1", "--log-level", "error"}
	receiver := newReceiver(t, k.dir)
	k.start()
	s := newKeyedStorm(k, 100)
	for range rounds {
		s.round(func() {
			primary.Crash(t)
			primary.Restart(t)
		}, func() {})
	}
	failovers := fromEnvironment(t, "PACKHORSE_FAILOVER_ROUNDS", 1)
	for round := range failovers {
		s.round(func() {
			primary.Crash(t)
			standby.Promote(t)
		}, func() {
			if round+1 < failovers {
				primary.Follow(t, standby)
			}
		})
		primary, standby = standby, primary
	}
	k.look()
	journal := receiver.await(k.data(), k.get)
	k.stop()
	receiver.check(journal)
}
