package refs

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Callers get their turns in the order of arrival; one that gives up does not hold up those behind
// it.
func TestGuards(t *testing.T) {
	t.Parallel()
	var g guards
	repo, other := RepoID{1}, RepoID{2}
	queued := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.queue[repo])
	}
	unlock, err := g.lock(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	unlockOther, err := g.lock(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	unlockOther()

	impatient, giveUp := context.WithCancel(t.Context())
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	gone := make(chan struct{})
	for i := range 8 {
		before := queued()
		wg.Go(func() {
			ctx := t.Context()
			if i == 3 {
				ctx = impatient
				defer close(gone)
			}
			unlock, err := g.lock(ctx, repo)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			unlock()
		})
		for queued() == before {
			runtime.Gosched() // the next one comes when this one has its place
		}
	}
	giveUp()
	<-gone
	unlock()
	wg.Wait()
	if want := []int{0, 1, 2, 4, 5, 6, 7}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if len(g.queue) != 0 {
		t.Errorf("left behind: %v", g.queue)
	}
}
