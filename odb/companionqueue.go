package odb

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
)

// companionQueue makes companions of segments that have just come, one pool after another, on one goroutine that is there while there is
// something to do. What it does makes answers quicker and is done without when it fails.
type companionQueue struct {
	store *Store
	ctx   context.Context // of the work, which no call waits for
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	pools   []PoolID
	running bool
	idle    chan struct{} // closed when the goroutine that runs ends
}

// companionPause is how long the work rests, as a share of the time that it works.
const companionPause = 1

func newCompanionQueue(ctx context.Context, s *Store) *companionQueue {
	q := &companionQueue{store: s, idle: make(chan struct{})}
	close(q.idle)
	q.ctx, q.stop = context.WithCancel(context.WithoutCancel(ctx))
	return q
}

// add has the companions of a pool made soon.
func (q *companionQueue) add(pool PoolID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil {
		return
	}
	q.pools = append(q.pools, pool)
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		q.work.Go(q.run)
	}
}

func (q *companionQueue) run() {
	pace := q.store.newPacer(companionPause)
	for pool, ok := q.next(); ok; pool, ok = q.next() {
		err := errors.Join(q.store.buildBitmaps(q.ctx, pool, nil, pace), q.store.buildFilters(q.ctx, pool, &pathFilters{}, pace))
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNoPool) {
			q.store.log.WarnContext(q.ctx, "make bitmaps and path filters", "pool", pool.String(), "error", err)
		}
	}
	// What a large push and this work have taken would otherwise stay with the process until much more has been allocated. It takes every core for
	// some tenths of a second.
	if !q.store.traffic.busy() {
		debug.FreeOSMemory()
	}
}

// next takes the pool that is to be worked on, however often it was added; false ends the goroutine.
func (q *companionQueue) next() (PoolID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pools) == 0 || q.ctx.Err() != nil {
		q.running = false
		close(q.idle)
		return PoolID{}, false
	}
	pool := q.pools[0]
	left := q.pools[:0]
	for _, other := range q.pools[1:] {
		if other != pool {
			left = append(left, other)
		}
	}
	q.pools = left
	return pool, true
}

// AwaitCompanions returns when the bitmaps and path filters are made that were due when it was called, or ctx ends.
func (s *Store) AwaitCompanions(ctx context.Context) error {
	s.building.mu.Lock()
	idle := s.building.idle
	s.building.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the work and waits for it.
func (q *companionQueue) close() {
	q.mu.Lock()
	q.stop()
	q.mu.Unlock()
	q.work.Wait()
}
