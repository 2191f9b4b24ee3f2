package fair

import (
	"context"
	"slices"
	"time"
)

// grower is a request that holds something and waits for more.
type grower struct {
	token  *node
	amount int64
	done   chan bool // has room for the one answer: whether it is overdrawn
}

// Grow takes more for a tenant who holds something already, beside what [Queue.Acquire] gave. He comes before all who hold nothing, in the
// order of arrival. What does not fit is taken nevertheless when nobody else holds more than fits: so of those who hold something and wait
// for each other one goes on, and at most the largest amount is held beyond the capacity. More than the capacity counts as that.
//
// Errors: [ErrBusy], or the cause of ctx's end.
func (q *Queue) Grow(ctx context.Context, t Tenant, share, amount int64) (release func(), err error) {
	q.mu.Lock()
	token, _ := q.enterLocked(t, share, amount)
	g := &grower{token: token, amount: min(amount, q.options.Capacity), done: make(chan bool, 1)}
	q.growers = append(q.growers, g)
	q.growLocked()
	q.mu.Unlock()
	timer := time.NewTimer(q.options.Wait)
	defer timer.Stop()
	select {
	case overdrawn := <-g.done:
		return q.giveBack(token, g.amount, overdrawn), nil
	case <-timer.C:
		return q.shrink(g, ErrBusy)
	case <-ctx.Done():
		return q.shrink(g, context.Cause(ctx))
	}
}

// shrink takes g out of those who wait because of err, unless it was answered at the last moment.
func (q *Queue) shrink(g *grower, err error) (release func(), _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.growers, g); i >= 0 {
		q.growers = slices.Delete(q.growers, i, i+1)
		return nil, err
	}
	return q.giveBack(g.token, g.amount, <-g.done), nil
}

// growLocked gives to those who wait for more: whom it fits, and the first of the others if nobody is overdrawn.
func (q *Queue) growLocked() {
	q.growers = slices.DeleteFunc(q.growers, func(g *grower) bool {
		fits := g.token.fits(g.amount)
		if !fits && q.overdrawn {
			return false
		}
		q.overdrawn = q.overdrawn || !fits
		q.takeLocked(g.token, g.amount)
		g.done <- !fits
		return true
	})
}

// Spare takes for a tenant, without waiting, up to most of what is free for him, and leaves a quarter of that to others.
func (q *Queue) Spare(t Tenant, share, most int64) (taken int64, release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	token, _ := q.enterLocked(t, share, most)
	if len(q.growers) > 0 || q.root.waiting > 0 {
		return 0, func() {}
	}
	for n := token; n != nil; n = n.parent {
		most = min(most, (n.limit-n.used)/quarters*(quarters-1))
	}
	if most <= 0 {
		return 0, func() {}
	}
	q.takeLocked(token, most)
	return most, q.giveBack(token, most, false)
}
