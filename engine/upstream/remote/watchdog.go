package remote

import (
	"context"
	"errors"
	"io"
	"time"
)

var (
	errSilent = errors.New("the far side was silent for too long")
	errSlow   = errors.New("the answer took too long")
)

// watchdog ends a request whose far side is silent. Its clock runs while we wait for the far side, and rests while it waits for us.
type watchdog struct {
	idle   time.Duration
	answer time.Duration
	timer  *time.Timer
	whole  *time.Timer // for the answer as a whole
	cancel context.CancelCauseFunc
}

// watch returns a context that is cancelled with [errSilent] or [errSlow], and the dog that does it, whose clock runs.
func watch(ctx context.Context, limits Limits) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchdog{
		idle:   limits.Idle,
		answer: limits.Answer,
		timer:  time.AfterFunc(limits.Idle, func() { cancel(errSilent) }),
		whole:  time.AfterFunc(limits.Answer, func() { cancel(errSlow) }),
		cancel: cancel,
	}
}

func (d *watchdog) run()  { d.timer.Reset(d.idle) }
func (d *watchdog) rest() { d.timer.Stop() }

// unhurried lifts the limit on the answer as a whole: a pack may take as long as its bytes keep coming.
func (d *watchdog) unhurried() { d.whole.Stop() }

// end stops the clocks and the request.
func (d *watchdog) end() {
	d.timer.Stop()
	d.whole.Stop()
	d.cancel(context.Canceled)
}

// watchedBody is a request's body: while we make it, the far side waits for us.
type watchedBody struct {
	src  io.ReadCloser
	dog  *watchdog
	long bool // once all is sent, the far side has work to do before it answers
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.dog.rest()
	n, err := b.src.Read(p)
	if err != nil && b.long {
		b.dog.timer.Reset(b.dog.answer)
	} else {
		b.dog.run()
	}
	return n, err
}

func (b *watchedBody) Close() error { return b.src.Close() }
