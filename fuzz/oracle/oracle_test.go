package oracle_test

import (
	"errors"
	"testing"

	"packhorse/fuzz/oracle"
)

func TestSeedIsReproducible(t *testing.T) {
	t.Parallel()
	history := oracle.History{Seed: 7, Merges: true, Tags: true, Binary: true}
	first, second := oracle.New(t), oracle.New(t)
	if a, b := first.Seed(history), second.Seed(history); a != b {
		t.Errorf("two histories of one seed: %s and %s", a, b)
	}
	first.Git("fsck", "--strict", "--full")
	if got := first.Git("rev-list", "--count", "refs/heads/main"); got == "0" {
		t.Error("no commits")
	}
	if got := first.Git("rev-list", "--count", "--merges", "refs/heads/main"); got == "0" {
		t.Error("no merges")
	}
	history.Seed = 8
	if third := oracle.New(t).Seed(history); third == first.Git("rev-parse", "main") {
		t.Error("another seed gives the same history")
	}
}

func TestTryReportsFailure(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	_, err := r.Try(nil, "rev-parse", "--verify", "--quiet", "refs/heads/none")
	var exit *oracle.ExitError
	if !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("error %v, want status 1", err)
	}
}

func TestWriteTakesInvalidObjects(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	id := r.Write("commit", []byte("no commit"))
	if got := string(r.Read("commit", id)); got != "no commit" {
		t.Errorf("read back %q", got)
	}
}
