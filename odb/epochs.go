package odb

import (
	"sync"
	"time"
)

// Epochs counts the open views of a process by the epoch in which they began. Where processes share
// a store, each tells the others its oldest one, so that their sweeps keep what these views may
// read; see [Horizon]. Its methods may be called concurrently; those of nil do nothing.
type Epochs struct {
	mu      sync.Mutex // guards the fields below
	now     uint64
	open    map[uint64]int // the number of views by epoch
	expired uint64         // the last epoch whose views the others do not wait for
	until   time.Time      // the others wait for all later ones at least until then
}

// NewEpochs returns an Epochs without views, which the other processes do not know.
func NewEpochs() *Epochs { return &Epochs{open: make(map[uint64]int)} }

// Enter says that the others know this process, again or for the first time, with an epoch that is
// above all former ones. Nobody has waited for the views that have begun before.
func (e *Epochs) Enter(epoch uint64, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expired, e.now, e.until = e.now, epoch, until
}

// Advance begins an epoch, whose number the others know now, unless it has begun. They wait for
// this process at least until a time.
func (e *Epochs) Advance(epoch uint64, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.until = max(e.now, epoch), until
}

// Lapse says that the others no more know this process.
func (e *Epochs) Lapse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = time.Time{}
}

// Oldest returns the epoch of the oldest open view; the present one when there is none.
func (e *Epochs) Oldest() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	oldest := e.now
	for epoch := range e.open {
		oldest = min(oldest, epoch)
	}
	return oldest
}

// begin counts a view that begins now, until end.
func (e *Epochs) begin() uint64 {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[e.now]++
	return e.now
}

// share counts another view of an epoch that has an open one.
func (e *Epochs) share(epoch uint64) uint64 {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[epoch]++
	return epoch
}

func (e *Epochs) end(epoch uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[epoch]--; e.open[epoch] == 0 {
		delete(e.open, epoch)
	}
}

// holds reports whether the others wait for the views of an epoch for certain.
func (e *Epochs) holds(epoch uint64) bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return epoch > e.expired && time.Now().Before(e.until)
}

// hasExpired reports whether nobody waits for the views of an epoch any more.
func (e *Epochs) hasExpired(epoch uint64) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return epoch <= e.expired
}
