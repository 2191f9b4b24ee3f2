package upstream

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// Settings are those of a [Worker]. Zero fields take their defaults.
type Settings struct {
	// Workers bounds the concurrent syncs; 4. One organization gets at most half of them.
	Workers int
	// RetryMin and RetryMax are the first pause after a failure and the longest one; 5 s, 1 h. Each
	// failure doubles it.
	RetryMin, RetryMax time.Duration
	// Logger logs failures and panics; none by default.
	Logger *slog.Logger
}

// SetDefaults sets zero fields to their defaults.
func (s *Settings) SetDefaults() {
	s.Workers = cmp.Or(s.Workers, 4)
	s.RetryMin = cmp.Or(s.RetryMin, 5*time.Second)
	s.RetryMax = cmp.Or(s.RetryMax, time.Hour)
	s.Logger = cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
}

// Pause is the time to wait after so many failures: doubled each time, with a jitter of a half.
func (s *Settings) Pause(attempts int) time.Duration {
	pause := s.RetryMax
	if attempts < 30 {
		pause = min(pause, s.RetryMin<<attempts)
	}
	return pause/2 + rand.N(pause) //nolint:gosec // it spreads load
}

// Host provides a [Worker] with syncs; package engine implements it. Its methods are called
// concurrently, for different repositories.
type Host interface {
	// Org returns the organization of a repository. One with [refs.ErrRepositoryNotFound] is dropped;
	// after another error the repository is due again later.
	Org(ctx context.Context, repo refs.RepoID) (string, error)
	// Sync syncs a repository and returns when that is due again, the zero time for when it is woken.
	// ran is false when there was nothing to do, or another server does it.
	Sync(ctx context.Context, repo refs.RepoID) (again time.Time, ran bool)
	// Pending finds the syncs that were due when other processes ended, and calls wake for each.
	// at may be the zero time.
	Pending(ctx context.Context, wake func(repo refs.RepoID, at time.Time)) error
}

// Worker runs the syncs of a server: as many at once as it may, and one of a repository at a time.
type Worker struct {
	settings Settings
	host     Host

	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	poke   chan struct{} // has the dispatcher look again

	mu      sync.Mutex // guards the fields below
	jobs    map[refs.RepoID]*job
	waiting schedule          // jobs by when they are due
	ready   map[string][]*job // due jobs by organization, in their order
	orgs    []string          // the organizations of ready, in the order of their turns
	running map[string]int    // by organization
	count   int               // of running
	stopped bool

	syncs, failures atomic.Uint64
}

// job is a repository that something is to be done about.
type job struct {
	repo refs.RepoID
	org  string
	due  time.Time
	// since is when it was first woken after the last sync that left nothing to do; zero when nothing
	// is to be done.
	since time.Time

	// At most one of the three is so.
	position int  // in the schedule, -1 outside of it
	queued   bool // is due, and waits for its turn
	running  bool

	again  bool               // was woken when it could not be scheduled
	now    bool               // and is not to wait for another try
	holds  int                // number of holders that prevent its syncs
	panics int                // in a row, of its runs
	stop   context.CancelFunc // of the run
	ended  chan struct{}      // closed when the run has ended
}

// Stats are counts since the worker was made.
type Stats struct {
	Syncs, Failures uint64
	// Running is the number of running syncs, Waiting that of repositories that wait for their turn
	// or a retry.
	Running, Waiting int
	// Lag is the time since the repository was woken that has waited for a complete sync for longest,
	// or since this worker found it; 0 for none.
	Lag time.Duration
}

// NewWorker returns a worker that [Worker.Start] starts. It may be woken before that.
func NewWorker(settings Settings) *Worker {
	settings.SetDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	return &Worker{
		settings: settings, ctx: ctx, cancel: cancel, poke: make(chan struct{}, 1),
		jobs: make(map[refs.RepoID]*job), ready: make(map[string][]*job), running: make(map[string]int),
	}
}

// Start starts the worker for host, until Stop.
func (w *Worker) Start(host Host) {
	w.host = host
	w.guard("dispatch", w.dispatch)
}

// guard runs work until it returns. After a panic it begins again.
func (w *Worker) guard(what string, work func()) {
	rescue.Keep(w.ctx, &w.ended, time.Minute, func(context.Context) error {
		work()
		return nil
	}, func(err error) {
		w.settings.Logger.ErrorContext(w.ctx, "failed to schedule upstream syncs", "step", what, "error", err)
	})
}

