package revision_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"packhorse/engine/revision"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// oneBranch is a namespace with the branch main alone.
type oneBranch struct{ tip object.ID }

func (o oneBranch) Lookup(_ context.Context, name string) (object.ID, bool, error) {
	return o.tip, name == "refs/heads/main", nil
}

func (oneBranch) Default(context.Context) (string, error) { return "refs/heads/main", nil }

func (o oneBranch) At(_ context.Context, _ revision.Moment, do func(revision.Refs) error) error {
	return do(o)
}

// TestJumps walks along first parents from moving tips with one memory of jumps, and with one that
// has no room: both and git agree, on the way and beyond the root.
func TestJumps(t *testing.T) {
	t.Parallel()
	git := odbtest.NewRepository(t)
	git.Seed(oracle.History{Seed: 3, Commits: 1500, Files: 5, Merges: true})
	line := git.IDs("", "rev-list", "--first-parent", "main")
	pool := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	pool.PushGit(git, "main\n")
	view := pool.View()
	random := rand.New(rand.NewPCG(1, 1))
	jumps, small := revision.NewJumps(1<<20), revision.NewJumps(500)
	for range 400 {
		from := random.IntN(len(line))
		back := random.IntN(len(line) - from + 3)
		for _, memory := range []*revision.Jumps{nil, jumps, small} {
			text := fmt.Sprintf("main~%d", back)
			found, err := revision.Resolve(t.Context(), text, oneBranch{line[from]}, view, memory)
			if from+back >= len(line) {
				says := fmt.Sprintf(`has %d first-parent ancestor`, len(line)-1-from)
				if from == len(line)-1 {
					says = "has no first-parent ancestor"
				}
				if !errors.Is(err, revision.ErrNotFound) || !strings.Contains(err.Error(), says) {
					t.Fatalf("%d commits before the root, %s gives %v", len(line)-1-from, text, err)
				}
				continue
			}
			if err != nil || found.Commit != line[from+back] || found.Ref != "refs/heads/main" {
				t.Fatalf("%d commits before the root, %s is %v, %v, want %s", len(line)-1-from, text, found, err, line[from+back])
			}
		}
	}
}

// TestJumpsTogether has several goroutines share a memory of jumps.
func TestJumpsTogether(t *testing.T) {
	t.Parallel()
	git := odbtest.NewRepository(t)
	git.Seed(oracle.History{Seed: 4, Commits: 400, Files: 5})
	line := git.IDs("", "rev-list", "--first-parent", "main")
	pool := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	pool.PushGit(git, "main\n")
	view := pool.View()
	jumps := revision.NewJumps(1000)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for back := range line {
				found, err := revision.Resolve(t.Context(), fmt.Sprintf("@~%d", back), oneBranch{line[0]}, view, jumps)
				if err != nil || found.Commit != line[back] {
					t.Errorf("@~%d is %v, %v", back, found, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestStepsEnd has a walk end with its context.
func TestStepsEnd(t *testing.T) {
	t.Parallel()
	git := odbtest.NewRepository(t)
	tip, err := object.ParseID(git.Seed(oracle.History{Seed: 5, Commits: 50, Files: 5}))
	odbtest.Must(t, err)
	pool := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	pool.PushGit(git, "main\n")
	view := pool.View()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := revision.Resolve(ctx, "main~20", oneBranch{tip}, view, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a walk under an ended context gives %v", err)
	}
}
