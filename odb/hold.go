package odb

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Hold keeps files from being deleted; see [Store.HoldFiles].
type Hold struct {
	store   *Store
	epoch   uint64
	release sync.Once
}

// HoldFiles keeps every file that pools use at some instant after the call until [Hold.Release]. It
// waits for a running deletion. The sweeps of other processes that share the store wait for it, as
// for a view; when they no longer do, [Hold.Check] says so.
func (s *Store) HoldFiles() *Hold {
	s.removal.RLock()
	return &Hold{store: s, epoch: s.options.Epochs.begin()}
}

const (
	// doubtMax is how long a hold may be in doubt: this process could not tell the others that it
	// lives. If it can, or learns that they have gone on without it, the doubt ends.
	doubtMax = 30 * time.Second
	// doubtEvery is the time between two looks meanwhile.
	doubtEvery = 50 * time.Millisecond
)

// Check returns nil when no file was deleted that is held. It waits while that is in doubt. Errors:
// [ErrNotHeld], for good if other processes have gone on without this one.
func (h *Hold) Check(ctx context.Context) error {
	epochs := h.store.options.Epochs
	for begun := time.Now(); !epochs.holds(h.epoch); {
		if epochs.hasExpired(h.epoch) {
			return fmt.Errorf("%w: the others have removed this server, which was silent for too long", ErrNotHeld)
		}
		if time.Since(begun) > doubtMax {
			return fmt.Errorf("%w: this server could not tell the others for %s that it lives", ErrNotHeld, doubtMax)
		}
		select {
		case <-time.After(doubtEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Release ends the hold. Only the first call has an effect.
func (h *Hold) Release() {
	h.release.Do(func() {
		h.store.options.Epochs.end(h.epoch)
		h.store.removal.RUnlock()
	})
}
