package kv

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// waiters returns the length of the queue of a stripe.
func (s *stripe) waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// queueUp starts a goroutine that acquires s, writes its name into order and releases, and returns
// when it is in the queue.
func queueUp(ctx context.Context, s *stripe, exclusive bool, group *sync.WaitGroup, do func(error)) {
	before := s.waiters()
	group.Go(func() {
		err := s.acquire(ctx, exclusive, nil)
		do(err)
		if err == nil {
			s.release(exclusive)
		}
	})
	for s.waiters() == before {
		time.Sleep(time.Microsecond)
	}
}

// TestGuardOrder checks that a guard is passed on in the order of arrival, whoever gives up in
// between.
func TestGuardOrder(t *testing.T) {
	t.Parallel()
	var s stripe
	if err := s.acquire(t.Context(), true, nil); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var order []int
	impatient, cancel := context.WithCancel(t.Context())
	for i := range 20 {
		ctx := t.Context()
		if i%4 == 3 {
			ctx = impatient
		}
		queueUp(ctx, &s, i%3 != 0, &group, func(err error) {
			if err != nil {
				if !errors.Is(err, context.Canceled) || i%4 != 3 {
					t.Errorf("%d: %v", i, err)
				}
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
		})
	}
	cancel()
	for s.waiters() > 15 {
		time.Sleep(time.Microsecond)
	}
	s.release(true)
	group.Wait()
	// Shared guards are granted together, so neighbours in the queue may run in any order.
	exclusives := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i%3 == 0 })
	if len(order) != 15 || !slices.IsSorted(exclusives) {
		t.Errorf("served %v", order)
	}
	if s.shared != 0 || s.exclusive || len(s.queue) != 0 {
		t.Errorf("left %+v", &s)
	}
}

// TestGuardShared checks that shared guards are held together, and that they do not overtake one
// that is exclusive.
func TestGuardShared(t *testing.T) {
	t.Parallel()
	var s stripe
	for range 2 {
		if err := s.acquire(t.Context(), false, nil); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var order []string
	note := func(name string) func(error) {
		return func(err error) {
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
	}
	queueUp(t.Context(), &s, true, &group, note("exclusive"))
	queueUp(t.Context(), &s, false, &group, note("shared"))
	s.release(false)
	s.release(false)
	group.Wait()
	if !slices.Equal(order, []string{"exclusive", "shared"}) {
		t.Errorf("served %v", order)
	}
}

// TestGuardFailure checks that the failure of the store ends the wait, and that a set of guards is
// all or nothing.
func TestGuardFailure(t *testing.T) {
	t.Parallel()
	s := new(stripes)
	failed := make(chan struct{})
	var held, wanted footprint
	held.required.add(700)
	for _, i := range []uint64{3, 64, 700, 4095} {
		wanted.required.add(i)
	}
	wanted.written.add(65)
	if err := s.lock(t.Context(), &held, failed); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.lock(t.Context(), &wanted, failed) }()
	for s.list[700].waiters() == 0 {
		time.Sleep(time.Microsecond)
	}
	close(failed)
	if err := <-done; !errors.Is(err, ErrFailed) {
		t.Errorf("got %v", err)
	}
	s.unlock(&held)
	for i := range s.list {
		if g := &s.list[i]; g.shared != 0 || g.exclusive || len(g.queue) != 0 {
			t.Errorf("stripe %d is left %+v", i, g)
		}
	}
	if err := s.lock(t.Context(), &wanted, nil); err != nil {
		t.Fatal(err)
	}
	s.unlock(&wanted)
}