// Stop cancels what runs, and waits for its end.
func (w *Worker) Stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.cancel()
	w.ended.Wait()
}

// Stats returns the counts.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Syncs: w.syncs.Load(), Failures: w.failures.Load(), Running: w.count, Waiting: len(w.jobs) - w.count}
	now := time.Now()
	for _, j := range w.jobs {
		if !j.since.IsZero() {
			s.Lag = max(s.Lag, now.Sub(j.since))
		}
	}
	return s
}

// Failed counts a sync that has failed.
func (w *Worker) Failed() { w.failures.Add(1) }

// Wake makes a sync of a repository due, unless it waits for another try after a failure: then that
// one will do.
func (w *Worker) Wake(repo refs.RepoID) { w.wake(repo, time.Time{}, false) }

// WakeNow makes a sync of a repository due at once, even during a pause.
func (w *Worker) WakeNow(repo refs.RepoID) { w.wake(repo, time.Time{}, true) }

func (w *Worker) wake(repo refs.RepoID, at time.Time, hasten bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j, known := w.jobs[repo]
	switch {
	case w.stopped:
		return
	case known && j.queued, known && j.position >= 0 && !hasten:
		return // it will be tried
	case known && j.position < 0: // it runs, or is held
		j.again, j.now = true, j.now || hasten
		return
	case !known:
		j = &job{repo: repo, position: -1, since: time.Now()}
		w.jobs[repo] = j
	}
	j.due = at
	w.schedule(j)
}

// schedule puts a job where it is found when it is due. The caller holds mu.
func (w *Worker) schedule(j *job) {
	if j.position < 0 {
		heap.Push(&w.waiting, j)
	} else {
		heap.Fix(&w.waiting, j.position)
	}
	w.look()
}

func (w *Worker) look() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Busy reports whether a sync of the repository runs or is about to.
func (w *Worker) Busy(repo refs.RepoID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	j, known := w.jobs[repo]
	return known && (j.running || j.queued || j.position >= 0 && !j.due.After(time.Now()))
}

// Cancel ends the sync of a repository that runs, without a wait for its end.
func (w *Worker) Cancel(repo refs.RepoID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j, known := w.jobs[repo]; known && j.running {
		j.stop()
	}
}

