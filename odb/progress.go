package odb

import (
	"context"
	"sync"
	"time"

	"packhorse/odb/fair"
)

// Progress hears how many of total steps of a phase are done, now and then and at the end of the phase, never concurrently.
type Progress func(phase string, done, total int64)

// progressMeter tells how far the work has come, at most ten times a second.
type progressMeter struct {
	report Progress
	turn   context.Context //nolint:containedctx // the one of the turn in which it is told, which ends meanwhile; nil where there is none

	mu   sync.Mutex // guards the fields below and calls of report
	next time.Time
}

const (
	progressEvery = 100 * time.Millisecond
	// progressSteps is how many steps pass between two looks at the clock.
	progressSteps = 128
)

// step tells that done of total are done.
func (p *progressMeter) step(phase string, done, total int64) {
	if p.report == nil || done%progressSteps != 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		p.tell(phase, done, total)
	}
}

// end tells that a phase is over.
func (p *progressMeter) end(phase string, done, total int64) {
	if p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
	p.tell(phase, done, total)
}

// tell reports, to a client who may not listen. mu is held.
func (p *progressMeter) tell(phase string, done, total int64) {
	if p.turn == nil {
		p.report(phase, done, total)
		return
	}
	_ = fair.Rest(p.turn, func() error {
		p.report(phase, done, total)
		return nil
	})
}
