package fair

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/rescue"
	"packhorse/pack/invariants"
)

// lapse is how long a request may be served without a [Pause] or a [Rest] until its turn passes to
// others: it waits for something then, or there is nothing to lose.
const lapse = 10 * time.Millisecond

// serving is the turn of the goroutine that serves a request, from [Account.Begin] to
// [Account.End]. [Rest] gives it back until its wait is over, and so does [Do], except for the
// first computations of a light request.
type serving struct {
	since  atomic.Int64 // when the turn began, by [Processors.clock], or a state; changed under the lock of the processors
	pauses sync.Mutex   // held during a pause; other goroutines of the same request skip it

	owed time.Duration // charged when the next turn ends; set before it

	// Guarded by the lock of the processors.
	token         *node
	began         int64 // what the processors had worked when the turn began, or was charged last
	ended         bool
	before, after *Account // in the list of those in a turn
}

// States of a serving in place of a time.
const (
	inNoTurn int64 = 0
	lapsed   int64 = -1
)

// Begin waits for the turn of the goroutine that serves the request. It is called once, as
// [Account.End]. A light request is one that computes little as a rule: [Do] goes on in its turn
// for a while. owed is what was computed for the request before, such as the check of its token. It
// is charged, too.
//
// Errors: the cause of ctx's end.
func (a *Account) Begin(ctx context.Context, light bool, owed time.Duration) error {
	a.light, a.serving.owed = light, min(owed, lapse)
	return a.start(ctx, false)
}

// Serve runs work of the background for a tenant, in a turn like that of a light request. The turn
// is given back by [Rest] in what work does with its context.
//
// Errors: those of work; the cause of ctx's end.
func (p *Processors) Serve(ctx context.Context, t Tenant, work func(ctx context.Context) error) error {
	a := p.Account(t, 0)
	if err := a.Begin(ctx, true, 0); err != nil {
		return err
	}
	defer a.End()
	return work(With(ctx, a))
}

// start waits for the turn. With goesOn the caller gets it even if ctx has ended.
func (a *Account) start(ctx context.Context, goesOn bool) error {
	p := a.processors
	p.mu.Lock()
	if a.serving.ended {
		p.mu.Unlock()
		return nil
	}
	now := time.Now()
	p.arriveLocked(a.tenant, now)
	if p.requests.held == 0 && p.requests.waiting == 0 {
		a.serving.token = p.enterLocked(&p.requests, a.tenant)
		a.startLocked(now)
		p.mu.Unlock()
		return nil
	}
	w := a.queueLocked()
	repo := a.serving.token.parent
	ahead := repo.used > repo.parent.start || repo.parent.used > p.requests.start
	p.mu.Unlock()
	if ahead {
		// Who else can run comes to the queue before the next one is chosen: otherwise the turns would go
		// to requests in the order in which they arrive.
		runtime.Gosched()
	}
	return a.enter(ctx, w, goesOn)
}

// queueLocked puts a into the queue.
func (a *Account) queueLocked() *waiter {
	p := a.processors
	a.serving.token = p.enterLocked(&p.requests, a.tenant)
	w := &waiter{token: a.serving.token, serves: a, done: make(chan error, 1)}
	p.tick++
	w.join(p.tick)
	p.waiters.Add(1)
	return w
}

// enter waits for the turn of w.
func (a *Account) enter(ctx context.Context, w *waiter, goesOn bool) error {
	p := a.processors
	p.mu.Lock()
	p.dispatchLocked(time.Now())
	p.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	default:
	}
	err := p.await(ctx, w, goesOn)
	// A goroutine that another one wakes goes first, in the time slice of that one. From turn to turn
	// such a chain would last for 10 ms, and keep from the processor whoever has just received a
	// request.
	runtime.Gosched()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case a.serving.since.Load() <= 0:
	case a.serving.ended: // it has ended meanwhile, and another goroutine of the request waited
		a.endLocked(now)
		p.dispatchLocked(now)
	default:
		a.beginLocked(now) // what it waited is not its own
	}
	return err
}

// End ends the turn.
func (a *Account) End() {
	p := a.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.serving.since.Load() > 0 {
		now := time.Now()
		a.endLocked(now)
		p.dispatchLocked(now)
	}
	a.serving.since.Store(inNoTurn)
	a.serving.ended = true
}

// leave gives the turn back, and reports whether there was one: [Account.goOn] then waits for it
// again.
func (a *Account) leave() bool {
	if a.serving.since.Load() == inNoTurn {
		return false
	}
	p := a.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	switch since := a.serving.since.Load(); {
	case since > 0:
		now := time.Now()
		a.endLocked(now)
		p.dispatchLocked(now)
	case since == inNoTurn:
		return false
	}
	a.serving.since.Store(inNoTurn)
	return true
}

