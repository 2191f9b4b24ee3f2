package odb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/fair"
)

// traffic knows whether requests are served, for work in the background that makes way for them.
type traffic struct {
	views atomic.Int64 // open ones, those aside left out
	last  atomic.Int64 // when one was closed, in nanoseconds of the Unix epoch
}

// trafficPause is how long requests may be apart to count as a stream of them.
const trafficPause = 50 * time.Millisecond

func (t *traffic) begin() { t.views.Add(1) }

func (t *traffic) end() {
	t.views.Add(-1)
	t.last.Store(time.Now().UnixNano())
}

// leave takes a view out that is aside.
func (t *traffic) leave() { t.views.Add(-1) }

func (t *traffic) busy() bool {
	return t.views.Load() > 0 || time.Now().UnixNano()-t.last.Load() < int64(trafficPause)
}

// Busy reports whether requests are served.
func (s *Store) Busy() bool { return s.traffic.busy() }

// Pacer makes work in the background rest while there is traffic, so that requests find the
// processor free.
type Pacer struct {
	traffic *traffic
	pause   float64 // rest as a share of work; 0: none

	mu    sync.Mutex // guards begun
	begun time.Time  // of the present stretch of work
}

func (s *Store) NewPacer(pause float64) *Pacer { return &Pacer{traffic: &s.traffic, pause: pause} }

// paceStretch is how long work goes on before it rests. It is the longest that a request waits for
// a core, and its share of the time of most: a commit takes half a millisecond. The kernel by
// itself would let it wait for up to four.
const paceStretch = 100 * time.Microsecond

// Rest returns at once, or after a rest when one is due; goroutines that share a pacer rest
// together. Where there is no pacer, work is a request's, which lets others compute in its place
// when it is their turn. Errors: that of ctx; [fair.ErrWork].
func (p *Pacer) Rest(ctx context.Context) error {
	if p == nil || p.pause <= 0 {
		return fair.Pause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.begun.IsZero() {
		p.begun = now
	}
	worked := now.Sub(p.begun)
	if worked < paceStretch {
		return ctx.Err()
	}
	if !p.traffic.busy() {
		p.begun = now
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(float64(worked) * p.pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.begun = time.Now()
	return nil
}
