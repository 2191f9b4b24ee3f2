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

// serve begins a request of a tenant. The caller ends its turn.
func serve(t *testing.T, p *fair.Processors, org string, budget time.Duration) (context.Context, *fair.Account) {
	t.Helper()
	account := p.Account(tenant(org, "r", "t"), budget)
	if err := account.Begin(t.Context(), true, 0); err != nil {
		t.Error(err)
	}
	return fair.With(t.Context(), account), account
}

// nothingTaken fails the test if a turn is still taken.
func nothingTaken(t *testing.T, p *fair.Processors) {
	t.Helper()
	if requests, computations := p.Taken(); requests != 0 || computations != 0 {
		t.Errorf("%d turns of requests and %d of computations are still taken", requests, computations)
	}
}

// Of two organizations with any number of clients, each gets half of the requests served.
func TestRequestsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		var served [2]atomic.Int64
		until := time.Now().Add(time.Second)
		var all sync.WaitGroup
		for i, clients := range []int{64, 4} {
			for range clients {
				all.Go(func() {
					for time.Now().Before(until) {
						ctx, account := serve(t, p, string(rune('a'+i)), 0)
						time.Sleep(time.Millisecond)
						// Who waits for something comes back into the queue behind it.
						if err := fair.Rest(ctx, func() error { time.Sleep(time.Millisecond); return nil }); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Millisecond)
						if time.Now().Before(until) {
							served[i].Add(1)
						}
						account.End()
					}
				})
			}
		}
		all.Wait()
		nothingTaken(t, p)
		many, few := served[0].Load(), served[1].Load()
		if few < many*9/10 || few+many < 450 { // each takes 2 ms of the processor
			t.Errorf("64 clients were served %d times, 4 of another organization %d times", many, few)
		}
	})
}

// Requests have one turn beyond the processors, whoever sends them.
func TestTurnBeyondProcessors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(2)
		var all sync.WaitGroup
		end := make(chan struct{})
		for i := range 6 {
			all.Go(func() {
				_, account := serve(t, p, string(rune('a'+i%2)), 0)
				<-end
				account.End()
			})
			synctest.Wait()
			if requests, _ := p.Taken(); requests != min(i+1, 3) {
				t.Errorf("%d turns are taken by %d requests", requests, i+1)
			}
		}
		close(end)
		all.Wait()
		nothingTaken(t, p)
	})
}

// Work of the background has turns as a request has, and its organization no more than others.
func TestServeInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		until := time.Now().Add(time.Second)
		var all sync.WaitGroup
		var took [4]time.Duration
		for i, org := range []string{"a", "a", "b", "b"} { // a has a request and work of the background
			all.Go(func() {
				for time.Now().Before(until) {
					work := func(context.Context) error {
						time.Sleep(time.Millisecond)
						took[i] += time.Millisecond
						return nil
					}
					if i == 1 {
						if err := p.Serve(t.Context(), tenant(org, "r", ""), work); err != nil {
							t.Error(err)
						}
						continue
					}
					ctx, account := serve(t, p, org, 0)
					_ = work(ctx)
					account.End()
				}
			})
		}
		all.Wait()
		if took[2]+took[3] < (took[0]+took[1])*9/10 || took[0] < took[1]*9/10 || took[1] < took[0]*9/10 {
			t.Errorf("those of an organization took %v and %v, of another one %v", took[0], took[1], took[2:])
		}
		want := errors.New("work")
		if err := p.Serve(t.Context(), tenant("a", "r", ""), func(context.Context) error { return want }); !errors.Is(err, want) {
			t.Errorf("the error of work is %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		_, account := serve(t, p, "b", 0)
		_, second := serve(t, p, "b", 0) // the turn beyond the processors
		cancel()
		if err := p.Serve(ended, tenant("a", "r", ""), func(context.Context) error {
			t.Error("there was a turn")
			return nil
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("without a turn: %v", err)
		}
		account.End()
		second.End()
		nothingTaken(t, p)
	})
}

// A request that waits for something without a Rest has its turn for a while only.
func TestTurnsLapse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		open := make(chan struct{})
		var all sync.WaitGroup
		for range 2 { // as many as there are turns
			_, account := serve(t, p, "a", 0)
			all.Go(func() {
				<-open
				account.End()
			})
		}
		begun := time.Now()
		for range 2 {
			_, account := serve(t, p, "a", 0)
			account.End()
		}
		if took := time.Since(begun); took > 20*time.Millisecond {
			t.Errorf("the next ones were served after %v", took)
		}
		close(open)
		all.Wait()
		nothingTaken(t, p)
	})
}

