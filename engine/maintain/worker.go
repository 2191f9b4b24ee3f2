package maintain

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/rescue"
	"packhorse/odb/space"
)

// Host provides a [Worker] with maintenance; package engine implements it. A worker makes one call
// at a time, but for UntilRound.
type Host interface {
	// Compact flushes and merges the due layers of one pool.
	Compact(ctx context.Context, pool odb.PoolID, options repack.CompactOptions) (repack.Compacted, error)
	// Round maintains every repository.
	Round(ctx context.Context, options packgen.RepackOptions) error
	// UntilRound returns the time until a round is due: interval after the last one began, also if
	// an earlier process ran it.
	UntilRound(ctx context.Context, interval time.Duration) (time.Duration, error)
	// Sweep deletes obsolete files and expired rows.
	Sweep(ctx context.Context) error
}

// Worker does due maintenance: from [Worker.Start] on, that of pools that have grown through this
// process, whose owners take turns; in [Worker.Keep], that of the whole store.
type Worker struct {
	host     Host // for Start
	settings Settings
	log      *slog.Logger

	cancel context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{}
	keeps  atomic.Bool   // Keep is under way
	step   chan struct{} // holds one while a step is under way; who waits goes in order

	mu    sync.Mutex // guards the fields below
	grown map[odb.PoolID]odb.Growth
	due   rota      // pools that passed a threshold
	later []duePool // pools at whose turn the disk had no room, or the store was away

	compactions, objects, failures, rounds, postponed atomic.Uint64
}

// Stats are counts since the worker was started.
type Stats struct {
	// Compactions is the number of merges of layers, ObjectCount the number of objects rewritten by
	// them.
	Compactions, ObjectCount uint64
	// Rounds is the number of rounds over the whole store, Failures the number of failed steps.
	Rounds, Failures uint64
	// Postponed is the number of steps postponed for lack of disk space, or of the key-value store.
	Postponed uint64
	// DueCount counts the waiting pools, without those that a round has taken over.
	DueCount int
}

// NewWorker returns a worker that [Worker.Start] starts. Its [Worker.Grew] may be called before
// that.
func NewWorker(settings Settings, log *slog.Logger) *Worker {
	return &Worker{
		settings: settings, log: log, wake: make(chan struct{}, 1), step: make(chan struct{}, 1),
		grown: make(map[odb.PoolID]odb.Growth),
	}
}

// Grew counts a write to a pool. It never waits for work.
func (w *Worker) Grew(pool odb.PoolID, by odb.Growth) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(pool, by)
	w.arm()
}

// count adds to the counted writes of a pool. mu is held.
func (w *Worker) count(pool odb.PoolID, by odb.Growth) {
	before := w.grown[pool]
	sum := odb.Growth{
		ObjectCount:  before.ObjectCount + by.ObjectCount,
		HotBytes:     before.HotBytes + by.HotBytes,
		SegmentCount: before.SegmentCount + by.SegmentCount,
		Owner:        cmp.Or(by.Owner, before.Owner),
	}
	w.grown[pool] = sum
	if !w.isDue(before) && w.isDue(sum) {
		w.due.add(duePool{pool, sum.Owner})
	}
}

// arm wakes the worker if a pool waits. mu is held.
func (w *Worker) arm() {
	if w.due.count == 0 {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Worker) isDue(g odb.Growth) bool {
	s := &w.settings
	return g.ObjectCount >= s.HotCount || g.HotBytes >= s.HotBytes || g.SegmentCount >= s.SegmentCount
}

// Start starts the compaction of pools that have grown, on host and on one goroutine, until Stop.
func (w *Worker) Start(host Host) {
	ctx, cancel := context.WithCancel(context.Background())
	w.host, w.cancel = host, cancel
	rescue.Go(&w.ended, func() error {
		w.run(ctx)
		return nil
	}, func(err error) { w.note(ctx, "run", err) })
}

// Stop cancels the running work and waits for its end.
func (w *Worker) Stop() {
	if w.cancel != nil {
		w.cancel()
		w.ended.Wait()
	}
}

// Stats returns the counts since the start.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	due := w.due.count + len(w.later)
	w.mu.Unlock()
	return Stats{
		Compactions: w.compactions.Load(), ObjectCount: w.objects.Load(),
		Rounds: w.rounds.Load(), Failures: w.failures.Load(), Postponed: w.postponed.Load(), DueCount: due,
	}
}

// run compacts pools until ctx ends.
func (w *Worker) run(ctx context.Context) {
	again := time.NewTicker(w.settings.SweepInterval)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.wake:
			w.alone(ctx, w.compactNext)
		case <-again.C:
			if !w.keeps.Load() { // another server sweeps, or has swept
				w.takeUp()
			}
		}
	}
}

