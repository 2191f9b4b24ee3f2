// Package progress tells how far long work has come.
package progress

import (
	"context"
	"sync"
	"time"

	"packhorse/odb/fair"
)

// Func hears how many of total steps of a phase are done, now and then and at the end of the phase,
// never concurrently.
type Func func(phase string, done, total int64)

// Meter tells how far the work has come, at most ten times a second.
type Meter struct {
	Report Func
	Turn   context.Context //nolint:containedctx // the one of the turn in which it is told, which ends meanwhile; nil where there is none

	mu   sync.Mutex // guards the fields below and calls of report
	next time.Time
}

const (
	progressEvery = 100 * time.Millisecond
	// Steps is how many steps pass between two looks at the clock.
	Steps = 128
)

// Step tells that done of total are done.
func (p *Meter) Step(phase string, done, total int64) {
	if p.Report == nil || done%Steps != 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		p.tell(phase, done, total)
	}
}

// End tells that a phase is over.
func (p *Meter) End(phase string, done, total int64) {
	if p.Report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
	p.tell(phase, done, total)
}

// tell reports, to a client who may not listen. mu is held.
func (p *Meter) tell(phase string, done, total int64) {
	if p.Turn == nil {
		p.Report(phase, done, total)
		return
	}
	_ = fair.Rest(p.Turn, func() error {
		p.Report(phase, done, total)
		return nil
	})
}
