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
	// lightRecent is how long a processor is left free after a light request of another tenant.
	lightRecent = 5 * time.Millisecond
	// stalled is the time without a turn that begins or ends after which a waiter goes on without one:
	// the holders of the turns wait for something themselves, perhaps for that waiter.
	stalled = time.Second
)

// Processors shares out the time of the processors among long computations.
//
// The tenant with the least charged time goes next: first among organizations, then repositories,
// then tokens. A tenant that was idle starts at the level of the others. The number of turns is the
// number of processors, and one less while light requests of others arrive, which take no turn. All
// methods may be called concurrently.
type Processors struct {
	count   int
	waiters atomic.Int64 // number of waiters; changed under mu

	mu      sync.Mutex
	running int       // guarded by mu
	root    node      // guarded by mu; used is the time charged, in nanoseconds, and never less than the parent's start
	tick    int64     // guarded by mu
	moved   time.Time // guarded by mu: when a turn began or ended

	latest, other light // guarded by mu: the last light request, and the last one of another tenant
}

// light is the time and the tenant of a light request.
type light struct {
	org, repo string
	at        time.Time
}

// NewProcessors shares out the time of count processors; of all if count is 0.
func NewProcessors(count int) *Processors {
	if count <= 0 {
		count = runtime.GOMAXPROCS(0)
	}
	return &Processors{count: count}
}

// Account is the computing time of one request.
type Account struct {
	processors *Processors
	tenant     Tenant
	budget     time.Duration
	spent      atomic.Int64
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

type turnKey struct{}

// With returns a context whose work is charged to an account.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// Light records a request that computes too little to need a turn.
func (p *Processors) Light(t Tenant) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest.org != t.Org || p.latest.repo != t.Repo {
		p.other = p.latest
		p.latest.org, p.latest.repo = t.Org, t.Repo
	}
	p.latest.at = now
}

// turn is the right to compute. It belongs to the goroutine that runs the function given to [Do].
type turn struct {
	account *Account
	mu      sync.Mutex // held by the goroutine that checks the turn; other goroutines of the same work skip the check
	token   *node
	began   time.Time
}

// Do runs work in a turn at the processors, if ctx has an account. Work calls [Pause] about every
// millisecond. It must not wait for a client, nor for another turn, except within [Rest]. Inside a
// turn, Do only runs work.
//
// Errors: those of work; [ErrWork]; the cause of ctx's end.
func Do(ctx context.Context, work func(ctx context.Context) error) error {
	a, _ := ctx.Value(accountKey{}).(*Account)
	if a == nil || ctx.Value(turnKey{}) != nil {
		return work(ctx)
	}
	t := &turn{account: a}
	if err := t.begin(ctx, false); err != nil {
		return err
	}
	defer t.end()
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
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || !t.mu.TryLock() {
		return nil
	}
	defer t.mu.Unlock()
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

// Rest runs wait, which blocks, and gives the turn back until wait returns. Its error is that of
// wait.
func Rest(ctx context.Context, wait func() error) error {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil {
		return wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	err := wait()
	if lost := t.begin(context.WithoutCancel(ctx), true); lost != nil {
		return errors.Join(err, lost)
	}
	return err
}

// Apart returns a context for a goroutine that works for ctx and takes turns of its own, even if
// ctx is within a turn.
func Apart(ctx context.Context) context.Context {
	if ctx.Value(turnKey{}) == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, nil)
}

// Charge returns ctx with the account of another context, if that has one: for work that may
// outlive its initiator.
func Charge(ctx, other context.Context) context.Context {
	if a, _ := other.Value(accountKey{}).(*Account); a != nil {
		return With(ctx, a)
	}
	return ctx
}

// charge accounts the time since the turn began.
func (t *turn) charge(now time.Time) {
	p := t.account.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	t.chargeLocked(now)
}

func (t *turn) chargeLocked(now time.Time) {
	took := int64(now.Sub(t.began))
	t.began = now
	t.account.spent.Add(took)
	for n := t.token; n != nil; n = n.parent {
		n.used += took
		n.sort()
	}
}

// begin waits for a turn. With goesOn the caller gets a turn even if ctx has ended; the initiator
// of the work reports that end.
func (t *turn) begin(ctx context.Context, goesOn bool) error {
	p := t.account.processors
	now := time.Now()
	p.mu.Lock()
	t.token = p.enterLocked(t.account.tenant)
	if p.root.waiting == 0 && p.running < p.roomLocked(t.account.tenant, now) {
		p.startLocked(t.token, now)
		p.mu.Unlock()
		t.began = now
		return nil
	}
	w := &waiter{token: t.token, done: make(chan error, 1)}
	p.tick++
	w.join(p.tick)
	p.waiters.Add(1)
	p.dispatchLocked(now)
	p.mu.Unlock()
	err := t.await(ctx, w, goesOn)
	t.began = time.Now()
	return err
}

func (t *turn) await(ctx context.Context, w *waiter, goesOn bool) error {
	ticker := time.NewTicker(stalled)
	defer ticker.Stop()
	for {
		select {
		case err := <-w.done:
			return err
		case now := <-ticker.C:
			if t.account.processors.pass(w, now) {
				return nil
			}
		case <-ctx.Done():
			t.account.processors.leave(w, goesOn)
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
	case !goesOn:
		p.endLocked(w.token, now)
	}
	p.dispatchLocked(now)
}

// admitLocked gives w a turn.
func (p *Processors) admitLocked(w *waiter, now time.Time) {
	w.part()
	p.waiters.Add(-1)
	p.startLocked(w.token, now)
	w.done <- nil
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

// startLocked counts one more running computation. A token that was idle starts no earlier than its
// siblings.
func (p *Processors) startLocked(token *node, now time.Time) {
	p.moved = now
	p.running++
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
	p.moved = now
	p.running--
	for n := token; n != nil; n = n.parent {
		n.held--
		if invariants.Enabled {
			invariants.Check(n.held >= 0, "fair: %q has %d turns", n.key, n.held)
		}
	}
	if invariants.Enabled {
		invariants.Check(p.running == p.root.held, "fair: %d compute in %d turns", p.running, p.root.held)
	}
}

// enterLocked returns the node of a tenant. An idle tenant starts at the level of the running ones:
// it has saved nothing up.
func (p *Processors) enterLocked(t Tenant) *node {
	token := p.root.find(t, p.tick)
	for n := token; n.parent != nil; n = n.parent {
		if n.waiting == 0 && n.held == 0 {
			n.used = max(n.used, n.parent.start)
		}
	}
	return token
}

// dispatchLocked gives turns to the next waiters.
func (p *Processors) dispatchLocked(now time.Time) {
	for p.root.waiting > 0 {
		n := &p.root
		for n.first == nil {
			n = n.next.first()
		}
		w := n.first
		if p.running >= p.roomFor(n, now) {
			return
		}
		p.admitLocked(w, now)
	}
}

// crowded reports whether more computations run than the tenant's room allows.
func (p *Processors) crowded(t Tenant, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running > p.roomLocked(t, now)
}

func (p *Processors) roomFor(token *node, now time.Time) int {
	return p.roomLocked(Tenant{Org: token.parent.parent.key, Repo: token.parent.key}, now)
}

// roomLocked is the number of turns if a tenant is next: one less than the processors while light
// requests of others arrive.
func (p *Processors) roomLocked(t Tenant, now time.Time) int {
	l := &p.latest
	if l.org == t.Org && l.repo == t.Repo {
		l = &p.other
	}
	if p.count > 1 && now.Sub(l.at) < lightRecent {
		return p.count - 1
	}
	return p.count
}
