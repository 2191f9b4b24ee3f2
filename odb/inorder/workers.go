package inorder

import (
	"context"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// Workers are goroutines that compute results ahead of their use. They begin the items in the order
// in which they were added. The methods are for one goroutine.
type Workers[T, R any] struct {
	ctx     context.Context
	work    func(ctx context.Context, item T) (R, error)
	todo    chan *Task[T, R]
	count   int // of goroutines, at most max
	max     int
	running rescue.Group
}

// Start returns workers that compute in ctx. The goroutines begin with the first items: many
// sequences are of one or two. Options.Ahead bounds the items that wait for a goroutine, not the
// results that wait for their use. work computes in a turn of [fair.Do], one of its own if ctx is
// not within a turn, and should return when its context ends.
func Start[T, R any](
	ctx context.Context, o Options, work func(ctx context.Context, item T) (R, error),
) *Workers[T, R] {
	o.setDefaults()
	return &Workers[T, R]{ctx: fair.Beside(ctx), work: work, todo: make(chan *Task[T, R], o.Ahead), max: o.Workers}
}

// Add adds an item. It gives back the turn of ctx while it waits for room.
func (w *Workers[T, R]) Add(ctx context.Context, item T) *Task[T, R] {
	t := &Task[T, R]{item: item, done: make(chan struct{})}
	if len(w.todo) < cap(w.todo) { // only others take
		w.add(t)
		return t
	}
	_ = fair.Rest(ctx, func() error {
		w.add(t)
		return nil
	})
	return t
}

// add waits for room, which there will be: the goroutines never stop taking.
func (w *Workers[T, R]) add(t *Task[T, R]) {
	if w.count < w.max {
		w.count++
		w.running.Go(func() error {
			for t := range w.todo {
				t.do(w.ctx, w.work)
			}
			return nil
		})
	}
	w.todo <- t
}

// Stop returns when every goroutine has ended, and every task has its result or error. To abandon
// the tasks that wait, the caller ends the context of the workers before.
func (w *Workers[T, R]) Stop() {
	close(w.todo)
	_ = w.running.Wait() // the tasks have the errors
}

// Task is one item and what becomes of it.
type Task[T, R any] struct {
	item   T
	result R
	err    error
	done   chan struct{} // closed when result and err are there
}

// do works on the task. A panic becomes its error.
func (t *Task[T, R]) do(ctx context.Context, work func(ctx context.Context, item T) (R, error)) {
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

// Wait returns the result, which lies in the task, as soon as it is there. It gives back the turn
// of ctx while it waits. Errors: that of work; a [*rescue.PanicError]; that of ctx, or of the
// workers' context.
func (t *Task[T, R]) Wait(ctx context.Context) (*R, error) {
	select {
	case <-t.done:
	default:
		err := fair.Rest(ctx, func() error {
			select {
			case <-t.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if t.err != nil {
		return nil, t.err
	}
	return &t.result, nil
}
