package maintain

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"packhorse/odb"
	"packhorse/odb/rescue"
)

// Auxiliaries builds bitmaps and path filters of pools with a new large segment, one pool after
// another, on one goroutine that runs while pools wait. These files only speed up reads: a failure
// is logged, and the pool is served without them.
type Auxiliaries struct {
	build func(ctx context.Context, pool odb.PoolID, owner string) error
	busy  func() bool // requests are served
	log   *slog.Logger

	ctx  context.Context // of the work, which no call waits for
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting []auxiliaryTask
	running bool
	added   uint64        // the number of the last addition
	done    uint64        // all additions up to this number are done or forgotten
	moved   chan struct{} // closed and replaced when done may have changed
}

// auxiliaryTask is a pool that was added. Additions are numbered from 1.
type auxiliaryTask struct {
	pool   odb.PoolID
	owner  string
	number uint64
}

// NewAuxiliaries returns a queue that calls build for each pool and its owner. busy reports whether
// requests are served. The caller closes the queue.
func NewAuxiliaries(
	build func(ctx context.Context, pool odb.PoolID, owner string) error, busy func() bool, log *slog.Logger,
) *Auxiliaries {
	a := &Auxiliaries{build: build, busy: busy, log: log, moved: make(chan struct{})}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Add queues a pool of an owner. It never waits for work.
func (a *Auxiliaries) Add(pool odb.PoolID, owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	a.added++
	a.waiting = append(a.waiting, auxiliaryTask{pool, owner, a.added})
	if !a.running {
		a.running = true
		rescue.Go(&a.work, a.run, func(err error) {
			a.log.ErrorContext(a.ctx, "failed to build auxiliary files", "error", err)
		})
	}
}

func (a *Auxiliaries) run() error {
	for task, ok := a.next(); ok; task, ok = a.next() {
		err := rescue.Do(func() error { return a.build(a.ctx, task.pool, task.owner) })
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, odb.ErrNoPool) {
			a.log.WarnContext(a.ctx, "failed to build auxiliary files", "pool", task.pool.String(), "error", err)
		}
	}
	// Without this the memory of a large push and of this work would stay with the process until much
	// more has been allocated. It takes every core for some tenths of a second.
	if !a.busy() {
		debug.FreeOSMemory()
	}
	return nil
}

// next takes the pool to be worked on, however often it was added; false ends the goroutine. Pools
// that were taken before are done.
func (a *Auxiliaries) next() (auxiliaryTask, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		a.waiting = nil
	}
	a.running = len(a.waiting) > 0
	a.done = a.added
	if a.running {
		a.done = a.waiting[0].number - 1
	}
	close(a.moved)
	a.moved = make(chan struct{})
	if !a.running {
		return auxiliaryTask{}, false
	}
	task := a.waiting[0]
	a.waiting = slices.DeleteFunc(a.waiting, func(t auxiliaryTask) bool { return t.pool == task.pool })
	return task, true
}

// Await waits for all pools that were added before the call. Errors: that of ctx.
func (a *Auxiliaries) Await(ctx context.Context) error {
	a.mu.Lock()
	due, done, moved := a.added, a.done, a.moved
	a.mu.Unlock()
	for done < due {
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		a.mu.Lock()
		done, moved = a.done, a.moved
		a.mu.Unlock()
	}
	return nil
}

// Close ends the work and waits for it.
func (a *Auxiliaries) Close() {
	a.mu.Lock()
	a.stop()
	a.mu.Unlock()
	a.work.Wait()
}
