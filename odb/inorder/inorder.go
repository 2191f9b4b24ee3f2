// Package inorder computes with several goroutines what one caller uses in an order of its own.
//
// Start at [Map], for a sequence whose results are used in its order. [Workers] are for a caller
// who learns from results what to compute next, or takes some out of turn. The number of running
// calls is bounded, and every goroutine has ended before Map or [Workers.Stop] returns.
package inorder

import (
	"cmp"
	"context"
	"iter"
	"runtime"

	"packhorse/odb/rescue"
)

// Options are the settings of [Map] and [Workers]; the zero value takes every default.
type Options struct {
	// Workers is the number of goroutines; by default that of cores.
	Workers int
	// Ahead bounds the items that are computed or wait for their turn; by default four for each
	// worker. It bounds the memory.
	Ahead int
	// Idle is called before the caller of Map waits for a result that is not ready. Its error is
	// yielded and ends the walk.
	Idle func() error
}

func (o *Options) setDefaults() {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Ahead = cmp.Or(o.Ahead, 4*o.Workers)
}

// Map calls work for each item, from several goroutines at once, and yields the results in the
// order of the items. The first error, of the items or of work, is yielded in its place and ends
// the walk; a panic is such an error, a [*rescue.PanicError]. items is iterated by a goroutine of
// its own; work should return when its context ends, and computes in a turn of [fair.Do].
func Map[T, R any](
	ctx context.Context, items iter.Seq2[T, error], o Options, work func(ctx context.Context, item T) (R, error),
) iter.Seq2[R, error] {
	o.setDefaults()
	return func(yield func(R, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var feeding rescue.Group
		defer func() { _ = feeding.Wait() }() // its errors are yielded
		defer cancel()
		turns := make(chan *Task[T, R], o.Ahead) // in order, for the caller
		feeding.Go(func() error {
			feed(ctx, safely(items), turns, Start(ctx, o, work))
			return nil
		})
		var none R
		for {
			t, err := receive(turns, o.Idle)
			if t != nil && err == nil {
				_, err = receive(t.done, o.Idle)
			}
			switch {
			case err != nil:
				yield(none, err)
				return
			case t == nil:
				if err := ctx.Err(); err != nil {
					yield(none, err)
				}
				return
			case !yield(t.result, t.err) || t.err != nil:
				return
			}
		}
	}
}

// receive returns the next element of a channel, or the zero value when it is closed. It calls
// idle, if not nil, before a wait.
func receive[T any](from <-chan T, idle func() error) (got T, err error) {
	if idle != nil {
		select {
		case got = <-from:
			return got, nil
		default:
		}
		if err := idle(); err != nil {
			return got, err
		}
	}
	return <-from, nil
}

// safely yields a panic of items as its last error.
func safely[T any](items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := rescue.Do(func() error {
			items(func(item T, err error) bool {
				stopped = !yield(item, err)
				return !stopped
			})
			return nil
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

// feed hands out the items until they or the context end, and stops the workers.
func feed[T, R any](
	ctx context.Context, items iter.Seq2[T, error], turns chan<- *Task[T, R], workers *Workers[T, R],
) {
	defer workers.Stop()
	defer close(turns)
	for item, err := range items {
		t := &Task[T, R]{item: item, err: err, done: make(chan struct{})}
		select {
		case turns <- t:
		case <-ctx.Done():
			return
		}
		if err != nil {
			close(t.done)
			return
		}
		workers.add(t)
	}
}
