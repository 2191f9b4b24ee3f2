// Package fair shares out among tenants what requests compete for: memory and slots by [Queue], the
// processors by [Processors].
//
// A tenant is an organization, in it a repository, in it a token. Whoever has least comes first:
// among the organizations, then among the repositories of that one, then among its tokens, and
// there in the order of arrival. The package knows neither git nor HTTP.
package fair

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"packhorse/pack/invariants"
)

// ErrBusy says that a request was sent away: it has waited for too long, or too many of its own
// tenant wait.
var ErrBusy = errors.New("fair: too many requests are waiting")

// Tenant names who asks.
type Tenant struct {
	Org, Repo, Token string
}

// Options are the settings of a [Queue].
type Options struct {
	// Capacity is how much there is.
	Capacity int64
	// Share is what one organization may hold; half of the capacity when it is 0.
	Share int64
	// RepoShare is how much of an organization's share, in quarters, one repository may hold; all of
	// it when it is 0.
	RepoShare int64
	// Waiting is how many may wait. Half of that is open to one organization, and half of that again
	// to one repository.
	Waiting int
	// Wait is how long one of them waits before it is sent away.
	Wait time.Duration
}

// Queue shares out a quantity, bytes or slots.
//
// Who does not fit waits. What is given back goes to the organization that holds least, in it to
// the repository that holds least, and in that to the token; of equals, to the one that was served
// longest ago. An organization or a repository that holds its share is passed over. Who is next and
// does not fit is not overtaken, so that large amounts are not starved by small ones. When too many
// wait, the one goes that came last of those who wait in the greatest number, so that a full queue
// refuses nobody who asks for little.
//
// Who holds something and needs more comes before them: see [Queue.Grow].
//
// Each operation costs the logarithm of those who wait. All methods may be called concurrently.
type Queue struct {
	options Options

	mu   sync.Mutex
	root node  // guarded by mu, with all below it
	tick int64 // guarded by mu: counts what was served and who came

	growers    []*grower // guarded by mu; who hold something and wait for more, the first first
	overdrafts int       // guarded by mu: how often overdrawer was given what did not fit, and holds it
	overdrawer any       // guarded by mu
	overdrew   string    // guarded by mu: the organization of the last one
}

// waiter is a request in the queue.
type waiter struct {
	token  *node
	amount int64
	done   chan error // has room for the one answer, which is given under the lock of who shares out
	before *waiter    // in the queue of its token
	after  *waiter
}

// join puts w at the end of its token's queue. Those who were passed over on the way up are looked
// at again.
func (w *waiter) join(arrival int64) {
	w.token.push(w)
	for n := w.token; n != nil; n = n.parent {
		n.waiting++
		n.arrival = arrival
		n.unblock()
	}
}

// part takes w out of its token's queue, and lets those be looked at again who stood behind it.
func (w *waiter) part() {
	w.token.drop(w)
	for n := w.token; n != nil; n = n.parent {
		n.waiting--
		n.unblock()
	}
}

// NewQueue makes a queue that nobody waits in.
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

// Max is the most that one request of an organization with this share may take; 0 is the default
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
// called more than once. share is what the organization may hold, the default when it is 0. More
// than [Queue.Max] counts as that.
//
// Errors: [ErrBusy], or the cause of ctx's end.
func (q *Queue) Acquire(ctx context.Context, t Tenant, share, amount int64) (release func(), err error) {
	q.mu.Lock()
	token, amount := q.enterLocked(t, share, amount)
	if q.root.waiting == 0 && token.fits(amount) {
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
		q.dispatchLocked() // who left may have stood before others
	}
	q.mu.Unlock()
	return q.await(ctx, w)
}

// TryAcquire is Acquire for who cannot wait. It reports whether there was room.
func (q *Queue) TryAcquire(t Tenant, share, amount int64) (release func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	token, amount := q.enterLocked(t, share, amount)
	if q.root.waiting > 0 || !token.fits(amount) {
		return nil, false
	}
	q.takeLocked(token, amount)
	q.checkLocked(token)
	return q.giveBack(token, amount, false), true
}

// await waits until w is admitted or sent away.
func (q *Queue) await(ctx context.Context, w *waiter) (release func(), err error) {
	timer := time.NewTimer(q.options.Wait)
	defer timer.Stop()
	select {
	case err = <-w.done:
	case <-timer.C:
		err = q.leave(w, ErrBusy)
	case <-ctx.Done():
		err = q.leave(w, context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	return q.giveBack(w.token, w.amount, false), nil
}

// leave takes w out of the queue because of err, which it returns unless w was answered at the last
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

// Waits tells whether somebody of an organization waits.
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

// State returns how much is taken and how many wait.
func (q *Queue) State() (used int64, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.root.used, q.root.waiting + len(q.growers)
}

// enterLocked returns the token's node, and the amount as it counts.
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

func (q *Queue) takeLocked(token *node, amount int64) {
	q.tick++
	for n := token; n != nil; n = n.parent {
		n.used += amount
		n.served = q.tick
		n.sort()
	}
}

// checkLocked holds that no more is given than there is, but for the overdraft, and taken back than
// was given.
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

// boundLocked sends those away who are too many, of the greatest crowd below each bound, and
// reports whether there were any.
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

// dispatchLocked admits who is next, while there is room.
func (q *Queue) dispatchLocked() {
	for {
		n := &q.root
		for n != nil && n.first == nil {
			n = n.next.first()
		}
		if n == nil {
			return // nobody waits but those whose shares are taken
		}
		w := n.first
		full := n.fullFor(w.amount)
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