// rest is [Rest] in this turn.
func (a *Account) rest(ctx context.Context, wait func() error) error {
	if !a.leave() {
		return wait()
	}
	defer a.goOn(ctx)
	return wait()
}

// goOn waits for the turn after a [Account.leave], even if ctx ends.
func (a *Account) goOn(ctx context.Context) {
	_ = a.start(context.WithoutCancel(ctx), true) // which fails only if its context ends
}

// isServed reports whether there is a turn.
func (a *Account) isServed() bool { return a.serving.since.Load() > 0 }

// isServedSince reports whether a turn has lasted for a while.
func (a *Account) isServedSince(now time.Time, long time.Duration) bool {
	since := a.serving.since.Load()
	return since == lapsed || since > 0 && a.processors.since(now, since) >= long
}

// pause is [Pause] outside of a turn of [Do].
func (a *Account) pause(ctx context.Context) error {
	since := a.serving.since.Load()
	if since == inNoTurn {
		return nil
	}
	now := time.Now()
	if since != lapsed && a.processors.clock(now)-since < int64(quantum) || !a.serving.pauses.TryLock() {
		return nil
	}
	defer a.serving.pauses.Unlock()
	w := a.requeue(now)
	switch {
	case a.exceeded():
		if w != nil {
			a.processors.leave(w, true)
		}
		return ErrWork
	case w == nil:
		return nil
	default:
		return a.enter(ctx, w, true)
	}
}

// requeue charges the time since the turn began. If others wait it ends the turn, and puts a into
// the queue.
func (a *Account) requeue(now time.Time) *waiter {
	p, s := a.processors, &a.serving
	p.mu.Lock()
	defer p.mu.Unlock()
	switch since := s.since.Load(); {
	case since == inNoTurn:
		return nil
	case since == lapsed:
		s.since.Store(inNoTurn)
	case p.requests.waiting == 0:
		a.rechargeLocked(now)
		return nil
	default:
		a.endLocked(now)
	}
	return a.queueLocked()
}

// recharge charges the time since the turn began.
func (a *Account) recharge(now time.Time) {
	a.processors.mu.Lock()
	defer a.processors.mu.Unlock()
	if a.serving.since.Load() > 0 {
		a.rechargeLocked(now)
	}
}

func (a *Account) rechargeLocked(now time.Time) {
	a.chargeLocked(a.serving.token, a.workedLocked(now))
	a.beginLocked(now)
}

// beginLocked makes the turn begin now.
func (a *Account) beginLocked(now time.Time) {
	p, s := a.processors, &a.serving
	p.workLocked(now)
	s.began = p.worked
	s.since.Store(p.clock(now))
}

// workedLocked is the processor time of the turn until now.
func (a *Account) workedLocked(now time.Time) time.Duration {
	p := a.processors
	p.workLocked(now)
	return min(lapse, time.Duration(p.worked-a.serving.began))
}

// startLocked begins the turn.
func (a *Account) startLocked(now time.Time) {
	p, s := a.processors, &a.serving
	if invariants.Enabled {
		invariants.Check(s.since.Load() <= 0, "fair: a request is served twice")
	}
	p.startLocked(s.token, now)
	a.beginLocked(now)
	s.before = p.newest
	if p.newest = a; s.before != nil {
		s.before.serving.after = a
	} else {
		p.oldest = a
	}
}

// endLocked charges the turn and ends it.
func (a *Account) endLocked(now time.Time) {
	p, s := a.processors, &a.serving
	a.chargeLocked(s.token, s.owed+a.workedLocked(now))
	s.owed = 0
	p.endLocked(s.token, now)
	s.since.Store(inNoTurn)
	if s.before != nil {
		s.before.serving.after = s.after
	} else {
		p.oldest = s.after
	}
	if s.after != nil {
		s.after.serving.before = s.before
	} else {
		p.newest = s.before
	}
	s.before, s.after = nil, nil
}

// watchLocked makes turns of [Account.Begin] lapse while others wait.
func (p *Processors) watchLocked() {
	if p.watched || p.oldest == nil || p.requests.waiting == 0 {
		return
	}
	p.watched = true
	rescue.After(lapse, func() error {
		p.watch()
		return nil
	}, func(err error) { // the next one to wait starts another watch
		slog.Error("fair: failed to end the turns of requests that wait", "error", err)
	})
}

func (p *Processors) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched = false
	now := time.Now()
	for a := p.oldest; a != nil && p.requests.waiting > 0 && p.since(now, a.serving.since.Load()) >= lapse; a = p.oldest {
		a.endLocked(now)
		a.serving.since.Store(lapsed)
	}
	p.dispatchLocked(now)
}

// clock is a time in nanoseconds, more than 0, which never goes back.
func (p *Processors) clock(now time.Time) int64 { return int64(now.Sub(p.made)) + 1 }

func (p *Processors) since(now time.Time, clock int64) time.Duration {
	return time.Duration(p.clock(now) - clock)
}
