package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// Creations of an organization wait for each other without a turn at the processors, those of
// others do not wait, and who gives up leaves the line.
func TestCreationsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		creations := newCreations()
		p := fair.NewProcessors(1)
		running, most := 0, 0
		var mu sync.Mutex // guards running and most
		create := func(org string) {
			account := p.Account(fair.Tenant{Org: org}, 0)
			if err := account.Begin(t.Context(), true, 0); err != nil {
				t.Error(err)
			}
			defer account.End()
			ctx := fair.With(t.Context(), account)
			end, err := creations.Acquire(ctx, fair.Tenant{Org: org}, 0, 1)
			if err != nil {
				t.Error(err)
				return
			}
			defer end()
			if org == "a" {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
			}
			if err := fair.Rest(ctx, func() error { time.Sleep(time.Second); return nil }); err != nil {
				t.Error(err)
			}
			if org == "a" {
				mu.Lock()
				running--
				mu.Unlock()
			}
		}
		began := time.Now()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { create("a") })
		}
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := creations.Acquire(impatient, fair.Tenant{Org: "a"}, 0, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gives up gets %v", err)
		}
		create("b")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("that of another organization took %v", took)
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d at once", most)
		}
		if taken, waiting := creations.State(); taken != 0 || waiting != 0 {
			t.Errorf("%d turns are taken, and %d wait", taken, waiting)
		}
	})
}
