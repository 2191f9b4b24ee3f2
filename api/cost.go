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

// What a request is admitted for while it waits for its client.
const (
	silentBytes = 64 << 10 // before its body flows: the buffers of its connection

	// waitsShare is how much of Limits.MemoryBytes, beside it, is for those who wait: a quarter. They
	// take nothing from those who work.
	waitsShare = 4

	// repoQuarters is how much of an organization's memory, in quarters, one repository may hold.
	repoQuarters = 3

	// waitedLong is when a request counts as waiting for its client.
	waitedLong = 500 * time.Millisecond
)

// cost is what a request holds for its route: all that the route costs while it works, and little
// while it waits for its client. So clients who send or take nothing keep nobody out.
type cost struct {
	x      *transfer
	waits  atomic.Bool  // holds what a waiting request does; changed under mu
	since  atomic.Int64 // when it began to wait for its client, in nanoseconds; 0 while it does not
	silent bool         // its body does not flow yet; used by the goroutine that serves it

	mu      sync.Mutex
	release func() // guarded by mu; nil when the route costs nothing, or the request has ended
}

// begin admits the request: as a waiting one if it has yet to send a body.
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

// work takes what the route costs. It is called by the goroutine that serves the request, which
// held nothing or waited.
func (c *cost) work() error {
	x := c.x
	release, err := x.server.memory.Acquire(x.ctx, x.tenant(), 0, x.endpoint.CostsBytes)
	if err != nil {
		return busy(err)
	}
	c.waits.Store(false)
	c.keep(release)
	return nil
}

// keep replaces what is held.
func (c *cost) keep(release func()) {
	c.mu.Lock()
	before := c.release
	c.release = release
	c.mu.Unlock()
	if before != nil {
		before()
	}
}

// end gives back what is held.
func (c *cost) end() { c.keep(nil) }

// await notes that the request begins to wait for its client.
func (c *cost) await() {
	if c != nil && !c.silent {
		c.since.Store(time.Now().UnixNano())
	}
}

// goOn is called when the client has done something. flowed tells whether that was more than a
// beginning.
func (c *cost) goOn(flowed bool) error {
	if c == nil || c.silent && !flowed {
		return nil
	}
	c.silent = false
	c.since.Store(0)
	if !c.waits.Load() || c.x.holding.Grown() { // who has taken more might wait for himself
		return nil
	}
	return c.work()
}

// yield lets a request that has waited for its client give back what it only needs to work. One
// that has turned out to need more holds that indeed, and keeps it. It is called by the goroutine
// that watches, which may look at the endpoint and the grant since these are there before the first
// wait begins.
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

// waited is for how long the request has been waiting for its client.
func (c *cost) waited(now time.Time) time.Duration {
	if since := c.since.Load(); since != 0 {
		return now.Sub(time.Unix(0, since))
	}
	return 0
}

// sendAway ends the request for the sake of others of its organization: it has waited for its
// client for too long.
func (c *cost) sendAway() {
	x := c.x
	x.cancel(exchange.ErrBusy)
	if x.answering.Load() {
		x.conn.abort()
		return
	}
	_ = x.conn.sock.readBy(time.Unix(1, 0)) // the next look repeats what a new read has overtaken
}

// sentAway tells whether sendAway was called.
func (c *cost) sentAway() bool {
	return c != nil && errors.Is(context.Cause(c.x.ctx), exchange.ErrBusy)
}

// crowds tells whether others of the organization wait for what the request holds.
func (c *cost) crowds() bool {
	if x := c.x; c.waits.Load() {
		return x.server.waiting.Waits(x.grant.Org)
	}
	return c.x.server.memory.Waits(c.x.grant.Org)
}

// busy turns a refusal of the queue into that of the door.
func busy(err error) error {
	if errors.Is(err, fair.ErrBusy) {
		return exchange.ErrBusy
	}
	return err
}

// tenant is whom the request counts for.
func (x *transfer) tenant() fair.Tenant {
	return fair.Tenant{Org: x.grant.Org, Repo: x.grant.Repo, Token: x.grant.Subject}
}

// Slot implements [exchange.Resources].
func (x *transfer) Slot(ctx context.Context) (func(), error) {
	share := int64(0)
	if config, ok := x.server.tokens.OrgConfig(x.grant.Org); ok {
		share = int64(config.Limits.HeavySlots)
	}
	release, err := x.server.slots.Acquire(ctx, x.tenant(), share, 1)
	if err != nil {
		return nil, busy(err)
	}
	return x.hold(held{release: release}), nil
}

// Reserve implements [exchange.Resources]. Who holds something already does not wait behind those
// who hold nothing, and it counts towards the largest amount: he would wait for himself.
func (x *transfer) Reserve(ctx context.Context, sizeBytes int64) (release func(), err error) {
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

// held is what a request holds of the server's resources.
type held struct {
	release func()
	bytes   int64 // of reserved memory
}

// hold remembers what must be given back when the request ends, whatever its handler forgets.
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
