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
	turn := make(chan struct{})
	g.mu.Lock()
	if g.queue == nil {
		g.queue = make(map[RepoID][]chan struct{})
	}
	first := len(g.queue[repo]) == 0
	g.queue[repo] = append(g.queue[repo], turn)
	g.mu.Unlock()
	unlock = func() { g.leave(repo, turn) }
	if first {
		return unlock, nil
	}
	select {
	case <-turn:
		return unlock, nil
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
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
