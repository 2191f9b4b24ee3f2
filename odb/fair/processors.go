package fair

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/pack/invariants"
)

// ErrWork says that a request has used up its computing time.
var ErrWork = errors.New("fair: the request takes too much computing")

const (
	// quantum is the computing time after which waiting requests go first.
	quantum = time.Millisecond
	// recent is how long a processor is left free of computations after a request of another tenant.
	recent = 5 * time.Millisecond
	// shared is how long after a request of another organization the processors count as shared with
	// it.
	shared = 100 * time.Millisecond
	// lightMax is how much a light request may compute in its own turns alone. What computes more
	// takes turns for computations.
	lightMax = 4 * time.Millisecond
	// creditMax is how much of its share an idle tenant may make up for: clients that have no request
	// for a moment, because they are slow to send the next ones, do not lose the moment.
	creditMax = 50 * time.Millisecond
	// stalled is the time without a turn that begins or ends after which a waiter goes on without one:
	// the holders of the turns wait for something themselves, perhaps for that waiter.
	stalled = time.Second
)

// Processors shares out the time of the processors: among requests by turns of [Account.Begin], and
// among long computations by turns of [Do].
//
// Of either kind, the tenant with the least charged time goes next: first among organizations, then
// repositories, then tokens. A new tenant starts at the level of the others, and one that was idle
// at most 50 ms ahead of them.
//
// Requests have one turn more than there are processors, so that none is idle while a turn waits
// for the disk or changes hands. The number of turns for computations is the number of processors,
// and one less while requests of others arrive. The computations of an organization wait while a
// request waits of one that has been charged less. Their time is a debt that delays its requests,
// and so is the time of maintenance, which takes no turns ([Debit]).
//
// A computation is charged the time of its turn, and a request its share of the processors that
// computations leave: more turns at a time are no reason to be charged more.
//
// All methods may be called concurrently.
type Processors struct {
	count   int
	made    time.Time
	waiters atomic.Int64 // number of waiters; changed under mu

	mu       sync.Mutex
	requests node      // guarded by mu; used is the time charged, in nanoseconds, with what idle tenants have lost
	computes node      // guarded by mu; the same for computations
	tick     int64     // guarded by mu
	moved    time.Time // guarded by mu: when a turn began or ended

	worked   int64     // guarded by mu: the processor time of a request that has always had a turn, in nanoseconds
	workedAt time.Time // guarded by mu: when worked was brought up to date

	latest  arrival // guarded by mu: the last request
	other   arrival // guarded by mu: the last one of another repository than latest
	foreign arrival // guarded by mu: the last one of another organization than latest

	oldest, newest *Account // guarded by mu: those in a turn of [Account.Begin], in the order of its begin
	watched        bool     // guarded by mu: a timer looks after them
}

// arrival is the time and the tenant of a request.
type arrival struct {
	org, repo string
	at        time.Time
}

// NewProcessors shares out the time of count processors; of all if count is 0.
func NewProcessors(count int) *Processors {
	if count <= 0 {
		count = runtime.GOMAXPROCS(0)
	}
	now := time.Now()
	return &Processors{count: count, made: now, workedAt: now}
}

// Account is the computing time of one request.
type Account struct {
	processors *Processors
	tenant     Tenant
	budget     time.Duration
	spent      atomic.Int64
	light      bool // set before it is served
	serving    serving
}

// Account opens an account for a request that may compute for budget, or without limit if budget
// is 0.
func (p *Processors) Account(t Tenant, budget time.Duration) *Account {
	return &Account{processors: p, tenant: t, budget: budget}
}

// Spent is how long the request has computed.
func (a *Account) Spent() time.Duration { return time.Duration(a.spent.Load()) }

func (a *Account) exceeded() bool { return a.budget > 0 && a.Spent() > a.budget }

type accountKey struct{}

// With returns a context whose work is charged to an account.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// Charge returns ctx with the account of another context, if that has one: for work in a goroutine
// of its own that may outlive its initiator.
func Charge(ctx, other context.Context) context.Context {
	if a, _ := other.Value(accountKey{}).(*Account); a != nil {
		return Apart(With(ctx, a))
	}
	return ctx
}

func (a *Account) chargeLocked(token *node, took time.Duration) {
	a.spent.Add(int64(took))
	for n := token; n != nil; n = n.parent {
		n.used += int64(took)
		n.sort()
	}
}

// await waits for the turn of w. With goesOn the caller gets one even if ctx has ended.
func (p *Processors) await(ctx context.Context, w *waiter, goesOn bool) error {
	ticker := time.NewTicker(stalled)
	defer ticker.Stop()
	for {
		select {
		case err := <-w.done:
			return err
		case now := <-ticker.C:
			if p.pass(w, now) {
				return nil
			}
		case <-ctx.Done():
			p.leave(w, goesOn)
			if goesOn {
				return ctx.Err()
			}
			return context.Cause(ctx)
		}
	}
}

// pass lets w go on if the turns are stalled.
func (p *Processors) pass(w *waiter, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(w.done) > 0 {
		return true
	}
	if now.Sub(p.moved) < stalled {
		return false
	}
	p.admitLocked(w, now)
	return true
}