// Do goes on in the turn of the request. It takes one of its own when it lasts and others compute,
// and the request goes on in its own turn afterwards.
func TestDoInARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(2)
		ctx, account := serve(t, p, "a", 0)
		taken := func(requests, computations int) {
			t.Helper()
			if r, c := p.Taken(); r != requests || c != computations {
				t.Errorf("%d turns of requests and %d of computations are taken, want %d and %d", r, c, requests, computations)
			}
		}
		err := fair.Do(ctx, func(ctx context.Context) error {
			taken(1, 0)
			time.Sleep(2 * time.Millisecond)
			if err := fair.Pause(ctx); err != nil {
				return err
			}
			taken(1, 0) // nobody else is there
			return fair.Do(fair.With(t.Context(), p.Account(tenant("b", "r", "t"), 0)), func(context.Context) error {
				time.Sleep(2 * time.Millisecond)
				if err := fair.Pause(ctx); err != nil {
					return err
				}
				taken(0, 2)
				return fair.Rest(ctx, func() error { taken(0, 1); return nil })
			})
		})
		if err != nil {
			t.Error(err)
		}
		taken(1, 0)
		account.End()
		nothingTaken(t, p)
		if spent := account.Spent(); spent < 4*time.Millisecond {
			t.Errorf("it was charged %v", spent)
		}
	})
}

// A goroutine that works for a request takes turns of its own: the request's goes on.
func TestApartFromARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(2)
		ctx, account := serve(t, p, "a", 0)
		var all sync.WaitGroup
		all.Go(func() {
			_ = fair.Do(fair.Apart(ctx), func(context.Context) error {
				if requests, computations := p.Taken(); requests != 1 || computations != 1 {
					t.Errorf("%d turns of requests and %d of computations are taken", requests, computations)
				}
				return nil
			})
		})
		all.Wait()
		account.End()
		nothingTaken(t, p)
	})
}

// A panic during a wait leaves no turn behind, and takes none twice.
func TestRestPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(2)
		ctx, account := serve(t, p, "a", 0)
		breaks := func(ctx context.Context) error {
			return fair.Rest(ctx, func() error { panic("broken") })
		}
		for name, work := range map[string]func(){
			"of a request":     func() { _ = breaks(ctx) },
			"of a computation": func() { _ = fair.Do(fair.Apart(ctx), breaks) },
			"in a lent turn":   func() { _ = fair.Do(ctx, breaks) },
		} {
			func() {
				defer func() { _ = recover() }()
				work()
				t.Errorf("%s: the panic is gone", name)
			}()
			if requests, computations := p.Taken(); requests != 1 || computations != 0 {
				t.Errorf("%s: %d turns of requests and %d of computations are taken", name, requests, computations)
			}
		}
		account.End()
		nothingTaken(t, p)
	})
}

// A request that waits in a queue has no turn meanwhile, whether it holds something already or not.
func TestQueuesGiveTurnsBack(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(ctx context.Context, q *fair.Queue) (func(), error){
		"acquire": func(ctx context.Context, q *fair.Queue) (func(), error) {
			return q.Acquire(ctx, tenant("a", "r", "t"), 0, 1)
		},
		"grow": func(ctx context.Context, q *fair.Queue) (func(), error) {
			return q.Grow(ctx, "a", tenant("a", "r", "t"), 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := fair.NewQueue(fair.Options{Capacity: 1, Share: 1, Waiting: 8, Wait: time.Minute})
				taken, err := q.Acquire(t.Context(), tenant("b", "r", "t"), 0, 1)
				if err != nil {
					t.Fatal(err)
				}
				beyond, err := q.Grow(t.Context(), "b", tenant("b", "r", "t"), 0, 1) // the capacity: the next one waits
				if err != nil {
					t.Fatal(err)
				}
				p := fair.NewProcessors(2)
				ctx, account := serve(t, p, "a", 0)
				go func() {
					time.Sleep(time.Millisecond)
					nothingTaken(t, p)
					taken()
					beyond()
				}()
				release, err := wait(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				if requests, _ := p.Taken(); requests != 1 {
					t.Errorf("afterwards it has %d turns", requests)
				}
				release()
				account.End()
				nothingTaken(t, p)
			})
		})
	}
}