// Keep does the rounds and sweeps of a store on host until ctx ends. Of the servers that share a
// store one does so.
func (w *Worker) Keep(ctx context.Context, host Host) {
	w.keeps.Store(true)
	defer w.keeps.Store(false)
	sweep := time.NewTicker(w.settings.SweepInterval)
	defer sweep.Stop()
	round := time.NewTimer(w.untilRound(ctx, host))
	defer round.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-sweep.C:
			w.alone(ctx, func(ctx context.Context) {
				w.note(ctx, "delete obsolete files", rescue.Do(func() error { return host.Sweep(ctx) }))
			})
			w.takeUp()
		case <-round.C:
			begun, interval := time.Now(), w.settings.RoundInterval
			w.alone(ctx, func(ctx context.Context) {
				if isAway(w.round(ctx, host)) {
					interval = min(interval, w.settings.SweepInterval)
				}
			})
			round.Reset(max(interval-time.Since(begun), 0))
		}
	}
}

// alone does a step when no other is under way. Sweeps run between compactions even under constant
// load, because the replaced files would fill the disk otherwise.
func (w *Worker) alone(ctx context.Context, step func(context.Context)) {
	select {
	case w.step <- struct{}{}:
		defer func() { <-w.step }()
		step(ctx)
	case <-ctx.Done():
	}
}

// untilRound returns the time until the first round of this worker.
func (w *Worker) untilRound(ctx context.Context, host Host) time.Duration {
	left, err := host.UntilRound(ctx, w.settings.RoundInterval)
	w.note(ctx, "read the time of the last round", err)
	if err != nil {
		return w.settings.RoundInterval
	}
	return min(max(left, 0), w.settings.RoundInterval)
}

func (w *Worker) pace() packgen.RepackOptions {
	return packgen.RepackOptions{Workers: 1, Pause: w.settings.Pause}
}

// compactNext compacts the pool whose turn it is.
func (w *Worker) compactNext(ctx context.Context) {
	next, ok := w.take()
	if !ok {
		return
	}
	pool := next.pool
	begun := time.Now()
	options := repack.CompactOptions{RepackOptions: w.pace()}
	options.Owner = next.owner
	var done repack.Compacted
	err := rescue.Do(func() (err error) {
		done, err = w.host.Compact(ctx, pool, options)
		return err
	})
	if _, ok := errors.AsType[*rescue.PanicError](err); ok {
		w.mu.Lock()
		w.later = append(w.later, next)
		w.mu.Unlock()
	}
	w.note(ctx, "compact", err)
	if IsPostponed(err) || isAway(err) {
		w.mu.Lock()
		w.later = append(w.later, next)
		w.mu.Unlock()
	}
	if err == nil && done.LayerCount > 0 {
		w.compactions.Add(1)
		w.objects.Add(uint64(done.ObjectCount))
		w.log.InfoContext(ctx, "layers compacted", "pool", pool.String(), "layers", done.LayerCount,
			"objects", done.ObjectCount,
			"bytes", done.PackedBytes, "duration", time.Since(begun))
	}
}

// round resets the counts: a round maintains everything written before it, and pools without writes
// take no memory.
func (w *Worker) round(ctx context.Context, host Host) error {
	w.mu.Lock()
	grown, due := w.grown, w.due
	w.grown, w.due = make(map[odb.PoolID]odb.Growth), rota{}
	w.mu.Unlock()
	err := rescue.Do(func() error { return host.Round(ctx, w.pace()) })
	w.note(ctx, "maintain all repositories", err)
	if err != nil {
		w.giveBack(grown, due)
	}
	w.rounds.Add(1)
	return err
}

// giveBack restores the counts and the queue that a failed round had taken over; those pools go
// before newer ones.
func (w *Worker) giveBack(grown map[odb.PoolID]odb.Growth, due rota) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, passed := w.grown, w.due
	w.grown, w.due = grown, due
	for next, ok := passed.take(); ok; next, ok = passed.take() {
		w.count(next.pool, since[next.pool])
		delete(since, next.pool)
	}
	for pool, by := range since {
		w.count(pool, by)
	}
	w.arm()
}

// take returns the pool whose turn it is.
func (w *Worker) take() (duePool, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, ok := w.due.take()
	if ok {
		delete(w.grown, next.pool)
		w.arm()
	}
	return next, ok
}

// takeUp requeues pools that were postponed, after a sweep.
func (w *Worker) takeUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pool := range w.later {
		w.due.add(pool)
	}
	w.later = nil
	w.arm()
}

// IsPostponed reports whether nothing is wrong but that the disk has no room.
func IsPostponed(err error) bool {
	return errors.Is(err, space.ErrNoRoom) || errors.Is(err, space.ErrShort) || errors.Is(err, space.ErrRecovering)
}

// isAway reports whether nothing is wrong but that the key-value store could not be reached.
func isAway(err error) bool {
	return errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrUnknown)
}

// note counts and logs a failure. Failed work is retried when it is due the next time, postponed
// work after the next sweep.
func (w *Worker) note(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	switch {
	case IsPostponed(err):
		w.postponed.Add(1)
		w.log.WarnContext(ctx, "maintenance waits for disk space", "step", what, "error", err)
	case isAway(err):
		w.postponed.Add(1)
		w.log.WarnContext(ctx, "maintenance waits for the store", "step", what, "error", err)
	default:
		w.failures.Add(1)
		w.log.ErrorContext(ctx, "maintenance failed", "step", what, "error", err)
	}
}
