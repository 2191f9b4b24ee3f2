package traffic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
