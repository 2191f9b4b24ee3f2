package webhook_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// trappedSource is the host with traps in its calls.
type trappedSource struct {
	source
	trap, hooks *odbtest.Trap
}

func (s trappedSource) Hooks(org string) []webhook.Hook {
	s.hooks.Step()
	return s.source.Hooks(org)
}

func (s trappedSource) Repository(ctx context.Context, id refs.RepoID) (webhook.Repository, error) {
	s.trap.Step()
	return s.source.Repository(ctx, id)
}

func (s trappedSource) Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error) {
	s.trap.Step()
	return s.source.Events(ctx, id, after, limit)
}

func (s trappedSource) Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	s.trap.Step()
	return s.source.Waiting(ctx)
}

func (s trappedSource) Span(
	ctx context.Context, id refs.RepoID, after uint64,
) (first, last uint64, found bool, err error) {
	s.trap.Step()
	return s.source.Span(ctx, id, after)
}

func (s trappedSource) Take(b *kv.Batch, id refs.RepoID, first, last uint64) {
	s.trap.Step()
	s.source.Take(b, id, first, last)
}

// trappedNetwork panics before it sends.
type trappedNetwork struct {
	network http.RoundTripper
	trap    *odbtest.Trap
}

func (n trappedNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.trap.Step()
	return n.network.RoundTrip(r)
}

// TestPanics makes each call of the store and of the network panic in turn while two receivers get
// events: the panic is logged, the other receiver has its events at once, and each event comes once
// and in the order of its ref. Later events come at once. A panic in the configuration of hooks
// ends a lane, so that events may come again.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"calls": false, "hooks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := int64(1)
			for sprung := true; sprung; n++ {
				synctest.Test(t, func(t *testing.T) { sprung = trapEvents(t, n, again) })
			}
			if n < 20 {
				t.Errorf("only %d calls", n-1)
			}
		})
	}
}

// afterGathering returns when all has been done but what waits for the clock of the deliverer.
func afterGathering() {
	time.Sleep(time.Second) // in the bubble, more than the deliverer waits for more changes
	synctest.Wait()
}

// trapEvents delivers events with a panic in call n, and reports whether there was one.
func trapEvents(t *testing.T, n int64, again bool) (sprung bool) {
	t.Helper()
	w := newWorld(t)
	var calls, configured odbtest.Trap
	trap := &calls
	if again {
		trap = &configured
	}
	var log odbtest.Log
	w.d = webhook.New(webhook.Config{
		KV: calls.Keys(w.keys), Source: trappedSource{source{w}, &calls, &configured},
		Client: &http.Client{Transport: trappedNetwork{w.receivers, &calls}}, Clock: w.clock, Linger: -1, Timeout: time.Hour,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	hosts := []string{"one.example", "two.example"}
	w.configure(webhook.Hook{URL: "https://one.example/"}, webhook.Hook{URL: "https://two.example/"})
	repo := w.create(1)
	trap.Set(n)
	w.d.Start()
	var want []string
	for change := byte(1); change <= 3; change++ {
		w.set(repo, change, "refs/heads/a", "refs/heads/b")
		want = append(want, fmt.Sprintf("refs/heads/a %02d", change), fmt.Sprintf("refs/heads/b %02d", change))
	}
	slices.Sort(want)
	afterGathering()
	for i, host := range hosts {
		other := w.sorted(hosts[1-i], again)
		if strings.Contains(log.String(), "host="+host) && !slices.Equal(other, want) {
			t.Errorf("a panic in call %d, of %s: the other receiver has %v", n, host, other)
		}
	}
	w.until("all events are taken", func() bool {
		w.clock.advance(time.Minute)
		afterGathering()
		for _, host := range hosts {
			if len(w.sorted(host, again)) < len(want) {
				return false
			}
		}
		return w.d.Stats().Pending == 0
	})
	sprung = trap.Take()
	if sprung && !strings.Contains(log.String(), "panic: "+odbtest.Trapped) {
		t.Errorf("a panic in call %d is not logged: %s", n, log.String())
	}
	w.clock.advance(time.Minute) // ends the pause after a panic in the last sweep
	afterGathering()
	w.set(repo, 4, "refs/heads/c")
	want = append(want, "refs/heads/c 04")
	afterGathering()
	for _, host := range hosts {
		if got := w.sorted(host, again); !slices.Equal(got, want) {
			t.Errorf("after a panic in call %d, %s has %v", n, host, got)
		}
	}
	return sprung
}

// sorted describes the events that a receiver has taken, in the order of refs, and of each ref in
// theirs. With again, those that came before are left out.
func (w *world) sorted(host string, again bool) (all []string) {
	for _, d := range w.receivers.attempts() {
		event := d.event.Ref + " " + d.event.After[:2]
		if d.taken && strings.Contains(d.url, host) && (!again || !slices.Contains(all, event)) {
			all = append(all, event)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[:12], b[:12]) })
	return all
}

// brokenJournal is the host with a journal below which everything panics.
type brokenJournal struct {
	source
	repo  refs.RepoID
	ended *atomic.Bool
}

func (s brokenJournal) Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error) {
	if id == s.repo && !s.ended.Load() {
		panic("broken")
	}
	return s.source.Events(ctx, id, after, limit)
}

