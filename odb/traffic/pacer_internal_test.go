package traffic

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// TestPacer asks how long work in the background rests, with and without requests.
func TestPacer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := &Requests{}
		pace := &Pacer{requests: requests, pause: 2}
		ctx, cancel := context.WithCancel(t.Context())
		rests := func(work, want time.Duration) {
			t.Helper()
			time.Sleep(work)
			begun := time.Now()
			if err := pace.Rest(ctx); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun); got != want {
				t.Errorf("after %v of work it rests for %v, want %v", work, got, want)
			}
		}
		rests(0, 0) // the first call begins the stretch
		rests(time.Millisecond, 0)
		requests.Begin()
		rests(paceStretch/2, 0)
		rests(paceStretch/2, 2*paceStretch)
		rests(time.Millisecond, 2*time.Millisecond)
		requests.End()
		rests(pauseMax/2, pauseMax) // as long as they may come one after another
		rests(time.Millisecond, 0)
		requests.Begin()
		requests.Leave() // a view with a private cache is no request
		rests(time.Millisecond, 0)
		requests.Begin()
		cancel()
		time.Sleep(time.Millisecond)
		if err := pace.Rest(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled rest returns %v", err)
		}
		var none *Pacer
		if err := none.Rest(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPacerOfOrganizations has work for an organization rest while requests of that and of others
// wait, or do not.
func TestPacerOfOrganizations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		served, waits string // organizations of requests; "" is none
		want          time.Duration
	}{
		{want: time.Millisecond},
		{served: "b", want: time.Millisecond},
		{served: "b", waits: "a", want: time.Millisecond},
		{served: "a", waits: "b", want: makeWay * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			requests, processors := &Requests{}, fair.NewProcessors(1)
			requests.Begin()
			pace := NewPacer(requests, 1)
			ctx := processors.Background(t.Context(), fair.Tenant{Org: "a"})
			fair.Debit(ctx, time.Millisecond)
			end := make(chan struct{})
			var all sync.WaitGroup
			for _, org := range []string{test.served, test.served, test.waits} { // there are two turns
				if org != "" {
					all.Go(func() {
						account := processors.Account(fair.Tenant{Org: org}, 0)
						if err := account.Begin(t.Context(), true, 0); err != nil {
							t.Error(err)
						}
						<-end
						account.End()
					})
				}
				synctest.Wait()
			}
			for range 2 { // the first one begins a stretch
				begun := time.Now()
				if err := pace.Rest(ctx); err != nil {
					t.Error(err)
				}
				if got := time.Since(begun); !pace.begun.Equal(begun) && got != test.want {
					t.Errorf("served %q, waiting %q: it rests for %v, want %v", test.served, test.waits, got, test.want)
				}
				time.Sleep(time.Millisecond)
			}
			close(end)
			all.Wait()
		})
	}
}
