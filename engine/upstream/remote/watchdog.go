package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

var (
	errSilent = errors.New("the far side was silent for too long")
	errSlow   = errors.New("the answer took too long")
)

// watchdog ends a request whose far side is silent, or takes too long altogether. The clock that
// sees to silence runs while we wait for the far side, and rests while it waits for us.
type watchdog struct {
	limits Limits
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards the fields below: a request's body is read beside its answer
	silence *time.Timer
	whole   *time.Timer
	ended   bool
}

// watch returns a context that is cancelled with [errSilent] or [errSlow], and the dog that does
// it, whose clocks run.
func watch(ctx context.Context, limits Limits) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchdog{
		limits:  limits,
		cancel:  cancel,
		silence: time.AfterFunc(limits.Idle, func() { cancel(errSilent) }),
		whole:   time.AfterFunc(limits.Answer, func() { cancel(errSlow) }),
	}
}

// run begins to wait for the far side, and rest ends that.
func (d *watchdog) run() { d.set(d.silence, d.limits.Idle) }

func (d *watchdog) rest() { d.silence.Stop() }

// unhurried lifts the limit on the whole: a pack may take as long as its bytes keep coming.
func (d *watchdog) unhurried() { d.whole.Stop() }

// receiving begins to wait for a far side that processes the pushed pack, maybe silently.
func (d *watchdog) receiving() {
	d.set(d.silence, d.limits.Receive)
	d.set(d.whole, d.limits.Receive)
}

func (d *watchdog) set(timer *time.Timer, to time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		timer.Reset(to)
	}
}

// end stops the clocks and the request.
func (d *watchdog) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.silence.Stop()
	d.whole.Stop()
	d.cancel(context.Canceled)
}

// watchedBody is a request's body: while we make it, the far side waits for us.
type watchedBody struct {
	src  io.ReadCloser
	dog  *watchdog
	long bool // once all is sent, the far side has work to do before it answers
}

// Read reads the next bytes to send.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.dog.rest()
	n, err := b.src.Read(p)
	if err != nil && b.long {
		b.dog.receiving()
	} else {
		b.dog.run()
	}
	return n, err
}

// Close closes the source.
func (b *watchedBody) Close() error { return b.src.Close() }

// pace detects a pack that arrives too slowly. Only the time that we wait for it counts.
type pace struct {
	window time.Duration
	least  int64 // bytes in a window
	waited time.Duration
	got    int64
}

func newPace(limits Limits) *pace {
	return &pace{window: limits.Idle, least: int64(limits.Idle.Seconds() * float64(limits.PackRate))}
}

// tooSlow takes the number of bytes that came, and the time waited for them.
func (p *pace) tooSlow(got int, waited time.Duration) bool {
	p.got += int64(got)
	p.waited += waited
	if p.waited < p.window {
		return false
	}
	slow := p.got < p.least
	p.got, p.waited = 0, 0
	return slow
}
