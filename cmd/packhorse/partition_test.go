package main_test

import (
	"net/http"
	"testing"
	"time"

	"packhorse/odb/kv/postgres/postgrestest"
)

// TestPartitions cuts one of two servers off from the database or from the bucket, so that
// connections break or nothing answers any more, while clients write through both. The other server
// goes on. The one without the database says that it is not ready. Afterwards every acknowledged
// write is there once, every refused one nowhere, and a receiver of webhooks has heard of all.
// PACKHORSE_STORM_ROUNDS sets the number of partitions; with several, those of the database last
// until the other server has taken over the duties. Without it the test is skipped.
func TestPartitions(t *testing.T) {
	t.Parallel()
	rounds := longStormRounds(t)
	dir := t.TempDir()
	receiver := newReceiver(t, dir)
	p := newPair(t, dir, postgrestest.Start(t), "--upstream-allow", "127.0.0.1", "--log-level", "error",
		"--maintenance-hot-count", "200", "--maintenance-reader-grace", "0s")
	l := newLoad(p, min(rounds, 2), min(rounds, 2))
	for n := range p.sides {
		l.parts = append(l.parts, newGitClient(t, "large", n, 200<<10)) // becomes a file of the bucket
	}
	for round := range rounds {
		p.partition(l, partitions[round%len(partitions)], round/len(partitions)%2, rounds > 1)
		l.look()
		t.Logf("%s: %s", partitions[round%len(partitions)].name, l.figures())
	}
	journal := receiver.await(p.sides[0].data(), p.get)
	p.stop()
	receiver.check(journal)
}

// partition is a way in which a server is cut off.
type partition struct {
	name     string
	database bool
	cut, end func(s *side)
}

var partitions = []partition{
	{"database, cut", true, func(s *side) { s.keys.Down() }, func(s *side) { s.keys.Up() }},
	{"bucket, half-open", false, func(s *side) { s.files.freeze() }, func(s *side) { s.files.mend() }},
	{"database, half-open", true, func(s *side) { s.keys.Freeze() }, func(s *side) { s.keys.Thaw() }},
	{"bucket, cut", false, func(s *side) { s.files.cut() }, func(s *side) { s.files.mend() }},
}

// partition cuts a server off, and heals it.
func (p *pair) partition(l *load, how partition, number int, long bool) {
	t := p.t
	t.Helper()
	cut, other := p.sides[number], p.sides[1-number]
	l.during(func() {
		l.awaitProgress(number, 5)
		how.cut(cut)
		if how.database {
			cut.awaitReady(http.StatusServiceUnavailable)
			if long {
				l.pause.Store(int64(300 * time.Millisecond))
				duties := awaitDuties(t, p.direct, 1, nil)
				l.pause.Store(0)
				t.Logf("the other has the duties %v", duties)
			}
		}
		if long && !how.database {
			if l.parts[number].pushes(l) {
				t.Errorf("server %d has acknowledged a file that the bucket cannot have", number)
			}
			if !l.parts[1-number].pushes(l) {
				t.Errorf("server %d refuses a push", 1-number)
			}
		}
		l.awaitProgress(1-number, 10)
		other.awaitReady(http.StatusOK)
		how.end(cut)
		cut.awaitReady(http.StatusOK)
		l.awaitProgress(number, 5)
	})
	if long {
		awaitDuties(t, p.direct, 2, nil)
	}
}

// pushes pushes once, and reports whether that was acknowledged.
func (c *gitClient) pushes(l *load) bool {
	before := len(c.pushed)
	c.step(l)
	return len(c.pushed) > before
}
