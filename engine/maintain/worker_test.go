package maintain_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/engine/maintain"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/space"
)

// host writes down which pools are compacted, by the first letter of their IDs, and each round as a
// stroke.
type host struct {
	compact      func(odb.PoolID) error
	owners       func(pool odb.PoolID, owner string) // told of each compaction; nil: nobody is
	round, sweep func() error

	mu   sync.Mutex // guards done and last
	done string
	last time.Time // when the last round began
}

func (h *host) Compact(
	_ context.Context, pool odb.PoolID, options repack.CompactOptions,
) (repack.Compacted, error) {
	h.add(rune(pool[0]))
	if h.owners != nil {
		h.owners(pool, options.Owner)
	}
	if h.compact == nil {
		return repack.Compacted{}, nil
	}
	return repack.Compacted{}, h.compact(pool)
}

func (h *host) Round(context.Context, packgen.RepackOptions) error {
	h.mu.Lock()
	h.last = time.Now()
	h.mu.Unlock()
	h.add('|')
	return call(h.round)
}

func (h *host) UntilRound(_ context.Context, interval time.Duration) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() {
		h.last = time.Now()
	}
	return time.Until(h.last.Add(interval)), nil
}

func (h *host) Sweep(context.Context) error { return call(h.sweep) }

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (h *host) add(letter rune) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done += string(letter)
}

// wants waits until no work is due, and compares the work done since the test began with right.
func (h *host) wants(t *testing.T, right ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(right, h.done) {
		t.Errorf("done is %q, want one of %q", h.done, right)
	}
}

// newWorker returns a worker with a threshold of 10 written objects a pool. It sweeps each minute.
func newWorker(roundInterval time.Duration) *maintain.Worker {
	settings := maintain.Settings{HotCount: 10, SweepInterval: time.Minute, RoundInterval: roundInterval}
	settings.SetDefaults()
	return maintain.NewWorker(settings, slog.New(slog.DiscardHandler))
}

// start starts all that a worker does, until stop is called.
func start(w *maintain.Worker, h *host) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan struct{})
	w.Start(h)
	go func() {
		defer close(kept)
		w.Keep(ctx, h)
	}()
	return func() {
		cancel()
		<-kept
		w.Stop()
	}
}

func write(w *maintain.Worker, pool byte, count int) {
	w.Grew(odb.PoolID{pool}, odb.Growth{ObjectCount: count})
}

// TestWorkerOrder has several pools pass the threshold, and the disk has no room for one of them
// until the first sweep.
func TestWorkerOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, full := newWorker(time.Hour), true
		h := &host{
			compact: func(pool odb.PoolID) error {
				if pool[0] == 'b' && full {
					return space.ErrNoRoom
				}
				return nil
			},
			sweep: func() error {
				full = false
				return nil
			},
		}
		for _, pool := range []byte("abcd") {
			write(w, pool, 9)
		}
		for _, pool := range []byte("cabb") {
			write(w, pool, 1)
		}
		defer start(w, h)()
		h.wants(t, "cab")
		if stats := w.Stats(); stats.Postponed != 1 || stats.DueCount != 1 {
			t.Errorf("without room: %+v", stats)
		}
		time.Sleep(time.Minute)
		h.wants(t, "cabb")
		if stats := w.Stats(); stats.Postponed != 1 || stats.DueCount != 0 || stats.Failures != 0 {
			t.Errorf("with room: %+v", stats)
		}
	})
}

// TestWorkerStoreAway has the store away during the turn of a pool and during a round: both come
// again after a sweep, and neither counts as a failure.
func TestWorkerStoreAway(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"unavailable": kv.ErrUnavailable, "unknown": kv.ErrUnknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorker(time.Hour)
				var away atomic.Bool
				away.Store(true)
				err = fmt.Errorf("apply: %w", err)
				answer := func() error {
					if away.Load() {
						return err
					}
					return nil
				}
				h := &host{compact: func(odb.PoolID) error { return answer() }, round: answer}
				write(w, 'a', 10)
				defer start(w, h)()
				h.wants(t, "a")
				away.Store(false)
				time.Sleep(time.Minute)
				h.wants(t, "aa")
				away.Store(true)
				time.Sleep(time.Hour - 90*time.Second)
				write(w, 'b', 9)
				time.Sleep(30 * time.Second)
				h.wants(t, "aa|")
				away.Store(false)
				time.Sleep(time.Minute + time.Second)
				h.wants(t, "aa||")
				time.Sleep(30 * time.Minute)
				h.wants(t, "aa||")
				if s := w.Stats(); s.Failures != 0 || s.Postponed != 2 {
					t.Errorf("%d failures, %d postponed", s.Failures, s.Postponed)
				}
			})
		})
	}
}

