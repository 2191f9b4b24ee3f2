package api

import (
	"context"
	"sync"
	"time"

	"packhorse/api/exchange"
)

// admission shares out a quantity, slots or bytes, among requests. One organization gets its share of it at most, so that it
// cannot keep the others out. Waiting requests are served in order, except that one whose organization has its share is passed over.
type admission struct {
	capacity int64
	share    int64 // of one organization, by default
	queueMax int
	wait     time.Duration

	mu    sync.Mutex
	used  int64            // guarded by mu
	byOrg map[string]int64 // guarded by mu; no zero values
	queue []*waiter        // guarded by mu
}

type waiter struct {
	org           string
	amount, share int64
	admitted      chan struct{} // closed under admission.mu
}

func newAdmission(capacity int64, queueMax int, wait time.Duration) *admission {
	return &admission{
		capacity: capacity, share: max(1, capacity/2), queueMax: queueMax, wait: wait,
		byOrg: make(map[string]int64),
	}
}

// acquire takes amount for an organization, whose share is the default when it is 0, and returns the function that gives it back. A
// larger amount than the share counts as the whole share. Errors: [exchange.ErrBusy], or the cause of ctx's end.
func (a *admission) acquire(ctx context.Context, org string, share, amount int64) (func(), error) {
	if share <= 0 {
		share = a.share
	}
	share = min(share, a.capacity)
	amount = min(amount, share)
	a.mu.Lock()
	if len(a.queue) == 0 && a.fitsLocked(org, share, amount) {
		a.takeLocked(org, amount)
		a.mu.Unlock()
		return a.giveBack(org, amount), nil
	}
	if len(a.queue) >= a.queueMax {
		a.mu.Unlock()
		return nil, exchange.ErrBusy
	}
	w := &waiter{org: org, amount: amount, share: share, admitted: make(chan struct{})}
	a.queue = append(a.queue, w)
	a.serveLocked() // the others in the queue may all be at their shares
	a.mu.Unlock()

	timer := time.NewTimer(a.wait)
	defer timer.Stop()
	var err error
	select {
	case <-w.admitted:
		return a.giveBack(org, amount), nil
	case <-timer.C:
		err = exchange.ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if a.leave(w) {
		return nil, err
	}
	return a.giveBack(org, amount), nil
}

// leave takes w out of the queue; it is false when w was admitted at the last moment.
func (a *admission) leave(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range a.queue {
		if other == w {
			a.queue = append(a.queue[:i], a.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (a *admission) giveBack(org string, amount int64) func() {
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.used -= amount
		if a.byOrg[org] -= amount; a.byOrg[org] == 0 {
			delete(a.byOrg, org)
		}
		a.serveLocked()
	})
}

func (a *admission) serveLocked() {
	waiting := a.queue[:0]
	blocked := false // by capacity: whoever comes later must not overtake
	for _, w := range a.queue {
		switch {
		case !blocked && a.fitsLocked(w.org, w.share, w.amount):
			a.takeLocked(w.org, w.amount)
			close(w.admitted)
			continue
		case a.byOrg[w.org]+w.amount <= w.share:
			blocked = true
		}
		waiting = append(waiting, w)
	}
	clear(a.queue[len(waiting):])
	a.queue = waiting
}

func (a *admission) fitsLocked(org string, share, amount int64) bool {
	return a.used+amount <= a.capacity && a.byOrg[org]+amount <= share
}

func (a *admission) takeLocked(org string, amount int64) {
	a.used += amount
	a.byOrg[org] += amount
}

// state returns how much is taken and how many wait.
func (a *admission) state() (used int64, waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used, len(a.queue)
}
