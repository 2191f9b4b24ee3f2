package odb

import (
	"context"
	"io"
	"sync"
	"time"
)

// pacer makes work in the background rest, so that requests find the processor free.
type pacer struct {
	pause float64 // rest as a share of work

	mu    sync.Mutex // guards begun
	begun time.Time  // of the present stretch of work
}

// paceStretch is how long work goes on before it rests.
const paceStretch = 20 * time.Millisecond

// rest returns at once, or after a rest when one is due; a nil pacer never rests. Errors: that of ctx.
func (p *pacer) rest(ctx context.Context) error {
	if p == nil || p.pause <= 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	worked := time.Since(p.begun)
	if worked < paceStretch {
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

// pacedWriter rests between writes, and looks from time to time whether there is still room.
type pacedWriter struct {
	ctx  context.Context //nolint:containedctx // the one of the repack that this is the io.Writer of
	dst  io.Writer
	pace *pacer
	room func(size int64) error // nil: always

	since int // bytes since the last look
}

// roomStep is how much is written between two looks.
const roomStep = 16 * mebibyte

// Write implements [io.Writer].
func (w *pacedWriter) Write(p []byte) (int, error) {
	if err := w.pace.rest(w.ctx); err != nil {
		return 0, err
	}
	if w.since += len(p); w.since >= roomStep && w.room != nil {
		w.since = 0
		if err := w.room(0); err != nil {
			return 0, err
		}
	}
	return w.dst.Write(p)
}
