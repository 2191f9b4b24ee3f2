package inorder_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"packhorse/odb/inorder"
	"packhorse/odb/rescue"
)

var errBroken = errors.New("broken")

// numbers counts up from 0 and breaks at count when broken.
func numbers(count int, broken bool) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range count {
			if !yield(i, nil) {
				return
			}
		}
		if broken {
			yield(0, errBroken)
		}
	}
}

// double takes turns with the other goroutines in any order.
func double(_ context.Context, i int) (int, error) {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	return 2 * i, nil
}

func TestMap(t *testing.T) {
	t.Parallel()
	failing := func(ctx context.Context, i int) (int, error) {
		if i >= 50 {
			return 0, fmt.Errorf("item %d: %w", i, errBroken)
		}
		return double(ctx, i)
	}
	tests := map[string]struct {
		items   iter.Seq2[int, error]
		options inorder.Options
		work    func(context.Context, int) (int, error)
		count   int
		err     error
	}{
		"none":           {numbers(0, false), inorder.Options{}, double, 0, nil},
		"many":           {numbers(1000, false), inorder.Options{}, double, 1000, nil},
		"one at a time":  {numbers(100, false), inorder.Options{Workers: 1, Ahead: 1}, double, 100, nil},
		"more workers":   {numbers(1000, false), inorder.Options{Workers: 8, Ahead: 3}, double, 1000, nil},
		"work fails":     {numbers(1000, false), inorder.Options{Workers: 3}, failing, 50, errBroken},
		"items fail":     {numbers(70, true), inorder.Options{}, double, 70, errBroken},
		"both fail":      {numbers(60, true), inorder.Options{}, failing, 50, errBroken},
		"fails at first": {numbers(0, true), inorder.Options{}, double, 0, errBroken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := 0
			var failed error
			for got, err := range inorder.Map(t.Context(), test.items, test.options, test.work) {
				if failed = err; err != nil {
					continue
				}
				if got != 2*next {
					t.Fatalf("result %d is %d", next, got)
				}
				next++
			}
			if next != test.count || !errors.Is(failed, test.err) {
				t.Errorf("%d results, %v; want %d, %v", next, failed, test.count, test.err)
			}
		})
	}
}

// A panic is an error for the caller, wherever it began.
func TestMapPanics(t *testing.T) {
	t.Parallel()
	for name, walk := range map[string]iter.Seq2[int, error]{
		"work": inorder.Map(t.Context(), numbers(100, false), inorder.Options{},
			func(ctx context.Context, i int) (int, error) {
				if i == 50 {
					panic("over the limit")
				}
				return double(ctx, i)
			}),
		"items": inorder.Map(t.Context(), func(yield func(int, error) bool) {
			if yield(1, nil) {
				panic("over the limit")
			}
		}, inorder.Options{}, double),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last error
			for _, err := range walk {
				last = err
			}
			if p, ok := errors.AsType[*rescue.PanicError](last); !ok || p.Value != "over the limit" {
				t.Errorf("it ended with %v", last)
			}
		})
	}
}

// Whoever stops early, or is stopped, leaves no work behind, and no more has begun than may be
// under way.
func TestMapStops(t *testing.T) {
	t.Parallel()
	const ahead = 5
	for name, stopBy := range map[string]string{"the caller": "return", "its context": "cancel"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var begun, running atomic.Int64
			work := func(ctx context.Context, i int) (int, error) {
				begun.Add(1)
				running.Add(1)
				defer running.Add(-1)
				return double(ctx, i)
			}
			seen := 0
			var failed error
			for _, err := range inorder.Map(ctx, numbers(1<<30, false), inorder.Options{Workers: 2, Ahead: ahead}, work) {
				if failed = err; err != nil {
					continue
				}
				seen++
				if seen == 100 && stopBy == "return" {
					break
				}
				if seen == 100 {
					cancel()
				}
			}
			if stopBy == "cancel" && !errors.Is(failed, context.Canceled) {
				t.Errorf("it ended with %v", failed)
			}
			if running.Load() != 0 {
				t.Error("work goes on")
			}
			if most := int64(seen + 2*ahead + 2); begun.Load() > most {
				t.Errorf("%d items were begun, at most %d", begun.Load(), most)
			}
		})
	}
}

// Idle is called while a result is not there yet, and only then; its error ends the walk.
func TestMapIdle(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	calls := 0
	options := inorder.Options{Idle: func() error {
		if calls++; calls == 1 {
			close(ready)
		}
		return nil
	}}
	wait := func(_ context.Context, i int) (int, error) {
		<-ready
		return i, nil
	}
	count := 0
	for _, err := range inorder.Map(t.Context(), numbers(10, false), options, wait) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	if count != 10 || calls == 0 {
		t.Errorf("%d results, %d calls", count, calls)
	}
	options.Idle = func() error { return errBroken }
	never := func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	for _, err := range inorder.Map(t.Context(), numbers(10, false), options, never) {
		if !errors.Is(err, errBroken) {
			t.Errorf("it ended with %v", err)
		}
	}
}
