package api

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/api/exchange"
	"packhorse/odb/fair"
)

// The admitted memory of a request while it waits for its client.
const (
	silentBytes = 64 << 10 // before its body flows, for the buffers of its connection

	// waitsShare is the memory for requests that wait for their clients: a quarter of
	// Limits.MemoryBytes, in addition to it. They take nothing from working requests.
	waitsShare = 4

	// repoQuarters is how much of an organization's memory and slots, in quarters, one repository may
	// hold.
	repoQuarters = 3

	// waitedLong is the time after which a request counts as waiting for its client.
	waitedLong = 500 * time.Millisecond
)

// cost is the memory that a request holds for its route: the full cost of the route while it works,
// and little while it waits for its client. So clients that send or read nothing do not block
// others.
type cost struct {
	x      *transfer
	waits  atomic.Bool  // holds the amount of a waiting request; changed under mu
	since  atomic.Int64 // when it began to wait for its client, in nanoseconds; 0 while it does not
	silent bool         // its body does not flow yet; used by the goroutine that serves it

	mu      sync.Mutex
	release func() // guarded by mu; nil when the route costs nothing, or the request has ended
}

// begin admits the request: as a waiting one if the client has yet to send a body.
func (c *cost) begin() error {
	x := c.x
	if x.endpoint.CostsBytes == 0 {
		return nil
	}
	if c.silent = x.body.stream != nil && x.body.announced != 0; c.silent {
		c.since.Store(time.Now().UnixNano())
		release, err := x.server.waiting.Acquire(x.ctx, x.tenant(), 0, silentBytes)
		if err != nil {
			return busy(err)
		}
		c.waits.Store(true)
		c.keep(release)
		return nil
	}
	return c.work()
}

// work acquires the cost of the route. The goroutine that serves the request calls it, when the
// request holds nothing or the amount of a waiting one.
func (c *cost) work() error {
	x := c.x
	defer observeSince(x.server.metrics.memoryWait, time.Now())
	release, err := x.server.memory.Acquire(x.ctx, x.tenant(), 0, x.endpoint.CostsBytes)
	if err != nil {
		return busy(err)
	}
	c.waits.Store(false)
	c.keep(release)
	return nil
}

// keep replaces the held amount.
func (c *cost) keep(release func()) {
	c.mu.Lock()
	before := c.release
	c.release = release
	c.mu.Unlock()
	if before != nil {
		before()
	}
}

// end releases the held amount.
func (c *cost) end() { c.keep(nil) }

// await records that the request begins to wait for its client.
func (c *cost) await() {
	if c != nil && !c.silent {
		c.since.Store(time.Now().UnixNano())
	}
}

// goOn is called when the client has made progress. flowed reports whether that was more than a
// beginning.
func (c *cost) goOn(flowed bool) error {
	if c == nil || c.silent && !flowed {
		return nil
	}
	c.silent = false
	c.since.Store(0)
	c.mu.Lock() // a yield under way has ended, or sees that the request goes on
	waits := c.waits.Load()
	c.mu.Unlock()
	if !waits || c.x.holding.Grown() { // a request that has grown might wait for itself
		return nil
	}
	return c.work()
}

// yield releases the working memory of a request that waits for its client. A request that has
// grown keeps all of it, because it really uses it. The watching goroutine calls yield; it may read
// the endpoint and the grant, which are set before the first wait begins.
func (c *cost) yield(now time.Time) {
	x := c.x
	if c.waited(now) < waitedLong || c.waits.Load() || x.endpoint.WaitsBytes == 0 || x.holding.Grown() {
		return
	}
	release, ok := x.server.waiting.TryAcquire(x.tenant(), 0, x.endpoint.WaitsBytes)
	if !ok {
		return
	}
	c.mu.Lock()
	before := c.release
	if still := c.since.Load() != 0 && before != nil; still {
		c.waits.Store(true)
		c.release, release = release, before
	}
	c.mu.Unlock()
	release()
}

