package clonecache

import (
	"context"
	"fmt"
	"time"

	"packhorse/odb/rescue"
	"packhorse/pack/invariants"
)

// Reservation is the right to decide about the pack of a key, for which other requests wait. The
// holder ends it by [Reservation.Store], [Reservation.Decline] or [Reservation.Release]; the first
// of them counts. It is for one goroutine.
type Reservation struct {
	flight *flight
	ended  bool
}

// reserve reserves a key that has no flight. The caller holds mu.
func (c *Cache) reserve(key Key) *Reservation {
	if invariants.Enabled {
		invariants.Check(c.flights[key] == nil, "clonecache: %s is reserved twice", key)
	}
	c.flown++
	f := &flight{
		cache: c, key: key, path: c.path(fmt.Sprintf("%s.%d%s", key, c.flown, flightMark)), began: time.Now(),
		users: 1, changed: make(chan struct{}),
	}
	c.flights[key] = f
	c.running.Add(1)
	return &Reservation{flight: f}
}

// Tell passes a line to the requests that wait, and to those that join the generation. It does not
// wait for them.
func (r *Reservation) Tell(text string) { r.flight.tell(text) }

// Store begins to generate the pack into the cache, for the requests that wait and for the holder,
// who sends the pack that is returned. It may be called once, and not after the reservation has
// ended.
//
// The generation goes on without the request that began it, and is cancelled when its last reader
// leaves, or when the cache is closed. All readers get its error and must discard the bytes that
// they received. The pack is kept if it took long enough and is not too large.
func (r *Reservation) Store(generate Generate) *Pack {
	f := r.flight
	c := f.cache
	if invariants.Enabled {
		invariants.Check(!r.ended, "clonecache: %s is stored after its reservation", f.key)
	}
	r.ended = true
	defer c.running.Done() // after the generation is counted
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Generated++
	f.users++
	ctx, cancel := context.WithCancel(c.ctx)
	f.cancel = cancel
	pack := &Pack{cache: c, flight: f}
	f.change(func() { f.phase, pack.told = generating, len(f.text) })
	rescue.Go(&c.running, func() error {
		defer cancel()
		f.run(ctx, generate)
		return nil
	}, func(err error) { c.log.Error("panic", "error", err) })
	return pack
}

// Decline says that the pack is not worth storing: the requests that wait generate it for
// themselves, as the holder does.
func (r *Reservation) Decline() { r.end(declined) }

// Release gives the reservation to one of the requests that wait, because its holder has failed or
// gives up.
func (r *Reservation) Release() { r.end(released) }

func (r *Reservation) end(as phase) {
	if r.ended {
		return
	}
	r.ended = true
	f := r.flight
	f.cache.ground(f) // before the decision is known: later requests start over
	f.change(func() { f.phase = as })
	f.cache.leave(f)
	f.cache.running.Done()
}
