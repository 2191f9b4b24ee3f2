package fair_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// An organization whose clients have no request for a moment now and then gets its half
// nevertheless.
func TestMomentsAreMadeUpFor(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := fair.NewProcessors(1)
				until := time.Now().Add(2 * time.Second)
				var took [2]atomic.Int64
				serveFor := func(i int, org string) {
					_, account := serve(t, p, org, 0)
					time.Sleep(time.Millisecond)
					took[i].Add(int64(time.Millisecond))
					account.End()
				}
				var all sync.WaitGroup
				for range 80 {
					all.Go(func() {
						for time.Now().Before(until) {
							serveFor(0, "a")
						}
					})
				}
				all.Go(func() {
					for time.Now().Before(until) {
						var burst sync.WaitGroup
						for range 64 {
							burst.Go(func() { serveFor(1, "b") })
						}
						burst.Wait()
						time.Sleep(away)
					}
				})
				all.Wait()
				if a, b := took[0].Load(), took[1].Load(); b < a*85/100 {
					t.Errorf("an organization took %v, the other one %v", time.Duration(a), time.Duration(b))
				}
			})
		})
	}
}

// Whoever was idle for long is served before the others for 50 ms at most, and who is new not at
// all.
func TestCreditIsBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		known bool
		want  time.Duration
	}{{"idle", true, 50 * time.Millisecond}, {"new", false, 0}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := fair.NewProcessors(1)
				if test.known {
					_, account := serve(t, p, "b", 0)
					account.End()
				}
				for range 1000 {
					_, account := serve(t, p, "a", 0)
					time.Sleep(time.Millisecond)
					account.End()
				}
				_, first := serve(t, p, "a", 0)
				_, second := serve(t, p, "a", 0) // the turn beyond the processors
				took := servedBefore(t, p, first, second)
				if took < test.want || took > test.want+3*time.Millisecond {
					t.Errorf("it is served for %v before others, want %v", took, test.want)
				}
				nothingTaken(t, p)
			})
		})
	}
}
