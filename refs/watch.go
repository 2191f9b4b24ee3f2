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

// watchers wakes the waiters for a repository, or for an organization, when it has moved.
type watchers[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*watched // guarded by mu
}

type watched struct {
	moved chan struct{}
	count int // number of waiters; guarded by watchers.mu
}

// enter returns a channel that the next move closes. The caller leaves once.
func (w *watchers[K]) enter(key K) (moved <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry := w.keys[key]
	if entry == nil {
		if w.keys == nil {
			w.keys = make(map[K]*watched)
		}
		entry = &watched{moved: make(chan struct{})}
		w.keys[key] = entry
	}
	entry.count++
	return entry.moved, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if entry.count--; entry.count == 0 && w.keys[key] == entry {
			delete(w.keys, key)
		}
	}
}

// notify wakes the waiters for a key.
func (w *watchers[K]) notify(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry := w.keys[key]; entry != nil {
		close(entry.moved)
		delete(w.keys, key)
	}
}