// leave removes w from the queue. If w goes on it has a turn afterwards.
func (p *Processors) leave(w *waiter, goesOn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	admitted := len(w.done) > 0
	switch {
	case !admitted && goesOn:
		p.admitLocked(w, now)
	case !admitted:
		w.part()
		p.waiters.Add(-1)
	case !goesOn && w.serves != nil:
		w.serves.endLocked(now)
	case !goesOn:
		p.endLocked(w.token, now)
	}
	p.dispatchLocked(now)
}

// admitLocked gives w a turn.
func (p *Processors) admitLocked(w *waiter, now time.Time) {
	w.part()
	p.waiters.Add(-1)
	if w.serves != nil {
		w.serves.startLocked(now)
	} else {
		p.startLocked(w.token, now)
	}
	w.done <- nil
}

// startLocked begins a turn. What has been charged to its tenant is the level of those who are new
// or come back.
func (p *Processors) startLocked(token *node, now time.Time) {
	p.workLocked(now)
	p.moved = now
	p.tick++
	for n := token; n != nil; n = n.parent {
		n.held++
		n.served = p.tick
		if n.parent != nil {
			n.parent.start = max(n.parent.start, n.used)
		}
		n.sort()
	}
}

func (p *Processors) endLocked(token *node, now time.Time) {
	p.workLocked(now)
	p.moved = now
	for n := token; n != nil; n = n.parent {
		n.held--
		if invariants.Enabled {
			invariants.Check(n.held >= 0, "fair: %q has %d turns", n.key, n.held)
		}
	}
}

// workLocked brings worked up to date. A computation keeps a processor to itself, since the
// runtime lets it run for long; the requests share the others.
func (p *Processors) workLocked(now time.Time) {
	passed := now.Sub(p.workedAt)
	if passed <= 0 {
		return
	}
	p.workedAt = now
	if free := max(1, p.count-p.computes.held); p.requests.held > free {
		passed = passed * time.Duration(free) / time.Duration(p.requests.held)
	}
	p.worked += int64(passed)
}

// enterLocked returns the node of a tenant. An idle tenant starts no further ahead of the running
// ones than creditMax.
func (p *Processors) enterLocked(root *node, t Tenant) *node {
	token := root.find(t, p.tick)
	for n := token; n.parent != nil; n = n.parent {
		if n.waiting == 0 && n.held == 0 {
			n.used = max(n.used, n.parent.start-int64(creditMax))
		}
	}
	return token
}

// dispatchLocked gives turns to the next waiters.
func (p *Processors) dispatchLocked(now time.Time) {
	for p.requests.waiting > 0 && p.requests.held <= p.count {
		p.admitLocked(p.requests.nextWaiter(), now)
	}
	for {
		w := p.nextComputationLocked()
		if w == nil || p.computes.held >= p.roomLocked(w.computes.account.tenant, now) {
			break
		}
		p.admitLocked(w, now)
	}
	p.watchLocked()
}

// nextComputationLocked returns the next waiter of the organization that has computed least, among
// those whose computations may go on; nil if there is none.
func (p *Processors) nextComputationLocked() *waiter {
	var next *node
	for _, org := range p.computes.next.nodes {
		if (next == nil || sooner(org, next)) && !p.isAheadLocked(org.key) {
			next = org
		}
	}
	if next == nil {
		return nil
	}
	return next.nextWaiter()
}

// isAheadLocked reports whether a request waits of an organization that has been charged less: the
// computations of this one make way for it.
func (p *Processors) isAheadLocked(org string) bool {
	if p.requests.waiting == 0 {
		return false
	}
	mine, first := p.requests.children[org], p.requests.next.first()
	return mine != nil && mine.used > first.used
}

// foreignLocked is the last request of another organization than a tenant's.
func (p *Processors) foreignLocked(t Tenant) arrival {
	if p.latest.org == t.Org {
		return p.foreign
	}
	return p.latest
}

// nextWaiter returns the first waiter below a root that has one.
func (n *node) nextWaiter() *waiter {
	for n.first == nil {
		n = n.next.first()
	}
	return n.first
}

// compete reports whether a request waits, or a computation waits or runs.
func (p *Processors) compete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.waiting+p.computes.waiting+p.computes.held > 0
}

// arriveLocked records a request.
func (p *Processors) arriveLocked(t Tenant, now time.Time) {
	if p.latest.org != t.Org {
		p.foreign = p.latest
	}
	if p.latest.org != t.Org || p.latest.repo != t.Repo {
		p.other = p.latest
		p.latest.org, p.latest.repo = t.Org, t.Repo
	}
	p.latest.at = now
}

// crowded reports whether more computations run than the tenant's room allows.
func (p *Processors) crowded(t Tenant, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.computes.held > p.roomLocked(t, now)
}

// roomLocked is the number of computations if a tenant is next: one less than the processors while
// requests of others arrive.
func (p *Processors) roomLocked(t Tenant, now time.Time) int {
	l := &p.latest
	if l.org == t.Org && l.repo == t.Repo {
		l = &p.other
	}
	if p.count > 1 && now.Sub(l.at) < recent {
		return p.count - 1
	}
	return p.count
}

// Shared reports whether requests of other organizations than that of ctx are served meanwhile.
func Shared(ctx context.Context) bool {
	a, _ := ctx.Value(accountKey{}).(*Account)
	if a == nil {
		return false
	}
	p := a.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.foreignLocked(a.tenant).at) < shared
}
