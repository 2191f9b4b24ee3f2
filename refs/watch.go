package refs

import (
	"context"
	"sync"
	"time"
)

// Await polls for transactions of other processes, which cannot notify it. The interval grows from
// pollFirst to pollLast, so that many long waits cost little.
const (
	pollFirst = 100 * time.Millisecond
	pollLast  = 2 * time.Second
)

// Await returns when the repository's sequence is at least the given one, or with the error of ctx.
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) Await(ctx context.Context, repo RepoID, sequence uint64) error {
	head, err := s.head(ctx, repo)
	if err != nil || head.sequence >= sequence {
		return err
	}
	pause := pollFirst
	poll := time.NewTimer(pause)
	defer poll.Stop()
	for {
		moved, leave := s.watch.enter(repo)
		head, err := s.head(ctx, repo)
		if err != nil || head.sequence >= sequence {
			leave()
			return err
		}
		select {
		case <-moved:
		case <-poll.C:
			pause = min(pause+pause/2, pollLast)
			poll.Reset(pause)
		case <-ctx.Done():
			leave()
			return ctx.Err()
		}
		leave()
	}
}

// watchers wakes the waiters for a repository when it has moved.
type watchers struct {
	mu    sync.Mutex
	repos map[RepoID]*watched // guarded by mu
}

type watched struct {
	moved chan struct{}
	count int // number of waiters; guarded by watchers.mu
}

// enter returns a channel that the next move closes. The caller leaves once.
func (w *watchers) enter(repo RepoID) (moved <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry := w.repos[repo]
	if entry == nil {
		if w.repos == nil {
			w.repos = make(map[RepoID]*watched)
		}
		entry = &watched{moved: make(chan struct{})}
		w.repos[repo] = entry
	}
	entry.count++
	return entry.moved, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if entry.count--; entry.count == 0 && w.repos[repo] == entry {
			delete(w.repos, repo)
		}
	}
}

// notify wakes the waiters for a repository.
func (w *watchers) notify(repo RepoID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry := w.repos[repo]; entry != nil {
		close(entry.moved)
		delete(w.repos, repo)
	}
}
