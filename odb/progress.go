package odb

import (
	"sync"
	"time"
)

// progressMeter tells how far the work has come, at most ten times a second.
type progressMeter struct {
	report Progress

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
		p.report(phase, done, total)
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
	p.report(phase, done, total)
}