// TestWorkerOwners has many pools of one owner pass the threshold before some of others: the owners
// take turns.
func TestWorkerOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owners := map[byte]string{'x': "one", 'X': "two", 'Y': "two"}
		w, h := newWorker(time.Hour), &host{}
		h.owners = func(pool odb.PoolID, owner string) {
			if want := cmp.Or(owners[pool[0]], "many"); owner != want {
				t.Errorf("pool %c is compacted for %q, want %q", pool[0], owner, want)
			}
		}
		for _, pool := range []byte("abcdXefYxg") {
			w.Grew(odb.PoolID{pool}, odb.Growth{ObjectCount: 9, Owner: cmp.Or(owners[pool], "many")})
			w.Grew(odb.PoolID{pool}, odb.Growth{ObjectCount: 1}) // what rewrites it may not know whose it is
		}
		defer start(w, h)()
		h.wants(t, "aXxbYcdefg")
	})
}

// TestWorkerKeepsUp writes faster than compaction: sweeps and rounds run nevertheless, about as
// often as they should.
func TestWorkerKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, sweepCount, last := newWorker(time.Minute), 0, uint16(0)
		grow := func() {
			last++
			w.Grew(odb.PoolID{'p', byte(last >> 8), byte(last)}, odb.Growth{ObjectCount: 10})
		}
		h := &host{
			compact: func(odb.PoolID) error {
				time.Sleep(time.Second)
				grow()
				grow()
				return nil
			},
			round: func() error {
				grow()
				return nil
			},
			sweep: func() error {
				sweepCount++
				return nil
			},
		}
		grow()
		stop := start(w, h)
		time.Sleep(time.Hour)
		stop()
		if roundCount := strings.Count(h.done, "|"); sweepCount < 30 || roundCount < 30 || len(h.done) < 3000 {
			t.Errorf("%d sweeps, %d rounds of %d things done in an hour", sweepCount, roundCount, len(h.done))
		}
	})
}

// TestWorkerRoundOverRestarts restarts a worker each hour, and expects a daily round.
func TestWorkerRoundOverRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		for range 23 {
			oneHour(t, h)
		}
		h.wants(t, "")
		for range 24 {
			oneHour(t, h)
		}
		h.wants(t, "|")
		for range 24 {
			oneHour(t, h)
		}
		h.wants(t, "||")
		time.Sleep(100 * time.Hour) // a round that is overdue is begun at once
		oneHour(t, h)
		h.wants(t, "|||")
	})
}

// oneHour lets a worker live for an hour and a second.
func oneHour(t *testing.T, h *host) {
	t.Helper()
	w := newWorker(24 * time.Hour)
	defer start(w, h)()
	time.Sleep(time.Hour + time.Second)
}

// TestWorkerRound checks that a round leaves the writes during it due, and all writes when it
// fails.
func TestWorkerRound(t *testing.T) {
	t.Parallel()
	failure := errors.New("the round fails")
	tests := map[string]struct {
		err                    error
		others                 int // objects written to another pool during the round
		afterRound, afterWrite string
	}{
		"done":         {err: nil, others: 10, afterRound: "|n", afterWrite: "|nb"},
		"failed":       {err: failure, others: 10, afterRound: "|nb", afterWrite: "|nba"},
		"failed alone": {err: failure, others: 0, afterRound: "|b", afterWrite: "|ba"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorker(90 * time.Second) // between sweeps
				h := &host{round: func() error {
					write(w, 'b', 6)
					write(w, 'n', test.others)
					return test.err
				}}
				write(w, 'a', 6)
				write(w, 'b', 6)
				defer start(w, h)()
				h.wants(t, "")
				time.Sleep(90 * time.Second)
				h.wants(t, test.afterRound)
				write(w, 'a', 4)
				write(w, 'b', 4)
				h.wants(t, test.afterWrite)
			})
		})
	}
}

// TestWorkerRoundWithPoolsDue has pools wait when a round comes. Which of them are compacted before
// it is left to chance.
func TestWorkerRoundWithPoolsDue(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err   error
		right []string
	}{
		"done":   {err: nil, right: []string{"a|cd", "ab|cd", "abc|cd"}},
		"failed": {err: errors.New("the round fails"), right: []string{"a|bcd", "ab|cd", "abc|cd"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				synctest.Test(t, func(t *testing.T) { roundWithPoolsDue(t, test.err, test.right) })
			}
		})
	}
}

func roundWithPoolsDue(t *testing.T, err error, right []string) {
	t.Helper()
	w := newWorker(time.Hour)
	h := &host{
		compact: func(pool odb.PoolID) error {
			if pool[0] == 'a' { // when it is done the round is due
				time.Sleep(time.Hour)
			}
			return nil
		},
		round: func() error {
			write(w, 'c', 10)
			write(w, 'd', 10)
			return err
		},
	}
	write(w, 'a', 10)
	defer start(w, h)()
	h.wants(t, "a")
	write(w, 'b', 10)
	write(w, 'c', 10)
	h.wants(t, "a")
	time.Sleep(90 * time.Minute)
	h.wants(t, right...)
	if stats := w.Stats(); stats.Rounds != 1 || stats.DueCount != 0 {
		t.Errorf("%+v", stats)
	}
}
