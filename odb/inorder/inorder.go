// Package inorder works on a sequence with several goroutines and hands out the results in the
// order of the sequence.
//
// Start at [Map]. The number of running calls is bounded. When the caller stops, or the context
// ends, every goroutine has ended before [Map] returns.
package inorder

import (
	"context"
	"iter"
	"runtime"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// Options are the settings of [Map]; the zero value takes every default.
type Options struct {
	// Workers is the number of goroutines; by default that of cores.
	Workers int
	// Ahead bounds the items that are computed or wait for their turn; by default four for each
	// worker. It bounds the memory.
	Ahead int
	// Idle is called before the caller waits for a result that is not ready. Its error is yielded
	// and ends the walk.
	Idle func() error
}

// task is one item and what becomes of it.
type task[T, R any] struct {
	item   T
	result R
	err    error
	done   chan struct{} // closed when result and err are there
}

// do works on the task. A panic becomes its error.
func (t *task[T, R]) do(ctx context.Context, work func(ctx context.Context, item T) (R, error)) {
	defer close(t.done)
	if t.err = ctx.Err(); t.err == nil {
		t.err = rescue.Do(func() error {
			return fair.Do(ctx, func(ctx context.Context) (err error) {
				t.result, err = work(ctx, t.item)
				return err
			})
		})
	}
}

// Map calls work for each item, from several goroutines at once, and yields the results in the
// order of the items. The first error, of the items or of work, is yielded in its place and ends
// the walk; a panic is such an error, a [*rescue.PanicError]. items is iterated by a goroutine of
// its own; work should return when its context ends, and computes in a turn of [fair.Do].
func Map[T, R any](
	ctx context.Context, items iter.Seq2[T, error], o Options, work func(ctx context.Context, item T) (R, error),
) iter.Seq2[R, error] {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Ahead == 0 {
		o.Ahead = 4 * o.Workers
	}
	return func(yield func(R, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var running rescue.Group
		defer func() { _ = running.Wait() }() // their errors are yielded
		defer cancel()
		turns := make(chan *task[T, R], o.Ahead) // in order, for the caller
		todo := make(chan *task[T, R], o.Ahead)  // the same, for the workers
		running.Go(func() error {
			workers := 0
			feed(ctx, safely(items), turns, todo, func() {
				if workers == o.Workers { // many sequences are of one or two items
					return
				}
				workers++
				running.Go(func() error {
					for t := range todo {
						t.do(ctx, work)
					}
					return nil
				})
			})
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

// feed hands out the items until they or the context end. Before each there is a call of start,
// which may start a worker.
func feed[T, R any](ctx context.Context, items iter.Seq2[T, error], turns, todo chan<- *task[T, R], start func()) {
	defer close(todo)
	defer close(turns)
	for item, err := range items {
		t := &task[T, R]{item: item, err: err, done: make(chan struct{})}
		select {
		case turns <- t:
		case <-ctx.Done():
			return
		}
		if err != nil {
			close(t.done)
			return
		}
		start()
		todo <- t // the workers never stop taking
	}
}
