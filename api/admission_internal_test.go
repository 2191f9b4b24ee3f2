package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/api/exchange"
)

// take acquires in the background and tells when it was admitted.
func take(t *testing.T, a *admission, org string, amount int64) <-chan func() {
	t.Helper()
	admitted := make(chan func(), 1)
	go func() {
		release, err := a.acquire(t.Context(), org, 0, amount)
		if err == nil {
			admitted <- release
		}
	}()
	synctest.Wait()
	return admitted
}

func isAdmitted(admitted <-chan func()) bool {
	synctest.Wait()
	return len(admitted) == 1
}

// One organization gets half, and does not hold up another one behind it in the queue.
func TestAdmissionShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(4, 10, time.Hour)
		first, second, third := take(t, a, "greedy", 1), take(t, a, "greedy", 1), take(t, a, "greedy", 1)
		other := take(t, a, "modest", 1)
		if !isAdmitted(first) || !isAdmitted(second) || isAdmitted(third) || !isAdmitted(other) {
			t.Fatal("the shares are not kept")
		}
		(<-other)()
		if isAdmitted(third) {
			t.Error("what another organization gave back went beyond the share")
		}
		release := <-first
		release()
		release()
		if !isAdmitted(third) {
			t.Error("the waiting request was not served")
		}
		if used, waiting := a.state(); used != 2 || waiting != 0 {
			t.Errorf("%d used, %d waiting; a release counted twice?", used, waiting)
		}
	})
}

// A large request is not starved by small ones that come later.
func TestAdmissionOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(100, 10, time.Hour)
		one, two := take(t, a, "a", 50), take(t, a, "b", 20)
		large := take(t, a, "c", 50)
		small := take(t, a, "d", 10)
		if !isAdmitted(one) || !isAdmitted(two) || isAdmitted(large) || isAdmitted(small) {
			t.Fatal("a small request overtook a large one")
		}
		(<-two)()
		if !isAdmitted(large) || isAdmitted(small) {
			t.Fatal("the large request was not served first")
		}
		(<-one)()
		if !isAdmitted(small) {
			t.Error("the small request was forgotten")
		}
	})
}

func TestAdmissionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(2, 1, 10*time.Second)
		release, err := a.acquire(t.Context(), "a", 2, 100) // more than there is counts as all
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := a.acquire(t.Context(), "b", 0, 1); !errors.Is(err, exchange.ErrBusy) || time.Since(start) != 10*time.Second {
			t.Errorf("error %v after %v, want ErrBusy after 10 s", err, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			_, err := a.acquire(ctx, "b", 0, 1)
			ended <- err
		}()
		synctest.Wait()
		if _, err := a.acquire(t.Context(), "c", 0, 1); !errors.Is(err, exchange.ErrBusy) {
			t.Errorf("error %v, want ErrBusy from a full queue", err)
		}
		cancel(exchange.ErrGone)
		if err := <-ended; !errors.Is(err, exchange.ErrGone) {
			t.Errorf("error %v, want the cause of the context", err)
		}
		release()
		if used, waiting := a.state(); used != 0 || waiting != 0 || len(a.byOrg) != 0 {
			t.Errorf("%d used, %d waiting, %v", used, waiting, a.byOrg)
		}
	})
}

func TestAdmissionNeverExceeds(t *testing.T) {
	t.Parallel()
	const capacity = 10
	a := newAdmission(capacity, 1000, time.Minute)
	var mu sync.Mutex
	var used, most int64 // guarded by mu
	move := func(amount int64) {
		mu.Lock()
		defer mu.Unlock()
		used += amount
		most = max(most, used)
	}
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			for j := range 500 {
				amount := int64((i+j)%5 + 1)
				release, err := a.acquire(t.Context(), fmt.Sprint(i%4), 0, amount)
				if err != nil {
					t.Error(err)
					return
				}
				move(amount)
				move(-amount)
				release()
			}
		})
	}
	wait.Wait()
	if most > capacity {
		t.Errorf("%d of %d", most, capacity)
	}
	if used, waiting := a.state(); used != 0 || waiting != 0 {
		t.Errorf("%d used, %d waiting at the end", used, waiting)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waits []time.Duration
		moved int
		fast  bool
	}{
		"fast":                         {[]time.Duration{time.Second, 59 * time.Second}, 30 << 10, true},
		"one byte a minute":            {[]time.Duration{60 * time.Second}, 1, false},
		"slow, but not waited for":     {[]time.Duration{time.Millisecond, time.Millisecond}, 1, true},
		"just below":                   {[]time.Duration{60 * time.Second}, 60<<10 - 1, false},
		"just at it":                   {[]time.Duration{60 * time.Second}, 60 << 10, true},
		"a long wait after a fast one": {[]time.Duration{60 * time.Second, 60 * time.Second}, 60 << 10, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{window: time.Minute, rate: 1 << 10}
			fast := true
			for _, wait := range test.waits {
				fast = p.add(wait, test.moved) && fast
			}
			if fast != test.fast {
				t.Errorf("keeps pace: %t", fast)
			}
		})
	}
}