// Hold cancels a running sync of a repository, waits for its end, and prevents another until
// release is called, exactly once. Errors: that of ctx, when the sync does not end before.
func (w *Worker) Hold(ctx context.Context, repo refs.RepoID) (release func(), err error) {
	w.mu.Lock()
	j, known := w.jobs[repo]
	if !known {
		j = &job{repo: repo, position: -1}
		w.jobs[repo] = j
	}
	j.holds++
	if j.position >= 0 {
		heap.Remove(&w.waiting, j.position)
		j.again = true
	}
	ended := j.ended
	if j.running {
		j.stop()
	}
	w.mu.Unlock()
	release = func() { w.release(j) }
	if ended == nil {
		return release, nil
	}
	select {
	case <-ended:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}

func (w *Worker) release(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.holds--
	w.settle(j)
}

// settle decides what becomes of a job that does not run. The caller holds mu.
func (w *Worker) settle(j *job) {
	switch {
	case j.running || j.holds > 0 || j.queued || j.position >= 0:
	case j.again:
		j.again, j.now, j.due = false, false, time.Time{}
		if j.since.IsZero() {
			j.since = time.Now()
		}
		w.schedule(j)
	default:
		delete(w.jobs, j.repo)
	}
}

// dispatch starts due syncs until the worker is stopped; then it waits for the running ones.
func (w *Worker) dispatch() {
	for {
		next := w.begin()
		timer := time.NewTimer(next)
		select {
		case <-w.ctx.Done():
			timer.Stop()
			return
		case <-w.poke:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// FindPending finds the syncs that were due when other processes over the store ended, and wakes
// each. It goes on until it has found all, or ctx ends, whose error it returns then.
func (w *Worker) FindPending(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := w.host.Pending(ctx, func(repo refs.RepoID, at time.Time) { w.wake(repo, at, false) })
		if err == nil {
			return nil
		}
		if err := fair.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// idle is the sleep of the dispatcher when nothing is due.
const idle = time.Hour

// begin starts the syncs that may start, and returns the time until the next one is due.
func (w *Worker) begin() time.Duration {
	for w.ctx.Err() == nil {
		w.mu.Lock()
		if len(w.waiting) == 0 || time.Until(w.waiting[0].due) > 0 {
			w.startReady()
			next := idle
			if len(w.waiting) > 0 {
				next = min(idle, time.Until(w.waiting[0].due))
			}
			w.mu.Unlock()
			return next
		}
		j := heap.Pop(&w.waiting).(*job)
		j.queued = true
		w.mu.Unlock()
		var org string
		err := rescue.Do(func() (err error) { // a panic does not lose the job
			org, err = w.host.Org(w.ctx, j.repo)
			return err
		})
		w.mu.Lock()
		j.org = org
		switch {
		case errors.Is(err, refs.ErrRepositoryNotFound):
			j.queued = false
			w.settle(j)
		case err != nil:
			w.settings.Logger.WarnContext(w.ctx, "failed to schedule upstream syncs", "step", "find the organization",
				"error", err)
			j.queued, j.due = false, time.Now().Add(w.settings.Pause(0))
			if j.again = j.holds > 0; !j.again {
				w.schedule(j)
			}
		default:
			if len(w.ready[org]) == 0 {
				w.orgs = append(w.orgs, org)
			}
			w.ready[org] = append(w.ready[org], j)
		}
		w.mu.Unlock()
	}
	return 0
}

// startReady starts ready jobs, the organizations taking turns. The caller holds mu.
func (w *Worker) startReady() {
	share := max(1, w.settings.Workers/2)
	for looked := 0; looked < len(w.orgs) && w.count < w.settings.Workers; {
		org := w.orgs[0]
		w.orgs = w.orgs[1:]
		if w.running[org] >= share {
			w.orgs = append(w.orgs, org)
			looked++
			continue
		}
		j := w.ready[org][0]
		w.ready[org] = w.ready[org][1:]
		if len(w.ready[org]) > 0 {
			w.orgs = append(w.orgs, org)
		} else {
			delete(w.ready, org)
		}
		looked = 0
		j.queued = false
		if j.holds > 0 {
			j.again = true
			continue
		}
		w.start(j)
	}
}

// start runs a job. The caller holds mu.
func (w *Worker) start(j *job) {
	ctx, stop := context.WithCancel(w.ctx)
	j.running, j.again, j.now, j.stop, j.ended = true, false, false, stop, make(chan struct{})
	w.running[j.org]++
	w.count++
	rescue.Go(&w.ended, func() error {
		again, ran := w.sync(ctx, j)
		stop()
		if ran {
			w.syncs.Add(1)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count--
		if w.running[j.org]--; w.running[j.org] == 0 {
			delete(w.running, j.org)
		}
		j.running = false
		close(j.ended)
		j.ended = nil
		if again.IsZero() {
			j.since = time.Time{}
		}
		switch {
		case again.IsZero() || j.now:
			w.settle(j)
		case j.holds > 0:
			j.again = true
		default:
			j.again, j.due = false, again
			w.schedule(j)
		}
		w.look()
		return nil
	}, func(err error) {
		w.settings.Logger.ErrorContext(w.ctx, "failed to schedule upstream syncs", "step", "end", "error", err)
	})
}

// sync syncs a repository. After a panic it is due again as after a failure.
func (w *Worker) sync(ctx context.Context, j *job) (again time.Time, ran bool) {
	err := rescue.Do(func() error {
		again, ran = w.host.Sync(ctx, j.repo)
		return nil
	})
	if err != nil {
		w.failures.Add(1)
		w.settings.Logger.ErrorContext(ctx, "panic in an upstream sync", "repository", j.repo.String(), "error", err)
		j.panics++
		return time.Now().Add(w.settings.Pause(j.panics - 1)), true
	}
	j.panics = 0
	return again, ran
}

// schedule is a heap of jobs by when they are due.
type schedule []*job

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, k int) bool { return s[i].due.Before(s[k].due) }
func (s schedule) Swap(i, k int) {
	s[i], s[k] = s[k], s[i]
	s[i].position, s[k].position = i, k
}

// Push implements [heap.Interface].
func (s *schedule) Push(x any) {
	j := x.(*job)
	j.position = len(*s)
	*s = append(*s, j)
}

// Pop implements [heap.Interface].
func (s *schedule) Pop() any {
	last := len(*s) - 1
	j := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	j.position = -1
	return j
}
