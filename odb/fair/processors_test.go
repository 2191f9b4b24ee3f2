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

// toil computes until ctx ends, in pieces of ten milliseconds with a pause each millisecond. The
// clock of these tests moves only here.
func toil(ctx context.Context, running *atomic.Int64, most *atomic.Int64) error {
	for {
		err := fair.Do(ctx, func(ctx context.Context) error {
			for range 10 {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				if err := fair.Pause(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// crew is some goroutines of one tenant.
type crew struct {
	tenant fair.Tenant
	size   int
	from   time.Duration // when they begin
}

// compete lets crews compute until a moment, and returns for how long each did.
func compete(t *testing.T, processors int, until time.Duration, crews ...crew) (spent []time.Duration, most int64) {
	t.Helper()
	p := fair.NewProcessors(processors)
	ctx, cancel := context.WithTimeout(t.Context(), until)
	defer cancel()
	var accounts []*fair.Account
	var running, highest atomic.Int64
	var all sync.WaitGroup
	for _, c := range crews {
		account := p.Account(c.tenant, 0)
		accounts = append(accounts, account)
		for range c.size {
			all.Go(func() {
				time.Sleep(c.from)
				if err := toil(fair.With(ctx, account), &running, &highest); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v: %v", c.tenant, err)
				}
			})
		}
	}
	all.Wait()
	for _, account := range accounts {
		spent = append(spent, account.Spent())
	}
	return spent, highest.Load()
}

// Organizations get equal time however many requests they have, and so do repositories and tokens
// within them.
func TestProcessorsAreShared(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crews []crew
		want  []float64 // of all time
	}{
		"organizations": {[]crew{{tenant("a", "r", "t"), 64, 0}, {tenant("b", "r", "t"), 2, 0}}, []float64{0.5, 0.5}},
		"repositories":  {[]crew{{tenant("a", "x", "t"), 64, 0}, {tenant("a", "y", "t"), 2, 0}}, []float64{0.5, 0.5}},
		"tokens":        {[]crew{{tenant("a", "x", "1"), 64, 0}, {tenant("a", "x", "2"), 2, 0}}, []float64{0.5, 0.5}},
		"all": {[]crew{
			{tenant("a", "x", "1"), 64, 0},
			{tenant("a", "x", "2"), 2, 0},
			{tenant("a", "y", "1"), 2, 0},
			{tenant("b", "x", "1"), 2, 0},
		}, []float64{0.125, 0.125, 0.25, 0.5}},
		"who has rested has saved nothing up": {[]crew{
			{tenant("a", "x", "1"), 4, 0}, {tenant("b", "x", "1"), 4, 5 * time.Second},
		}, []float64{0.75, 0.25}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const all = 10 * time.Second
				spent, most := compete(t, 2, all, test.crews...)
				if most != 2 {
					t.Errorf("%d computed at once", most)
				}
				for i, want := range test.want {
					if got := float64(spent[i]) / float64(2*all); got < want-0.02 || got > want+0.02 {
						t.Errorf("%v got %.3f of the time, want %.3f", test.crews[i].tenant, got, want)
					}
				}
			})
		})
	}
}

// A request that has computed for longer than its budget ends, wherever it is.
func TestProcessorsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := fair.NewProcessors(1).Account(tenant("a", "r", ""), 100*time.Millisecond)
		var running, most atomic.Int64
		begun := time.Now()
		if err := toil(fair.With(t.Context(), account), &running, &most); !errors.Is(err, fair.ErrWork) ||
			time.Since(begun) > 110*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := fair.Do(fair.With(t.Context(), account), func(context.Context) error { return nil }); !errors.Is(err,
			fair.ErrWork) {
			t.Errorf("more work of the same request: %v", err)
		}
	})
}

// A computation that pauses while it holds something that the others wait for goes on after a
// while, and one that rests makes room.
func TestProcessorsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := fair.With(t.Context(), fair.NewProcessors(1).Account(tenant("a", "r", ""), 0))
		lock := make(chan struct{}, 1)
		var all sync.WaitGroup
		all.Go(func() {
			_ = fair.Do(ctx, func(ctx context.Context) error {
				time.Sleep(2 * time.Millisecond) // the other one waits by now
				defer func() { lock <- struct{}{} }()
				return fair.Pause(ctx)
			})
		})
		time.Sleep(time.Millisecond)
		all.Go(func() {
			_ = fair.Do(ctx, func(context.Context) error {
				<-lock
				return nil
			})
		})
		all.Wait()

		err := fair.Do(ctx, func(outer context.Context) error {
			return fair.Rest(outer, func() error { return fair.Do(ctx, func(context.Context) error { return nil }) })
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A waiter whose context ends leaves the queue.
func TestProcessorsLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := fair.With(t.Context(), fair.NewProcessors(1).Account(tenant("a", "r", ""), 0))
		err := fair.Do(ctx, func(context.Context) error {
			impatient, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			return fair.Do(impatient, func(context.Context) error { return nil })
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := fair.Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkDo(b *testing.B) {
	ctx := fair.With(b.Context(), fair.NewProcessors(0).Account(tenant("a", "r", ""), 0))
	b.ReportAllocs()
	for b.Loop() {
		_ = fair.Do(ctx, fair.Pause)
	}
}

func BenchmarkPause(b *testing.B) {
	ctx := fair.With(b.Context(), fair.NewProcessors(0).Account(tenant("a", "r", ""), 0))
	b.ReportAllocs()
	_ = fair.Do(ctx, func(ctx context.Context) error {
		for b.Loop() {
			_ = fair.Pause(ctx)
		}
		return nil
	})
}
