package traffic

import (
	"context"
	"errors"
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

// TestPacerOfOrganizations has work for an organization rest while requests of others are served.
func TestPacerOfOrganizations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests, processors := &Requests{}, fair.NewProcessors(1)
		requests.Begin()
		pace := NewPacer(requests, 1)
		ctx := processors.Background(t.Context(), fair.Tenant{Org: "a"})
		for _, test := range []struct {
			org  string // whose request is served before
			want time.Duration
		}{{"", time.Millisecond}, {"a", time.Millisecond}, {"b", sharedPause * time.Millisecond}, {"", time.Millisecond}} {
			if test.org != "" {
				account := processors.Account(fair.Tenant{Org: test.org}, 0)
				if err := account.Begin(ctx, true, 0); err != nil {
					t.Fatal(err)
				}
				account.End()
			}
			if err := pace.Rest(ctx); err != nil { // a stretch begins
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			begun := time.Now()
			if err := pace.Rest(ctx); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun); got != test.want {
				t.Errorf("beside a request of %q it rests for %v, want %v", test.org, got, test.want)
			}
			time.Sleep(time.Second)
			pace.begun = time.Time{}
		}
	})
}
