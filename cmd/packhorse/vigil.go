package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// vigil watches over a wait: it prints the reason of the wait after some silence, and gives up
// after a longer one.
type vigil struct {
	what       string
	say, limit time.Duration
	tell       func(line string)

	cancel context.CancelCauseFunc
	mu     sync.Mutex // guards the timers
	timers []*time.Timer
}

// sayAfter is the silence after which a command prints the reason of its wait.
const sayAfter = 3 * time.Second

// silentError says that nothing arrived for the maximum waiting time.
type silentError struct {
	what  string
	limit time.Duration
}

func (e *silentError) Error() string {
	return fmt.Sprintf("%s has not answered for %v: it may be stopped, or wait for its disk; --wait sets how long to wait",
		e.what, e.limit)
}

// begin returns a context that ends, with a silentError as its cause, when nothing arrives for
// limit. The caller calls end.
func (v *vigil) begin(ctx context.Context) context.Context {
	ctx, v.cancel = context.WithCancelCause(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timers = []*time.Timer{
		time.AfterFunc(v.say, func() { v.tell(fmt.Sprintf("waiting for %s, for %v at most", v.what, v.limit)) }),
		time.AfterFunc(v.limit, func() { v.cancel(&silentError{v.what, v.limit}) }),
	}
	return ctx
}

// heard restarts the wait.
func (v *vigil) heard() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.timers) > 0 {
		v.timers[0].Reset(v.say)
		v.timers[1].Reset(v.limit)
	}
}

// end ends the vigil.
func (v *vigil) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, timer := range v.timers {
		timer.Stop()
	}
	v.timers = nil
	v.cancel(nil)
}
