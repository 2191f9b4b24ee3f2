package main_test

import (
	"testing"

	"packhorse/odb/kv/postgres/postgrestest"
)

// TestBucketFaults has clients push, commit and clone through two servers while maintenance works
// and their bucket says 503, resets connections, cuts and shortens bodies, loses answers and
// reports errors under status 200. What was acknowledged is there once, also for servers that have
// cached nothing, and a receiver of webhooks has heard of all. PACKHORSE_STORM_ROUNDS sets the
// number of rounds; without it the test is skipped.
func TestBucketFaults(t *testing.T) {
	t.Parallel()
	rounds := longStormRounds(t)
	dir := t.TempDir()
	receiver := newReceiver(t, dir)
	p := newPair(t, dir, postgrestest.Start(t), "--maintenance-hot-count", "100", "--maintenance-segments", "2",
		"--maintenance-reader-grace", "0s", "--upstream-allow", "127.0.0.1", "--log-level", "error")
	l := newLoad(p, 1, 0)
	l.clones = []*cloner{{}}
	for n := range p.sides {
		l.git = append(l.git, newGitClient(t, "git", n, 200<<10)) // becomes a file of the bucket
		l.parts = append(l.parts, newGitClient(t, "parts", n, 17<<20))
	}
	for round := range rounds {
		chance := []float64{0.2, 0.5, 0.8}[round%3]
		l.during(func() {
			for number, s := range p.sides {
				s.files.disturb(uint64(2*round+number), chance)
			}
			for number := range p.sides {
				l.awaitProgress(number, 20)
			}
			l.parts[round%2].step(l)
			for _, s := range p.sides {
				s.files.disturb(0, 0)
			}
		})
		if round%2 == 1 {
			p.sides[round/2%2].forget()
		}
		l.look()
		t.Logf("%s; %d and %d faults", l.figures(), p.sides[0].files.faults(), p.sides[1].files.faults())
	}
	journal := receiver.await(p.sides[0].data(), p.get)
	p.stop()
	receiver.check(journal)
}
