package diff

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sharedSlot is one slot for all goroutines of a diff: it is held while any of them computes.
type sharedSlot struct {
	acquire func(ctx context.Context) (release func(), err error)

	mu      sync.Mutex // held while the slot is waited for: all need it
	busy    int        // guarded by mu
	release func()     // guarded by mu; nil without the slot
	begun   bool       // guarded by mu: it was held once
}

// enter returns when there is a slot. leave must be called afterwards, also if enter has failed.
func (s *sharedSlot) enter(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	if s.release != nil {
		return nil
	}
	acquire := s.acquire
	if s.begun {
		acquire = func(ctx context.Context) (func(), error) { return insist(ctx, s.acquire) }
	}
	release, err := acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for a slot: %w", err)
	}
	s.release, s.begun = release, true
	return nil
}

// share enters for another goroutine, which leaves, while the caller has entered.
func (s *sharedSlot) share() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
}

// end releases the slot when the last computation has ended and not all callers have left.
func (s *sharedSlot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// leave ends what enter or share began.
func (s *sharedSlot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 && s.release != nil {
		s.release()
		s.release = nil
	}
}

// insistPause is the time before a running diff asks again for memory that it was refused.
const insistPause = time.Second

// insist asks for a resource until it gets it or ctx has ended: an answer that has begun cannot be
// refused any more.
func insist(ctx context.Context, acquire func(context.Context) (func(), error)) (release func(), err error) {
	for {
		if release, err = acquire(ctx); err == nil {
			return release, nil
		}
		select {
		case <-time.After(insistPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
