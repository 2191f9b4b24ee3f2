package fair

import (
	"context"
	"errors"
	"sync"
	"time"
)

type turnKey struct{}

// turn is the right to compute. It belongs to the goroutine that runs the function given to [Do].
type turn struct {
	account *Account
	mu      sync.Mutex // held by the goroutine that checks the turn; other goroutines of the same work skip the check
	lent    bool       // it is that of the request itself, as yet; guarded by mu
	token   *node      // guarded by mu, as began
	began   time.Time
}

// Do runs work in a turn at the processors, if ctx has an account. Work calls [Pause] about every
// millisecond. It must not wait for a client, nor for another turn, except within [Rest]. Inside a
// turn, Do only runs work.
//
// Errors: those of work; [ErrWork]; the cause of ctx's end.
func Do(ctx context.Context, work func(ctx context.Context) error) error {
	a, _ := ctx.Value(accountKey{}).(*Account)
	within, apart := turnOf(ctx)
	if a == nil || within != nil {
		return work(ctx)
	}
	t := &turn{account: a, lent: !apart && a.light && a.isServed() && a.Spent() < lightMax}
	served := t.lent
	if !t.lent {
		served = !apart && a.leave()
		if err := t.begin(ctx, false); err != nil {
			if served {
				a.goOn(ctx)
			}
			return err
		}
	}
	defer t.giveBack(ctx, served)
	if a.exceeded() {
		return ErrWork
	}
	return work(context.WithValue(ctx, turnKey{}, t))
}

// Pause lets other requests compute when it is their turn. Long computations call it often, in a
// turn or not.
//
// Errors: [ErrWork]; that of ctx.
func Pause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t, apart := turnOf(ctx)
	if t == nil {
		if a, _ := ctx.Value(accountKey{}).(*Account); a != nil && !apart {
			return a.pause(ctx)
		}
		return nil
	}
	if !t.mu.TryLock() {
		return nil
	}
	defer t.mu.Unlock()
	if t.lent {
		return t.outgrow(ctx)
	}
	now := time.Now()
	if now.Sub(t.began) < quantum {
		return nil
	}
	t.charge(now)
	if t.account.exceeded() {
		return ErrWork
	}
	p := t.account.processors
	if p.waiters.Load() == 0 && !p.crowded(t.account.tenant, now) {
		return nil
	}
	t.end()
	return t.begin(ctx, true)
}

// outgrow makes a turn that is lent by its request one of its own, when it has lasted for a while
// and others wait or compute.
func (t *turn) outgrow(ctx context.Context) error {
	a := t.account
	now := time.Now()
	if !a.isServedSince(now, quantum) {
		return nil
	}
	a.recharge(now)
	if a.exceeded() {
		return ErrWork
	}
	if a.Spent() < lightMax || !a.processors.compete() || !a.leave() {
		return nil
	}
	t.lent = false
	return t.begin(ctx, true)
}

// Rest runs wait, which blocks, and gives the turn back until wait returns or panics. Its error is
// that of wait.
func Rest(ctx context.Context, wait func() error) (err error) {
	t, apart := turnOf(ctx)
	if t == nil {
		if a, _ := ctx.Value(accountKey{}).(*Account); a != nil && !apart {
			return a.rest(ctx, wait)
		}
		return wait()
	}
	if !t.mu.TryLock() { // a Rest in a Rest, or beside a Pause of another goroutine
		return wait()
	}
	defer t.mu.Unlock()
	if t.lent {
		return t.account.rest(ctx, wait)
	}
	t.end()
	defer func() {
		if lost := t.begin(context.WithoutCancel(ctx), true); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return wait()
}

// Apart returns a context for a goroutine that works for ctx and takes turns of its own, even if
// ctx is within a turn.
func Apart(ctx context.Context) context.Context {
	if t, apart := turnOf(ctx); apart || t == nil && ctx.Value(accountKey{}) == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, (*turn)(nil))
}

// Beside returns a context for a goroutine that works for ctx. Within a turn of [Do] it works in
// that turn, otherwise it takes turns of its own.
func Beside(ctx context.Context) context.Context {
	if t, _ := turnOf(ctx); t != nil {
		return ctx
	}
	return Apart(ctx)
}

// turnOf returns the turn of [Do] that ctx is within, if any. Otherwise apart reports whether it is
// of [Apart], which the turn of [Account.Begin] does not concern.
func turnOf(ctx context.Context) (t *turn, apart bool) {
	t, is := ctx.Value(turnKey{}).(*turn)
	return t, is && t == nil
}

// charge accounts the time since the turn began.
func (t *turn) charge(now time.Time) {
	p := t.account.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	t.chargeLocked(now)
}

func (t *turn) chargeLocked(now time.Time) {
	took := now.Sub(t.began)
	t.account.chargeLocked(t.token, took)
	t.account.processors.debitLocked(t.account.tenant, took)
	t.began = now
}

// begin waits for a turn. With goesOn the caller gets a turn even if ctx has ended; the initiator
// of the work reports that end.
func (t *turn) begin(ctx context.Context, goesOn bool) error {
	p := t.account.processors
	now := time.Now()
	p.mu.Lock()
	t.token = p.enterLocked(&p.computes, t.account.tenant)
	if p.computes.waiting == 0 && p.computes.held < p.roomLocked(t.account.tenant, now) &&
		!p.isAheadLocked(t.account.tenant.Org) {
		p.startLocked(t.token, now)
		p.mu.Unlock()
		t.began = now
		return nil
	}
	w := &waiter{token: t.token, computes: t, done: make(chan error, 1)}
	p.tick++
	w.join(p.tick)
	p.waiters.Add(1)
	p.dispatchLocked(now)
	p.mu.Unlock()
	err := p.await(ctx, w, goesOn)
	t.began = time.Now()
	return err
}

// end gives the turn back.
func (t *turn) end() {
	now := time.Now()
	p := t.account.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	t.chargeLocked(now)
	p.endLocked(t.token, now)
	p.dispatchLocked(now)
}

// giveBack ends a turn, unless it is still that of the request. A request that was served goes on
// in a turn of its own.
func (t *turn) giveBack(ctx context.Context, served bool) {
	t.mu.Lock()
	lent := t.lent
	t.mu.Unlock()
	if lent {
		return
	}
	t.end()
	if served {
		t.account.goOn(ctx)
	}
}
