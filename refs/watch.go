package refs

import (
	"context"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
)

// Await returns when the repository's sequence is at least the given one, or with the error of ctx.
// Writes of other processes wake it if the store is [Options.Shared].
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) Await(ctx context.Context, repo RepoID, sequence uint64) error {
	head, err := s.head(ctx, repo)
	if err != nil || head.sequence >= sequence {
		return err
	}
	for {
		moved, leave := s.watch.enter(repo)
		head, err := s.head(ctx, repo)
		reached := err == nil && head.sequence >= sequence
		if !reached && err == nil {
			err = s.wait(ctx, moved, headQuestion(repo, sequence))
		}
		leave()
		if reached || err != nil {
			return err
		}
	}
}

// headQuestion asks whether a repository has reached a sequence, or has gone.
func headQuestion(repo RepoID, sequence uint64) question {
	key := headKey(repo)
	return question{name: string(key), set: kv.ReadSet{Keys: [][]byte{key}}, met: func(rows kv.Rows) bool {
		head, err := decodeHead(rows.Values[0]) // fails for one that has gone, too
		return err != nil || head.sequence >= sequence
	}}
}

// wait returns when moved is closed or, over a shared store, when a question is met, or with the
// error of ctx. It may return early.
func (s *Store) wait(ctx context.Context, moved <-chan struct{}, asks question) error {
	var met <-chan struct{}
	if s.options.Shared {
		var leave func()
		met, leave = s.polls.ask(asks)
		defer leave()
	}
	return fair.Rest(ctx, func() error {
		select {
		case <-moved:
		case <-met:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	})
}

// moved notes that this process has moved a repository.
func (s *Store) moved(repo RepoID) {
	s.moves.of(repo).Add(1)
	if set, ok := s.cache.Get(setKey{repo: repo}); ok {
		set.stale.Store(true)
	}
	s.watch.notify(repo)
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