// TestPanicsOfJournal has the journal of one repository panic all the time: the events of another
// one go on, and come once. Its own come when the panics end.
func TestPanicsOfJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		broken, other := w.create(1), w.create(2)
		var ended atomic.Bool
		w.d = webhook.New(webhook.Config{
			KV: w.keys, Source: brokenJournal{source{w}, broken, &ended}, Client: &http.Client{Transport: w.receivers},
			Clock: w.clock, Linger: -1, Timeout: time.Hour,
		})
		w.d.Start()
		w.set(broken, 1, "refs/heads/a")
		var want []string
		for n := byte(1); n <= 3; n++ {
			w.set(other, n, "refs/heads/b")
			want = append(want, fmt.Sprintf("refs/heads/b %02d", n))
			for range 4 {
				afterGathering()
				w.clock.advance(10 * time.Second)
			}
			afterGathering()
			if got := w.receivers.taken(); !slices.Equal(got, want) {
				t.Errorf("during the panics: %v", got)
			}
		}
		ended.Store(true)
		w.clock.advance(10 * time.Second)
		afterGathering()
		if got := w.receivers.taken(); !slices.Equal(got, append(want, "refs/heads/a 01")) {
			t.Errorf("after the panics: %v", got)
		}
	})
}

// TestPanicsWhileEventsWait makes each call of the store panic in turn while events fail and others
// wait for them. Another deliverer then sends all of them, in the order of their refs.
func TestPanicsWhileEventsWait(t *testing.T) {
	t.Parallel()
	n := int64(1)
	for sprung := true; sprung; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var calls, none odbtest.Trap
			open := w.refuse()
			w.d = webhook.New(webhook.Config{
				KV: calls.Keys(w.keys), Source: trappedSource{source{w}, &calls, &none}, Clock: w.clock,
				Client: &http.Client{Transport: w.receivers}, Linger: -1, Timeout: time.Hour,
			})
			repo := w.create(1)
			calls.Set(n)
			w.d.Start()
			for change := byte(1); change <= 4; change++ {
				w.set(repo, change, "refs/heads/a", "refs/heads/b")
				afterGathering()
			}
			w.clock.advance(time.Minute)
			afterGathering()
			sprung = calls.Take()
			w.restart()
			open.Store(true)
			w.until("all events are taken", func() bool {
				w.clock.advance(time.Minute)
				afterGathering()
				return w.idle()
			})
			for _, ref := range []string{"refs/heads/a", "refs/heads/b"} {
				if got := slices.Compact(w.takenOf(ref)); !slices.Equal(got, numbers(4)) {
					t.Errorf("after a panic in call %d: %s %v", n, ref, got)
				}
			}
		})
	}
	if n < 40 {
		t.Errorf("only %d calls", n-1)
	}
}
