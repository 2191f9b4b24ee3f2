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
	done   chan bool // has room for the one answer: whether it is overdrawn
}

// Grow takes more for a tenant who holds something already, beside what [Queue.Acquire] gave. He
// comes before all who hold nothing, in the order of arrival. What does not fit is taken
// nevertheless, beside the capacity, when nobody else has done so: of those who hold something and
// wait for each other one goes on, one organization after the other, and those of others who fit
// are not kept out. More than the capacity counts as that. Who has gone on like this may do so
// again: by says who it is.
//
// Errors: [ErrBusy], or the cause of ctx's end.
func (q *Queue) Grow(ctx context.Context, by any, t Tenant, share, amount int64) (release func(), err error) {
	q.mu.Lock()
	token, _ := q.enterLocked(t, share, amount)
	g := &grower{by: by, token: token, amount: min(amount, q.options.Capacity), done: make(chan bool, 1)}
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

// growLocked gives to those who wait for more: whom it fits, and one of the others if nobody is
// overdrawn.
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
		q.root.used -= g.amount // it is beside the capacity
		q.checkLocked(g.token)
		g.done <- true
	}
}

func (g *grower) org() string { return g.token.parent.parent.key }

// Spare takes for a tenant, without waiting, up to most of what is free for him, and leaves a
// quarter of that to others.
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
