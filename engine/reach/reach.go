// Package reach knows whether the key-value store can be reached.
//
// Start at [Begin]. A store behind a network may be away for a while and come back, and whoever
// distributes requests over servers asks each of them whether it should get any. That question must
// not wait for the store, so a goroutine asks it now and then, and [Watch.Err] says what it heard.
package reach

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

const (
	// every is the interval of reads.
	every = time.Second
	// patience is how long a read may take before the store counts as away.
	patience = 5 * time.Second
)

// Watch reads a row of a store now and then. Its methods may be called concurrently.
type Watch struct {
	read   func(ctx context.Context) error
	away   atomic.Pointer[error] // nil: the last read has reached the store
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// Begin watches the store that read reads any row of, until Close.
func Begin(read func(ctx context.Context) error) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{read: read, cancel: cancel}
	rescue.Keep(ctx, &w.ended, every, func(ctx context.Context) error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			w.look(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	}, func(err error) { w.away.Store(&err) })
	return w
}

// look reads once. An error of another kind says that the store answers.
func (w *Watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := w.read(ctx)
	switch {
	case errors.Is(err, kv.ErrUnavailable):
		w.away.Store(&err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%w: no answer within %v", kv.ErrUnavailable, patience)
		w.away.Store(&err)
	default:
		w.away.Store(nil)
	}
}

// Err returns why the store could not be reached at the last attempt, or nil. It does not block.
// Errors: [kv.ErrUnavailable].
func (w *Watch) Err() error {
	if err := w.away.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the watch and waits for it.
func (w *Watch) Close() {
	w.cancel()
	w.ended.Wait()
}
