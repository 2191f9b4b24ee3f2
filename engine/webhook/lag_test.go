package webhook_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"packhorse/engine/webhook"
)

// pass lets minutes go by, and the deliverer look at its lanes in each.
func (w *world) pass(minutes int) {
	w.t.Helper()
	for range minutes {
		w.until("the deliverer waits", func() bool { return w.clock.timers() > 0 })
		w.clock.advance(time.Minute)
	}
}

// lags waits until the lag is one that fits.
func (w *world) lags(what string, fits func(lag webhook.Lag) bool) {
	w.t.Helper()
	var lag webhook.Lag
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%s: the lag is %+v", what, lag)
		}
	}()
	w.until(what, func() bool {
		lag = w.d.Lag()
		return fits(lag)
	})
}

// The lag is that of the oldest event: one that a hanging receiver has, or that is retried. Without
// events, and without the hook, there is none.
func TestLag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hanging := make(chan struct{})
	w.receivers.block = map[string]chan struct{}{hookURL: hanging}
	repo := w.create(1)
	w.d.Start()
	w.lags("nothing has happened", func(lag webhook.Lag) bool { return lag == webhook.Lag{} })
	w.set(repo, 1, "refs/heads/main")
	w.pass(5)
	w.lags("the receiver hangs", func(lag webhook.Lag) bool {
		return lag == webhook.Lag{Untried: 5 * time.Minute, HookCount: 1, LateCount: 1}
	})
	close(hanging)
	w.lags("it has taken the event", func(lag webhook.Lag) bool { return lag == webhook.Lag{HookCount: 1} })

	w.receivers.with(func(*delivery) (int, error) { return http.StatusBadGateway, nil })
	w.set(repo, 2, "refs/heads/main")
	w.until("it fails", func() bool { return w.status().Parked == 1 })
	w.set(repo, 3, "refs/heads/main")
	w.until("the next one waits", func() bool { return w.waits("refs/heads/main") == 1 })
	w.pass(3)
	w.lags("it is retried", func(lag webhook.Lag) bool {
		return lag == webhook.Lag{Failing: 3 * time.Minute, HookCount: 1, FailingCount: 1}
	})
	w.configure()
	w.pass(1)
	w.lags("the hook is gone", func(lag webhook.Lag) bool { return lag == webhook.Lag{HookCount: 1} })
}

// A repository that is never caught up with is as late as what is left of it, not as what came
// first.
func TestLagOfStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	begin := w.clock.Now()
	for i, count := range []int{100, 100, 1} { // a page has 200
		var names []string
		for k := range count {
			names = append(names, fmt.Sprintf("refs/heads/%d/%d", i, k))
		}
		w.set(repo, 1, names...)
		w.clock.advance(30 * time.Minute)
	}
	last := make(chan struct{})
	w.receivers.with(func(*delivery) (int, error) {
		if len(w.receivers.heard) == 199 { // with this one the page is done; mu is held
			w.receivers.block = map[string]chan struct{}{hookURL: last}
		}
		return http.StatusOK, nil
	})
	w.d.Start()
	w.until("one is left", func() bool {
		status := w.status()
		return status.URL != "" && status.Behind == 1
	})
	if got, want := w.status().Oldest, begin.Add(30*time.Minute); !got.Equal(want) {
		t.Errorf("what is left is of %v, want %v", got, want)
	}
	close(last)
	w.until("nothing is left", w.idle)
}
