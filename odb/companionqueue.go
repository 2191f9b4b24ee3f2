package odb

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"

	"packhorse/odb/rescue"
)

// companionQueue makes companions of segments that have just come, one pool after another, on one goroutine that is there while there is
// something to do. What it does makes answers quicker and is done without when it fails.
type companionQueue struct {
	store *Store
	ctx   context.Context // of the work, which no call waits for
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting []companionTask
	running bool
	added   uint64        // the number of the last addition
	done    uint64        // all additions up to this number are done or forgotten
	moved   chan struct{} // closed and made anew when done may have changed
}

// companionTask is a pool that was added. Additions are numbered from 1.
type companionTask struct {
	pool   PoolID
	number uint64
}

// companionPause is how long the work rests, as a share of the time that it works.
const companionPause = 1

func newCompanionQueue(ctx context.Context, s *Store) *companionQueue {
	q := &companionQueue{store: s, moved: make(chan struct{})}
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
	q.added++
	q.waiting = append(q.waiting, companionTask{pool, q.added})
	if !q.running {
		q.running = true
		rescue.Go(&q.work, q.run, func(err error) { q.store.log.ErrorContext(q.ctx, "make bitmaps and path filters", "error", err) })
	}
}

func (q *companionQueue) run() error {
	pace := q.store.newPacer(companionPause)
	for pool, ok := q.next(); ok; pool, ok = q.next() {
		err := errors.Join(
			rescue.Do(func() error { return q.store.buildBitmaps(q.ctx, pool, nil, pace) }),
			rescue.Do(func() error { return q.store.buildFilters(q.ctx, pool, &pathFilters{}, pace) }),
		)
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNoPool) {
			q.store.log.WarnContext(q.ctx, "make bitmaps and path filters", "pool", pool.String(), "error", err)
		}
	}
	// What a large push and this work have taken would otherwise stay with the process until much more has been allocated. It takes every core for
	// some tenths of a second.
	if !q.store.traffic.busy() {
		debug.FreeOSMemory()
	}
	return nil
}

// next takes the pool that is to be worked on, however often it was added; false ends the goroutine. What was taken before is done.
func (q *companionQueue) next() (PoolID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil {
		q.waiting = nil
	}
	q.running = len(q.waiting) > 0
	q.done = q.added
	if q.running {
		q.done = q.waiting[0].number - 1
	}
	close(q.moved)
	q.moved = make(chan struct{})
	if !q.running {
		return PoolID{}, false
	}
	pool := q.waiting[0].pool
	q.waiting = slices.DeleteFunc(q.waiting, func(t companionTask) bool { return t.pool == pool })
	return pool, true
}

// AwaitCompanions returns when the bitmaps and path filters are made that were due when it was called, or ctx ends.
func (s *Store) AwaitCompanions(ctx context.Context) error { return s.building.await(ctx) }

// await returns when everything is done with that was added before it was called, however much is added meanwhile, or ctx ends.
func (q *companionQueue) await(ctx context.Context) error {
	q.mu.Lock()
	due, done, moved := q.added, q.done, q.moved
	q.mu.Unlock()
	for done < due {
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
		done, moved = q.done, q.moved
		q.mu.Unlock()
	}
	return nil
}

// close ends the work and waits for it.
func (q *companionQueue) close() {
	q.mu.Lock()
	q.stop()
	q.mu.Unlock()
	q.work.Wait()
}
