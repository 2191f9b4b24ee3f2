// Package rescue runs goroutines so that a panic ends only the work in which it happens.
//
// An unrecovered panic in any goroutine ends the process, and with it all requests. Start at [Do],
// which turns a panic into an error, [Group] for the goroutines of one task, [Go] for independent
// goroutines, [After] for timers, and [Keep] for goroutines that live as long as the server.
// `make tidy` refuses other ways to start one.
package rescue

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PanicError is a panic that has become an error. It is always a bug of the server, never the fault
// of a client.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, as runtime/debug writes it
}

// Error includes the stack: it is meant for logs.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Unwrap returns the value of the panic if that is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Do calls work and returns its error, or a [*PanicError].
func Do(work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return work()
}

// Go runs work in a goroutine that running waits for. If work returns an error or panics, the
// goroutine calls failed with the error or a [*PanicError].
func Go(running *sync.WaitGroup, work func() error, failed func(error)) {
	running.Go(func() {
		if err := Do(work); err != nil {
			failed(err)
		}
	})
}

// Keep runs work in a goroutine that running waits for, until it returns nil or ctx ends. After an
// error or a panic it calls failed with the error or a [*PanicError], and begins work again when a
// rest is over: work that has to go on as long as the server lives does not end with one panic.
func Keep(
	ctx context.Context, running *sync.WaitGroup, rest time.Duration, work func(ctx context.Context) error,
	failed func(error),
) {
	Go(running, func() error {
		for {
			err := Do(func() error { return work(ctx) })
			if err == nil || ctx.Err() != nil {
				return nil
			}
			failed(err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(rest):
			}
		}
	}, failed)
}

// After runs work in a goroutine when some time is over, unless the timer is stopped before. If
// work returns an error or panics, the goroutine calls failed with the error or a [*PanicError].
func After(d time.Duration, work func() error, failed func(error)) *time.Timer {
	return time.AfterFunc(d, func() {
		if err := Do(work); err != nil {
			failed(err)
		}
	})
}

// Beside runs work in a goroutine. The channel receives one value: nil, the error of work, or a
// [*PanicError].
func Beside(work func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- Do(work) }()
	return ended
}

// Group is a set of goroutines that work on one task. The zero value is one without a context.
type Group struct {
	running sync.WaitGroup
	cancel  context.CancelCauseFunc // nil without a context
	once    sync.Once
	err     error // the first one; set by once
}

// WithContext returns a group and a context that ends with the first error, which is its cause, or
// when Wait returns.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

// Go runs work in a goroutine. A panic in it is an error of the group.
func (g *Group) Go(work func() error) { Go(&g.running, work, g.Fail) }

// Fail records an error that occurred outside the goroutines of the group.
func (g *Group) Fail(err error) {
	g.once.Do(func() {
		g.err = err
		if g.cancel != nil {
			g.cancel(err)
		}
	})
}

// Wait waits for the goroutines and returns the first error.
func (g *Group) Wait() error {
	g.running.Wait()
	if g.cancel != nil {
		g.cancel(g.err)
	}
	return g.err
}