// The budget of a request counts what it computes outside of Do too.
func TestRequestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		ctx, account := serve(t, p, "a", 10*time.Millisecond)
		var err error
		steps := 0
		for ; err == nil && steps < 100; steps++ {
			time.Sleep(time.Millisecond)
			err = fair.Pause(ctx)
		}
		if !errors.Is(err, fair.ErrWork) || steps > 12 {
			t.Errorf("after %d steps: %v", steps, err)
		}
		account.End()
		nothingTaken(t, p)
	})
}

// A request whose context ends leaves the queue, and a pause of another goroutine does not keep a
// turn beyond the end of the request.
func TestRequestsLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		ctx, first := serve(t, p, "a", 0)
		_, second := serve(t, p, "a", 0)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Account(tenant("b", "r", "t"), 0).Begin(impatient, true, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that has ended: %v", err)
		}
		var all sync.WaitGroup
		all.Go(func() { _, third := serve(t, p, "b", 0); third.End() })
		synctest.Wait()
		all.Go(func() {
			time.Sleep(2 * time.Millisecond)
			_ = fair.Pause(ctx) // gives its turn to the third
		})
		time.Sleep(3 * time.Millisecond)
		first.End()
		second.End()
		all.Wait()
		nothingTaken(t, p)
	})
}

// What was computed for a request before its turn is charged with it.
func TestOwed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := fair.NewProcessors(1).Account(tenant("a", "r", "t"), 0)
		if err := account.Begin(t.Context(), true, 3*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		ctx := fair.With(t.Context(), account)
		for range 2 {
			if err := fair.Rest(ctx, func() error { return nil }); err != nil {
				t.Error(err)
			}
		}
		account.End()
		if spent := account.Spent(); spent != 3*time.Millisecond {
			t.Errorf("%v were charged", spent)
		}
	})
}

// The processors are shared for a while after a request of another organization.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fair.NewProcessors(1)
		ours := func() bool {
			ctx, account := serve(t, p, "a", 0)
			defer account.End()
			return fair.Shared(ctx)
		}
		time.Sleep(time.Second)
		if fair.Shared(t.Context()) || ours() {
			t.Error("nobody else is there")
		}
		_, other := serve(t, p, "b", 0)
		other.End()
		for range 2 {
			if !ours() {
				t.Error("another organization was served")
			}
		}
		time.Sleep(time.Second)
		if ours() {
			t.Error("another organization was served long ago")
		}
	})
}

func BenchmarkBegin(b *testing.B) {
	p := fair.NewProcessors(0)
	b.ReportAllocs()
	for b.Loop() {
		account := p.Account(tenant("a", "r", ""), 0)
		_ = account.Begin(b.Context(), true, 0)
		account.End()
	}
}

// All turns together are charged no more than what the processors have done, whatever their number:
// a computation as much as a processor does, and the requests the rest.
func TestTurnsAreChargedProcessorTime(t *testing.T) {
	t.Parallel()
	const whole = time.Second
	for _, test := range []struct {
		name         string
		processors   int
		computations int
		requests     int
		want         time.Duration // charged to requests
	}{
		{"one request", 2, 0, 1, whole},
		{"a request for each processor", 2, 0, 2, 2 * whole},
		{"many requests", 2, 0, 16, 2 * whole},
		{"beside a computation", 2, 1, 16, whole},
		{"beside as many computations as there is room for", 4, 8, 16, whole},
		{"beside a computation at the only processor", 1, 1, 16, whole},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := fair.NewProcessors(test.processors)
				ctx, cancel := context.WithTimeout(t.Context(), whole)
				defer cancel()
				until := time.Now().Add(whole)
				var all sync.WaitGroup
				var running, most, took atomic.Int64
				for i := range test.computations {
					account := p.Account(tenant(string(rune('a'+i)), "r", "t"), 0)
					all.Go(func() {
						if err := toil(fair.With(ctx, account), &running, &most); !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
					})
				}
				for range test.requests {
					all.Go(func() { took.Add(int64(serveUntil(t, p, "requests", until))) })
				}
				all.Wait()
				if got := time.Duration(took.Load()); got < test.want*95/100 || got > test.want*105/100 {
					t.Errorf("the requests are charged %v, want %v", got, test.want)
				}
				nothingTaken(t, p)
			})
		})
	}
}
