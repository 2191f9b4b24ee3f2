// Package fair divides shared resources among tenants: memory and slots by [Queue], processor time
// by [Processors].
//
// A tenant is an organization, a repository in it, and a token for that. The tenant with the least
// use comes first: first among the organizations, then among the repositories of that organization,
// then among the tokens, then in the order of arrival. The package knows neither git nor HTTP.
package fair

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"packhorse/pack/invariants"
)

// ErrBusy says that a request was refused: it has waited for too long, or too many requests of its
// tenant wait.
var ErrBusy = errors.New("fair: too many requests are waiting")

// Tenant names the organization, repository and token of a request.
type Tenant struct {
	Org, Repo, Token string
}

// Options are the settings of a [Queue].
type Options struct {
	// Capacity is the total amount.
	Capacity int64
	// Share is the amount that one organization may hold; half of the capacity if 0.
	Share int64
	// RepoShare is the part of an organization's share, in quarters, that one repository may hold; all
	// of it if 0.
	RepoShare int64
	// LeavesRoom says that an organization which holds something gets no more than would still be
	// free: so something is left for those that hold nothing, however many take all that they may.
	LeavesRoom bool
	// Waiting is the maximum number of waiters. One organization may have half of them, and one
	// repository half of that.
	Waiting int
	// Wait is how long a request waits before it is refused.
	Wait time.Duration
}

// Queue divides a quantity, bytes or slots.
//
// Requests that do not fit wait. A released amount goes to the organization that holds least, in it
// to the repository that holds least, and in that to the token; among equals, to the one that was
// served longest ago. An organization or a repository that holds its share is skipped. The next
// waiter is not overtaken if it does not fit, so that small amounts do not starve large ones. If
// too many wait, the queue refuses the newest waiter of the tenant with most waiters, so that a
// full queue does not refuse tenants with few requests.
//
// A request that holds something and needs more goes first: see [Queue.Grow].
//
// Each operation takes time logarithmic in the number of waiters. All methods may be called
// concurrently.
type Queue struct {
	options Options

	mu   sync.Mutex
	root node  // guarded by mu, with all below it
	tick int64 // guarded by mu: counts admissions and arrivals

	growers    []*grower // guarded by mu; requests that hold something and wait for more, in the order of arrival
	overdrafts int       // guarded by mu: number of grants beyond the capacity that overdrawer holds
	overdrawer any       // guarded by mu
	overdrew   string    // guarded by mu: the organization of the last one
}

// waiter is a request in the queue.
type waiter struct {
	token  *node
	amount int64
	done   chan error // capacity for the one answer, which is sent under the lock of the queue

	// Who waits for a turn at the processors: a request, or a computation.
	serves   *Account
	computes *turn
	before   *waiter // in the queue of its token
	after    *waiter
}

// join appends w to its token's queue. It unblocks the nodes on the way up.
func (w *waiter) join(arrival int64) {
	w.token.push(w)
	for n := w.token; n != nil; n = n.parent {
		n.waiting++
		n.arrival = arrival
		n.unblock()
	}
}

// part removes w from its token's queue, and unblocks the nodes on the way up.
func (w *waiter) part() {
	w.token.drop(w)
	for n := w.token; n != nil; n = n.parent {
		n.waiting--
		n.unblock()
	}
}

// NewQueue returns an empty queue.
func NewQueue(o Options) *Queue {
	if o.Share <= 0 {
		o.Share = max(1, o.Capacity/2)
	}
	if o.RepoShare <= 0 {
		o.RepoShare = quarters
	}
	o.Share = min(o.Share, o.Capacity)
	q := &Queue{options: o}
	q.root.limit = o.Capacity
	return q
}

const quarters = 4

// Max is the largest amount for one request of an organization with this share; 0 is the default
// share.
func (q *Queue) Max(share int64) int64 {
	if share <= 0 {
		share = q.options.Share
	}
	return q.repoLimit(min(share, q.options.Capacity))
}

func (q *Queue) repoLimit(share int64) int64 {
	return max(1, share/quarters*q.options.RepoShare+share%quarters*q.options.RepoShare/quarters)
}

// Acquire takes amount for a tenant and returns the function that gives it back, which may be
// called more than once. share is the limit of the organization, the default if it is 0. An amount
// above [Queue.Max] counts as that maximum. A turn at the processors is given back during the wait.
//
// Errors: [ErrBusy], or the cause of ctx's end.
func (q *Queue) Acquire(ctx context.Context, t Tenant, share, amount int64) (release func(), err error) {
	q.mu.Lock()
	token, amount := q.enterLocked(t, share, amount)
	if q.root.waiting == 0 && q.fullFor(token, amount) == nil {
		q.takeLocked(token, amount)
		q.checkLocked(token)
		q.mu.Unlock()
		return q.giveBack(token, amount, false), nil
	}
	w := &waiter{token: token, amount: amount, done: make(chan error, 1)}
	q.tick++
	w.join(q.tick)
	q.dispatchLocked()
	if q.boundLocked(token) {
		q.dispatchLocked() // the refused waiter may have stood before others
	}
	q.mu.Unlock()
	return q.await(ctx, w)
}

