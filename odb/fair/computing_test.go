package fair_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// serveUntil has requests of an organization served for a millisecond each, one after the other,
// until a moment. It returns what they are charged.
func serveUntil(t *testing.T, p *fair.Processors, org string, until time.Time) (took time.Duration) {
	t.Helper()
	for time.Now().Before(until) {
		_, account := serve(t, p, org, 0)
		if time.Now().Before(until) {
			time.Sleep(time.Millisecond)
		}
		account.End()
		took += account.Spent()
	}
	return took
}

// Four organizations with requests share two processors, and others compute: none of these gets
// more than one of those, and one that comes later is not held up by one that has computed much.
func TestComputationsMakeWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const half = time.Second
		p := fair.NewProcessors(2)
		ctx, cancel := context.WithTimeout(t.Context(), 2*half)
		defer cancel()
		until := time.Now().Add(2 * half)
		var all sync.WaitGroup
		var served [4]atomic.Int64
		for i := range served {
			for range 4 {
				all.Go(func() { served[i].Add(int64(serveUntil(t, p, string(rune('a'+i)), until))) })
			}
		}
		first, later := p.Account(tenant("first", "r", "t"), 0), p.Account(tenant("later", "r", "t"), 0)
		var running, most atomic.Int64
		compute := func(account *fair.Account, from time.Duration) {
			for range 4 {
				all.Go(func() {
					time.Sleep(from)
					if err := toil(fair.With(ctx, account), &running, &most); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
			}
		}
		compute(first, 0)
		compute(later, half)
		all.Wait()
		shares := make([]time.Duration, len(served))
		for i := range served {
			shares[i] = time.Duration(served[i].Load())
		}
		share := min(shares[0], shares[1], shares[2], shares[3])
		if share < half*7/10 { // of 5 and then 6 tenants
			t.Errorf("the requests were served for %v", shares)
		}
		if spent := first.Spent(); spent > share*11/10 || spent < share*6/10 {
			t.Errorf("one computed for %v, requests of others were served for %v", spent, shares)
		}
		if spent := later.Spent(); spent > share*6/10 || spent < share*3/10 {
			t.Errorf("one that came later computed for %v, requests of others were served for %v", spent, shares)
		}
	})
}

// What an organization has computed delays its requests.
func TestComputationsAreDebts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		until := time.Now().Add(time.Second)
		computes := p.Account(tenant("a", "r", "t"), 0)
		var all sync.WaitGroup
		var running, most, a, b atomic.Int64
		all.Go(func() {
			if err := toil(fair.With(ctx, computes), &running, &most); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		for range 4 {
			all.Go(func() { a.Add(int64(serveUntil(t, p, "a", until))) })
			all.Go(func() { b.Add(int64(serveUntil(t, p, "b", until))) })
		}
		all.Wait()
		whole, other := computes.Spent()+time.Duration(a.Load()), time.Duration(b.Load())
		if whole > other*11/10 || whole < other*9/10 || computes.Spent() < 500*time.Millisecond {
			t.Errorf("one computed for %v and was served for %v, another one was served for %v", computes.Spent(),
				time.Duration(a.Load()), other)
		}
	})
}
