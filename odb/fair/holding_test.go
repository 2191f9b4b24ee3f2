package fair_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// request is one that was admitted for 10 of a queue of 100, of which an organization may hold 50.
func request(tb testing.TB, q *fair.Queue, org string) (context.Context, *fair.Holding) {
	tb.Helper()
	tenant := fair.Tenant{Org: org}
	release, err := q.Acquire(tb.Context(), tenant, 0, 10)
	if err != nil {
		tb.Fatal(err)
	}
	h := new(fair.Holding)
	h.Begin(q, tenant, 10)
	tb.Cleanup(func() {
		h.Close()
		release()
	})
	return fair.Hold(tb.Context(), h), h
}

func newQueue() *fair.Queue {
	return fair.NewQueue(fair.Options{Capacity: 100, Waiting: 100, Wait: 10 * time.Second})
}

// TestNeedOfAll lets all admitted requests need more than is left: one after the other gets it.
func TestNeedOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var wait sync.WaitGroup
		var mu sync.Mutex
		held, most := int64(100), int64(0)
		var order []int
		var contexts []context.Context
		var holdings []*fair.Holding
		for i := range 10 {
			ctx, h := request(t, q, fmt.Sprint("org", i/5))
			contexts, holdings = append(contexts, ctx), append(holdings, h)
		}
		for i := range 10 {
			wait.Go(func() {
				defer holdings[i].Close()
				if err := fair.Need(contexts[i], 45); err != nil {
					t.Error(err)
				}
				mu.Lock()
				held += 35
				most = max(most, held)
				order = append(order, i/5)
				mu.Unlock()
				time.Sleep(500 * time.Millisecond)
				mu.Lock()
				held -= 35
				mu.Unlock()
			})
			synctest.Wait()
		}
		wait.Wait()
		if most != 135 {
			t.Errorf("%d of 100 were held at once, want 35 beyond", most)
		}
		if fmt.Sprint(order) != "[0 1 0 1 0 1 0 1 0 1]" {
			t.Errorf("the organizations came in the order %v", order)
		}
		if used, waiting := q.State(); used != 100 || waiting != 0 {
			t.Errorf("%d are held and %d wait, want what ten were admitted for", used, waiting)
		}
	})
}

// TestNeed asks for an amount that fits, for less, for more than there is, and after the end of the
// request.
func TestNeed(t *testing.T) {
	t.Parallel()
	q := newQueue()
	ctx, h := request(t, q, "a")
	for _, test := range []struct{ need, total, used int64 }{{5, 10, 10}, {30, 30, 30}, {20, 30, 30}, {200, 100, 30}} {
		if err := fair.Need(ctx, test.need); err != nil {
			t.Fatal(err)
		}
		if used, _ := q.State(); h.Total() != test.total || used != test.used {
			t.Errorf("after a need of %d: %d, and %d of the queue, want %d and %d", test.need, h.Total(), used, test.total,
				test.used)
		}
	}
	if err := fair.Need(ctx, 201); !errors.Is(err, fair.ErrMemory) {
		t.Errorf("a need of more than twice what there is: %v", err)
	}
	h.Close()
	if used, _ := q.State(); used != 10 {
		t.Errorf("%d are held afterwards, want 10", used)
	}
	if err := fair.Need(t.Context(), 1<<40); err != nil {
		t.Errorf("work that belongs to no request: %v", err)
	}
}

// TestNeedEnds waits until the queue's time ends, or the request.
func TestNeedEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		first, _ := request(t, q, "a")
		second, h := request(t, q, "b")
		for _, more := range []int64{80, 100} { // again, without waiting for itself
			if err := fair.Need(first, more); err != nil {
				t.Fatal(err)
			}
		}
		if err := fair.Need(second, 60); !errors.Is(err, fair.ErrBusy) {
			t.Errorf("the queue's time is over: %v", err)
		}
		gone, cancel := context.WithCancelCause(second)
		why := errors.New("gone")
		cancel(why)
		if err := fair.Need(gone, 60); !errors.Is(err, why) {
			t.Errorf("the request has ended: %v", err)
		}
		if h.Total() != 10 {
			t.Errorf("it holds %d", h.Total())
		}
	})
}

// TestGrowComesFirst gives a released amount first to growers, then to new requests.
func TestGrowComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		give, err := q.Acquire(t.Context(), fair.Tenant{Org: "a"}, 0, 40)
		if err != nil {
			t.Fatal(err)
		}
		ctx, h := request(t, q, "a")
		overdrawn, err := q.Grow(t.Context(), "b", fair.Tenant{Org: "b"}, 0, 60)
		if err != nil {
			t.Fatal(err)
		}
		defer overdrawn()
		var order []string
		var wait sync.WaitGroup
		wait.Go(func() {
			release, err := q.Acquire(t.Context(), fair.Tenant{Org: "a"}, 0, 40)
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "newcomer")
			release()
		})
		synctest.Wait()
		wait.Go(func() {
			if err := fair.Need(ctx, 30); err != nil {
				t.Error(err)
			}
			order = append(order, "holder")
		})
		synctest.Wait()
		other, err := q.Acquire(t.Context(), fair.Tenant{Org: "c"}, 0, 50)
		if err != nil {
			t.Fatalf("one who has nothing to do with it: %v", err)
		}
		other()
		give()
		synctest.Wait()
		h.Close()
		overdrawn()
		wait.Wait()
		if fmt.Sprint(order) != "[holder newcomer]" {
			t.Errorf("served in the order %v", order)
		}
	})
}

// TestSpare takes three quarters of the free amount, and nothing when others wait.
func TestSpare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ctx, h := request(t, q, "a")
		if got := fair.Spare(ctx, 20); got != 20 || h.Total() != 20 {
			t.Errorf("%d of 20, %d in all", got, h.Total())
		}
		other, _ := request(t, q, "a")
		if got, want := fair.Spare(other, 1000), int64(10+15); got != want { // a quarter of 20 is 5
			t.Errorf("%d of what is left, want %d", got, want)
		}
		if got := fair.Spare(t.Context(), 1000); got != 1000 {
			t.Errorf("work that belongs to no request: %d", got)
		}
		third, _ := request(t, q, "b")
		waiting, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			if release, err := q.Acquire(waiting, fair.Tenant{Org: "a"}, 0, 50); err == nil {
				release()
			}
		})
		synctest.Wait()
		if got := fair.Spare(third, 1000); got != 10 {
			t.Errorf("%d while others wait", got)
		}
		stop()
		wait.Wait()
	})
}
