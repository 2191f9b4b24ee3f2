package webhook

import (
	"testing"
	"time"

	"packhorse/refs"
)

// TestOutboxRests has the outbox of a repository rest after it was read, the longer the more hooks
// it has, and not those of others.
func TestOutboxRests(t *testing.T) {
	t.Parallel()
	for hooks, want := range map[int]time.Duration{
		0: gather, 1: gather, 16: gather, 17: 2 * gather, 32: 2 * gather, 64: 4 * gather,
	} {
		if got := restOf(hooks); got != want {
			t.Errorf("with %d hooks it rests for %v, want %v", hooks, got, want)
		}
	}
	d := New(Config{})
	d.cancel = func() {} // as if it were started
	now := time.Now()
	rests, other := Repository{ID: refs.RepoID{1}, Org: "a"}, Repository{ID: refs.RepoID{2}, Org: "a"}
	d.restsUntil[rests.ID] = now.Add(3 * gather)
	d.Told(rests)
	if repos, rest := d.takeTold(now.Add(gather)); len(repos) != 0 || rest != 2*gather {
		t.Errorf("while it rests: %d repositories, and %v left", len(repos), rest)
	}
	d.Told(other)
	if repos, _ := d.takeTold(now.Add(gather)); len(repos) != 1 || repos[0].ID != other.ID {
		t.Errorf("another one: %v", repos)
	}
	if repos, _ := d.takeTold(now.Add(3 * gather)); len(repos) != 1 || repos[0].ID != rests.ID {
		t.Errorf("when it has rested: %v", repos)
	}
}
