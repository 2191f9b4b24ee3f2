// Package progress reports how far long work has come.
//
// Start at [Meter].
package progress

import (
	"context"
	"sync"
	"time"

	"packhorse/odb/fair"
)

// Func receives the number of done steps of total steps of a phase. [Meter] calls it now and then
// and at the end of the phase, never concurrently.
type Func func(phase string, done, total int64)

// Meter reports progress to Report, which may be nil, at most ten times a second. Its methods may
// be called concurrently.
type Meter struct {
	Report Func
	Turn   context.Context //nolint:containedctx // of the turn in which it is told, which ends meanwhile; or nil

	mu   sync.Mutex // guards the fields below and calls of report
	next time.Time
}

const (
	progressEvery = 100 * time.Millisecond
	// Steps is the number of steps between two looks at the clock.
	Steps = 128
)

// Step reports that done of total steps are done, unless a report came just before.
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

// End reports the end of a phase.
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