// TryAcquire is Acquire without waiting. It reports whether there was room.
func (q *Queue) TryAcquire(t Tenant, share, amount int64) (release func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	token, amount := q.enterLocked(t, share, amount)
	if q.root.waiting > 0 || q.fullFor(token, amount) != nil {
		return nil, false
	}
	q.takeLocked(token, amount)
	q.checkLocked(token)
	return q.giveBack(token, amount, false), true
}

// await waits until w is admitted or refused.
func (q *Queue) await(ctx context.Context, w *waiter) (release func(), err error) {
	err = Rest(ctx, func() error {
		timer := time.NewTimer(q.options.Wait)
		defer timer.Stop()
		select {
		case err := <-w.done:
			return err
		case <-timer.C:
			return q.leave(w, ErrBusy)
		case <-ctx.Done():
			return q.leave(w, context.Cause(ctx))
		}
	})
	if err != nil {
		return nil, err
	}
	return q.giveBack(w.token, w.amount, false), nil
}

// leave removes w from the queue because of err, which it returns unless w was answered at the last
// moment.
func (q *Queue) leave(w *waiter, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case answer := <-w.done:
		return answer
	default:
	}
	w.part()
	q.dispatchLocked() // w may have stood before others
	return err
}

func (q *Queue) giveBack(token *node, amount int64, overdrawn bool) func() {
	given := false // guarded by mu
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if given {
			return
		}
		given = true
		if overdrawn {
			q.overdrafts--
			q.root.used += amount
		}
		for n := token; n != nil; n = n.parent {
			n.used -= amount
			n.unblock()
		}
		q.checkLocked(token)
		q.growLocked()
		q.dispatchLocked()
	}
}

// Waits reports whether a request of an organization waits.
func (q *Queue) Waits(org string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.growers {
		if g.org() == org {
			return true
		}
	}
	n := q.root.children[org]
	return n != nil && n.waiting > 0
}

// State returns the amount taken and the number of waiters.
func (q *Queue) State() (used int64, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.root.used, q.root.waiting + len(q.growers)
}

// enterLocked returns the token's node, and the amount after its limits.
func (q *Queue) enterLocked(t Tenant, share, amount int64) (*node, int64) {
	if share <= 0 {
		share = q.options.Share
	}
	share = min(share, q.options.Capacity)
	token := q.root.find(t, q.tick)
	repo := token.parent
	token.limit, repo.limit, repo.parent.limit = math.MaxInt64, q.repoLimit(share), share
	return token, min(amount, repo.limit)
}

// fullFor returns the lowest node without room for amount, from a token upwards, nil if all have
// room. An organization that is to leave room holds something, whose release unblocks it.
func (q *Queue) fullFor(token *node, amount int64) *node {
	if full := token.fullFor(amount); full != nil || !q.options.LeavesRoom {
		return full
	}
	org := token.parent.parent
	if org.used > 0 && org.used+amount > q.options.Capacity-q.root.used {
		return org
	}
	return nil
}

func (q *Queue) takeLocked(token *node, amount int64) {
	q.tick++
	for n := token; n != nil; n = n.parent {
		n.used += amount
		n.served = q.tick
		n.sort()
	}
}

// checkLocked checks that no more is taken than the capacity, overdrafts aside, and no more given
// back than was taken.
func (q *Queue) checkLocked(token *node) {
	if !invariants.Enabled {
		return
	}
	for n := token; n != nil; n = n.parent {
		invariants.Check(n.used >= 0 && n.waiting >= 0,
			"fair: %q holds %d, and %d wait in it", n.key, n.used, n.waiting)
	}
	invariants.Check(q.root.used <= q.options.Capacity, "fair: %d given of %d", q.root.used, q.options.Capacity)
	invariants.Check(q.overdrafts >= 0, "fair: %d overdrafts", q.overdrafts)
}

// boundLocked refuses surplus waiters, of the greatest crowd below each bound, and reports whether
// there were any.
func (q *Queue) boundLocked(token *node) (sent bool) {
	bound := q.options.Waiting / 4
	for n := token.parent; n != nil; n = n.parent {
		for n.waiting > max(1, bound) {
			w := n.newest()
			w.part()
			w.done <- ErrBusy
			sent = true
		}
		bound *= 2
	}
	return sent
}

// dispatchLocked admits the next waiters while there is room.
func (q *Queue) dispatchLocked() {
	for {
		n := &q.root
		for n != nil && n.first == nil {
			n = n.next.first()
		}
		if n == nil {
			return // all waiters have reached their shares
		}
		w := n.first
		full := q.fullFor(n, w.amount)
		switch {
		case full == &q.root:
			return
		case full != nil:
			full.block()
		default:
			w.part()
			q.takeLocked(n, w.amount)
			q.checkLocked(n)
			w.done <- nil
		}
	}
}
