package traffic

import (
	"context"
	"sync"
	"time"

	"packhorse/odb/fair"
)

// Pacer makes background work rest while there is traffic, so that requests find the processor
// free.
type Pacer struct {
	requests *Requests
	pause    float64 // rest as a share of work; 0: none

	mu    sync.Mutex // guards begun
	begun time.Time  // of the present stretch of work
}

// NewPacer returns a pacer that rests for a share of the time of work, pause.
func NewPacer(requests *Requests, pause float64) *Pacer {
	return &Pacer{requests: requests, pause: pause}
}

// paceStretch is the time that work takes before it rests. It bounds how long a request waits for a
// core; a typical commit takes 500 µs. Without rests the kernel lets a request wait for up to 4 ms.
const paceStretch = 100 * time.Microsecond

// makeWay is how many times longer work for one organization rests while a request waits of another
// one that has used less of the processors.
const makeWay = 4

// Rest returns at once, or after a rest if one is due; goroutines that share a pacer rest together.
// On a nil Pacer the work is that of a request: Rest gives up its turn if another one is due.
// Errors: that of ctx; [fair.ErrWork].
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
	if !p.requests.Busy() {
		p.begun = now
		return ctx.Err()
	}
	pause := p.pause
	if fair.Debit(ctx, worked) {
		pause *= makeWay
	}
	timer := time.NewTimer(time.Duration(float64(worked) * pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.begun = time.Now()
	return nil
}