// waited returns how long the request has been waiting for its client.
func (c *cost) waited(now time.Time) time.Duration {
	if since := c.since.Load(); since != 0 {
		return now.Sub(time.Unix(0, since))
	}
	return 0
}

// sendAway ends a request that has waited for its client for too long, in favour of others of its
// organization.
func (c *cost) sendAway() {
	x := c.x
	x.cancel(exchange.ErrBusy)
	if x.answering.Load() {
		x.conn.abort()
		return
	}
	_ = x.conn.sock.readBy(time.Unix(1, 0)) // the next look repeats this if a new read has replaced the deadline
}

// sentAway reports whether sendAway was called.
func (c *cost) sentAway() bool {
	return c != nil && errors.Is(context.Cause(c.x.ctx), exchange.ErrBusy)
}

// crowds reports whether others of the organization wait for memory that the request holds.
func (c *cost) crowds() bool {
	if x := c.x; c.waits.Load() {
		return x.server.waiting.Waits(x.grant.Org)
	}
	return c.x.server.memory.Waits(c.x.grant.Org)
}

// busy turns a refusal of the queue into one of the door.
func busy(err error) error {
	if errors.Is(err, fair.ErrBusy) {
		return exchange.ErrBusy
	}
	return err
}

// tenant is the tenant to which the request is charged.
func (x *transfer) tenant() fair.Tenant {
	t := fair.Tenant{Org: x.grant.Org, Repo: x.grant.Repo, Token: x.grant.Subject}
	if x.endpoint.Creates {
		// Whoever creates many repositories gets no more than who works in one.
		t.Repo = ""
	}
	return t
}

// Slot implements [exchange.Resources].
func (x *transfer) Slot(ctx context.Context) (func(), error) {
	share := int64(0)
	if config, ok := x.server.tokens.OrgConfig(x.grant.Org); ok {
		share = int64(config.Limits.HeavySlots)
	}
	defer observeSince(x.server.metrics.slotWait, time.Now())
	release, err := x.server.slots.Acquire(ctx, x.tenant(), share, 1)
	if err != nil {
		return nil, busy(err)
	}
	return x.hold(held{release: release}), nil
}

// Reserve implements [exchange.Resources]. A request that already holds something does not wait
// behind those that hold nothing, and its holding counts towards the largest amount: otherwise it
// would wait for itself.
func (x *transfer) Reserve(ctx context.Context, sizeBytes int64) (release func(), err error) {
	defer observeSince(x.server.metrics.memoryWait, time.Now())
	if held := x.reserved(); held == 0 {
		release, err = x.server.memory.Acquire(ctx, x.tenant(), 0, sizeBytes)
	} else {
		sizeBytes = max(0, min(sizeBytes, x.server.limits.MemoryBytes-held))
		release, err = x.server.memory.Grow(ctx, &x.holding, x.tenant(), 0, sizeBytes)
	}
	if err != nil {
		return nil, busy(err)
	}
	return x.hold(held{release: release, bytes: sizeBytes}), nil
}

// reserved returns how many bytes the request holds.
func (x *transfer) reserved() (sizeBytes int64) {
	x.freeing.Lock()
	defer x.freeing.Unlock()
	for h := range x.free {
		sizeBytes += h.bytes
	}
	return sizeBytes + max(x.holding.Total(), x.endpoint.CostsBytes)
}

// held is a resource of the server that a request holds.
type held struct {
	release func()
	bytes   int64 // of reserved memory
}

// hold records a resource that must be given back when the request ends, even if its handler does
// not release it.
func (x *transfer) hold(h held) (release func()) {
	x.freeing.Lock()
	defer x.freeing.Unlock()
	if x.free == nil {
		x.free = make(map[*held]struct{})
	}
	x.free[&h] = struct{}{}
	return func() {
		x.freeing.Lock()
		delete(x.free, &h)
		x.freeing.Unlock()
		h.release()
	}
}
