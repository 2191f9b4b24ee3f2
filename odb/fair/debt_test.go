package fair_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// servedBefore lets a request of a and many of b wait for the turns of the holders at one
// processor, and returns for how long those of b are served before that of a.
func servedBefore(t *testing.T, p *fair.Processors, holders ...*fair.Account) time.Duration {
	t.Helper()
	var all sync.WaitGroup
	var came time.Time
	all.Go(func() {
		_, account := serve(t, p, "a", 0)
		came = time.Now()
		account.End()
	})
	for range 100 {
		all.Go(func() {
			_, account := serve(t, p, "b", 0)
			time.Sleep(time.Millisecond)
			account.End()
		})
	}
	synctest.Wait()
	begun := time.Now()
	for _, holder := range holders {
		holder.End()
	}
	all.Wait()
	return came.Sub(begun)
}

// What the background does for an organization, and what its requests owe, delays its requests, by
// no more than 50 ms, and not those of others.
func TestDebit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		debts []time.Duration
		owed  time.Duration // by a request
		wants time.Duration // for which b is served before a
	}{
		{name: "none"},
		{name: "of a request", owed: 10 * time.Millisecond, wants: 10 * time.Millisecond},
		{name: "of both", debts: []time.Duration{5 * time.Millisecond}, owed: 10 * time.Millisecond, wants: 15 * time.Millisecond},
		{name: "much of a request", owed: time.Hour, wants: 50 * time.Millisecond},
		{name: "some", debts: []time.Duration{3 * time.Millisecond, 7 * time.Millisecond}, wants: 10 * time.Millisecond},
		{name: "much", debts: []time.Duration{time.Hour, time.Minute}, wants: 50 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := fair.NewProcessors(1)
				_, first := serve(t, p, "b", 0)
				_, second := serve(t, p, "b", 0) // the turn beyond the processors
				work := p.Background(t.Context(), fair.Tenant{Org: "a"})
				for _, took := range test.debts {
					fair.Debit(work, took)
				}
				if test.owed > 0 {
					ended := p.Account(tenant("a", "r", "t"), time.Millisecond)
					ended.Owe(test.owed)
					if spent := ended.Spent(); spent != 0 {
						t.Errorf("the request has computed for %v", spent)
					}
				}
				took := servedBefore(t, p, first, second)
				if took < test.wants || took > test.wants+2*time.Millisecond {
					t.Errorf("another organization was served for %v before, want %v", took, test.wants)
				}
				nothingTaken(t, p)
			})
		})
	}
}

// Work makes way for requests that wait of an organization that has been charged less, and for no
// others. Nobody's work makes way for none.
func TestDebitMakesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		var none *fair.Processors
		ctx, first := serve(t, p, "a", 0)
		_, second := serve(t, p, "a", 0) // the turn beyond the processors
		works := map[string]context.Context{
			"of no processors":     none.Background(t.Context(), fair.Tenant{Org: "a"}),
			"of no owner":          p.Background(t.Context(), fair.Tenant{}),
			"of a request":         ctx,
			"of the waiting one":   p.Background(t.Context(), fair.Tenant{Org: "b"}),
			"of the one in a turn": p.Background(t.Context(), fair.Tenant{Org: "a"}),
		}
		makesWay := func() (who string) {
			for name, ctx := range works {
				if fair.Debit(ctx, time.Millisecond) {
					who += name
				}
			}
			return who
		}
		if who := makesWay(); who != "" {
			t.Errorf("without a request that waits, work %s makes way", who)
		}
		fair.Debit(works["of the one in a turn"], time.Hour)
		var all sync.WaitGroup
		all.Go(func() {
			_, account := serve(t, p, "b", 0)
			account.End()
		})
		synctest.Wait()
		if who := makesWay(); who != "of the one in a turn" {
			t.Errorf("while a request waits, work %q makes way", who)
		}
		first.End()
		second.End()
		all.Wait()
	})
}
