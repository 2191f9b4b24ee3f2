package fair

import (
	"context"
	"slices"
	"time"

	"packhorse/pack/invariants"
)

// grower is a request that holds something and waits for more.
type grower struct {
	by     any
	token  *node
	amount int64
	done   chan bool // capacity for the one answer: whether it is overdrawn
}

// Grow acquires more for a tenant that already holds something from [Queue.Acquire]. Growers are
// served before all requests that hold nothing, in the order of arrival. If several growers wait
// for each other, one of them at a time is admitted beyond the capacity, so that they cannot
// deadlock; the organizations take turns, and other growers that fit are still admitted. An amount
// above the capacity counts as the capacity. by identifies the request: one that was admitted
// beyond the capacity may be admitted so again. A turn at the processors is given back during the
// wait.
//
// Errors: [ErrBusy], or the cause of ctx's end.
func (q *Queue) Grow(ctx context.Context, by any, t Tenant, share, amount int64) (release func(), err error) {
	q.mu.Lock()
	token, _ := q.enterLocked(t, share, amount)
	g := &grower{by: by, token: token, amount: min(amount, q.options.Capacity), done: make(chan bool, 1)}
	q.growers = append(q.growers, g)
	q.growLocked()
	q.mu.Unlock()
	select {
	case overdrawn := <-g.done:
		return q.giveBack(token, g.amount, overdrawn), nil
	default:
	}
	err = Rest(ctx, func() (err error) {
		release, err = q.awaitGrowth(ctx, g)
		return err
	})
	return release, err
}

// awaitGrowth waits until g is admitted or refused.
func (q *Queue) awaitGrowth(ctx context.Context, g *grower) (release func(), err error) {
	timer := time.NewTimer(q.options.Wait)
	defer timer.Stop()
	select {
	case overdrawn := <-g.done:
		return q.giveBack(g.token, g.amount, overdrawn), nil
	case <-timer.C:
		return q.shrink(g, ErrBusy)
	case <-ctx.Done():
		return q.shrink(g, context.Cause(ctx))
	}
}

// shrink removes g from the queue because of err, unless g was answered at the last moment.
func (q *Queue) shrink(g *grower, err error) (release func(), _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.growers, g); i >= 0 {
		q.growers = slices.Delete(q.growers, i, i+1)
		return nil, err
	}
	return q.giveBack(g.token, g.amount, <-g.done), nil
}

// growLocked admits the growers that fit, and one of the others if no request is overdrawn.
func (q *Queue) growLocked() {
	q.growers = slices.DeleteFunc(q.growers, func(g *grower) bool {
		if !g.token.fits(g.amount) {
			return false
		}
		q.takeLocked(g.token, g.amount)
		q.checkLocked(g.token)
		g.done <- false
		return true
	})
	for {
		i := slices.IndexFunc(q.growers, func(g *grower) bool { return q.overdrafts > 0 && g.by == q.overdrawer })
		if q.overdrafts == 0 && len(q.growers) > 0 {
			i = max(0, slices.IndexFunc(q.growers, func(g *grower) bool { return g.org() != q.overdrew }))
		}
		if i < 0 {
			return
		}
		g := q.growers[i]
		if invariants.Enabled {
			invariants.Check(q.overdrafts == 0 || g.by == q.overdrawer, "fair: two requests are overdrawn")
		}
		q.growers = slices.Delete(q.growers, i, i+1)
		q.overdrafts++
		q.overdrawer, q.overdrew = g.by, g.org()
		q.takeLocked(g.token, g.amount)
		q.root.used -= g.amount // beyond the capacity
		q.checkLocked(g.token)
		g.done <- true
	}
}

func (g *grower) org() string { return g.token.parent.parent.key }

// Spare acquires for a tenant, without waiting, at most most of the free amount that the tenant may
// take. It leaves a quarter of that amount to others.
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
	q.checkLocked(token)
	return most, q.giveBack(token, most, false)
}
