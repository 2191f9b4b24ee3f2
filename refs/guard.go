package refs

import (
	"context"
	"slices"
	"sync"
)

// guards admits one caller at a time to a repository, in the order of arrival. It only avoids
// wasted work; the head that every batch requires protects the repository.
type guards struct {
	mu sync.Mutex
	// Guarded by mu: the holder of a repository, then the waiters; a channel is closed when its turn
	// comes.
	queue map[RepoID][]chan struct{}
}

// lock waits for the caller's turn and returns the function that ends it. Errors: that of ctx.
func (g *guards) lock(ctx context.Context, repo RepoID) (unlock func(), err error) {
	turn, leave := g.enter(repo)
	if err := await(ctx, turn); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enter puts the caller into the queue, and returns the channel that its turn closes, nil when the
// turn has come at once. The caller leaves once.
func (g *guards) enter(repo RepoID) (turn <-chan struct{}, leave func()) {
	place := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue == nil {
		g.queue = make(map[RepoID][]chan struct{})
	}
	if len(g.queue[repo]) > 0 {
		turn = place
	}
	g.queue[repo] = append(g.queue[repo], place)
	return turn, func() { g.leave(repo, place) }
}

// await waits for a turn of [guards.enter]. Errors: that of ctx.
func await(ctx context.Context, turn <-chan struct{}) error {
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave removes a caller from the queue; if it was the first one, the next one gets its turn.
func (g *guards) leave(repo RepoID, turn chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queue[repo]
	at := slices.Index(queue, turn)
	queue = slices.Delete(queue, at, at+1)
	if len(queue) == 0 {
		delete(g.queue, repo)
		return
	}
	g.queue[repo] = queue
	if at == 0 {
		close(queue[0])
	}
}
