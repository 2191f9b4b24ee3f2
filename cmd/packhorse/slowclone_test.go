package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
	"packhorse/odb/kv/postgres/postgrestest"
)

// largeRepository is the repository of PACKHORSE_REAL_REPO, or a generated one of 50,000 objects if
// PACKHORSE_STORM_ROUNDS is set. The test is skipped if neither is.
func largeRepository(t *testing.T) *oracle.Repository {
	t.Helper()
	if os.Getenv("PACKHORSE_REAL_REPO") != "" {
		return oracle.Real(t)
	}
	if stormRounds(t, 0) == 0 {
		t.Skip("neither PACKHORSE_STORM_ROUNDS nor PACKHORSE_REAL_REPO is set")
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 9, Commits: 12_000, Files: 100, Tags: true, Binary: true})
	return git
}

// newLargePair starts two servers, and pushes a large repository through the first.
func newLargePair(t *testing.T) (*pair, *oracle.Repository) {
	t.Helper()
	git := largeRepository(t)
	database := postgrestest.Start(t)
	p := newDirectPair(t, t.TempDir(), database.URL(database.Database(t)), "--log-level", "error")
	git.Git("push", "--quiet", p.sides[0].remote(), "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
	return p, git
}

// branchesAndTags lists what is pushed.
func branchesAndTags(git *oracle.Repository) string {
	return git.Git("for-each-ref", "refs/heads", "refs/tags")
}

// TestLargeClone pushes a large repository through one server and clones it from the other, which
// has cached nothing or much of it, while the first is killed in the middle. PACKHORSE_REAL_REPO
// names the repository; otherwise PACKHORSE_STORM_ROUNDS asks for a generated one.
func TestLargeClone(t *testing.T) {
	t.Parallel()
	p, git := newLargePair(t)
	want := branchesAndTags(git)
	p.sides[1].forget()
	for _, cache := range []string{"cold", "warm"} {
		held := p.sides[1].holdClone(t)
		<-held.held
		if err := p.sides[0].Kill(); err != nil {
			t.Fatal(err)
		}
		held.finish(t, want)
		p.sides[0].begin()
		t.Log(cache)
	}
	p.stop()
}

// TestSlowClone holds a clone from each of two servers while maintenance rewrites everything that
// they read, and sweeps without any grace, on both: the clones end whole. PACKHORSE_CLONE_LASTS is
// how long they last at least, such as 1h, with 10 rounds of maintenance; PACKHORSE_REAL_REPO and
// PACKHORSE_STORM_ROUNDS are those of [TestLargeClone].
func TestSlowClone(t *testing.T) {
	t.Parallel()
	p, git := newLargePair(t)
	want := branchesAndTags(git)
	var held []*heldClone
	for _, s := range p.sides {
		s.forget()
		clone := s.holdClone(t)
		<-clone.held
		held = append(held, clone)
	}
	small := newGitClient(t, "small", 0, 200<<10)
	l := &load{p: p, told: map[string]string{}}
	rounds, pause := 4, time.Duration(0)
	if text := os.Getenv("PACKHORSE_CLONE_LASTS"); text != "" {
		lasts, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("PACKHORSE_CLONE_LASTS: %v", err)
		}
		rounds = 10
		pause = lasts / time.Duration(rounds)
	}
	begun := time.Now()
	for round := range rounds {
		time.Sleep(pause)
		small.home = round % 2
		small.step(l) // so that there is something to rewrite
		got := packhorse(t, nil, "gc", "--data", p.sides[round%2].data(), "--grace", "0s")
		if got.status != 0 {
			t.Errorf("gc: %+v", got)
		}
		t.Log(strings.TrimSpace(got.out))
	}
	for _, clone := range held {
		clone.finish(t, want)
	}
	t.Logf("whole after %v", time.Since(begun).Round(time.Second))
	for _, s := range p.sides {
		got := packhorse(t, nil, "gc", "--data", s.data(), "--grace", "0s")
		if got.status != 0 {
			t.Errorf("gc: %+v", got)
		}
		s.forget() // what was swept is in no cache now
		s.awaitReady(http.StatusOK)
		s.checkedClone() // real histories are not always as strict rules want them
	}
	p.stop()
}

// heldClone is a clone that reads slowly after some bytes.
type heldClone struct {
	git   *oracle.Repository
	gate  *gate
	held  <-chan struct{}
	ended chan error
}

// holdClone begins a clone.
func (s *side) holdClone(t *testing.T) *heldClone {
	t.Helper()
	g := newGate(t, s.URL)
	g.answers = 2 << 20
	c := &heldClone{
		git: oracle.Open(t, filepath.Join(t.TempDir(), "held.git")), gate: g, held: g.held, ended: make(chan error, 1),
	}
	go func() {
		_, err := c.git.Try(nil, "clone", "--quiet", "--mirror", strings.Replace(s.remote(), s.address(), g.address(), 1), c.git.Dir)
		c.ended <- err
	}()
	return c
}

// finish reads the rest, and compares the clone with what was pushed.
func (c *heldClone) finish(t *testing.T, want string) {
	t.Helper()
	close(c.gate.release)
	if err := <-c.ended; err != nil {
		t.Errorf("clone: %v", err)
		return
	}
	if got := branchesAndTags(c.git); got != want {
		t.Errorf("the clone has other refs than were pushed:\n%.2000s", got)
	}
	c.git.Git("fsck", "--full", "--no-dangling")
	if err := os.RemoveAll(c.git.Dir); err != nil {
		t.Error(err)
	}
}
