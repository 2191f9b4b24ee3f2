package webhook_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// intruder calls strike once, before it applies the first batch that matches.
type intruder struct {
	kv.Store
	match  func(op kv.Operation) bool
	strike func()
	once   sync.Once
}

func (i *intruder) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	for op := range b.Operations() {
		if i.match(op) {
			i.once.Do(i.strike)
		}
	}
	return i.Store.Apply(ctx, b)
}

// silent is a network that never answers.
type silent struct{}

func (silent) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func (w *world) outboxRows(repo refs.RepoID) (count int) {
	w.t.Helper()
	for _, err := range (source{w}).sequences(w.t.Context(), outboxKey(repo, 0), outboxKey(repo, 1<<62)) {
		if err != nil {
			w.t.Fatal(err)
		}
		count++
	}
	return count
}

func isDelete(prefix string) func(op kv.Operation) bool {
	return func(op kv.Operation) bool {
		return op.Kind != kv.OperationPut && bytes.HasPrefix(op.Key, []byte(prefix))
	}
}

// One server is about to remove the cursor into a journal when another one moves the end of the
// stretch: the transaction behind it is still sent. What the other one has taken over is sent
// again.
func TestCursorOfTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.d = w.deliverer(&intruder{Store: w.keys, match: isDelete("ws"), strike: func() {
		other := w.deliverer(w.keys, silent{})
		other.Start()
		w.set(repo, 2, "refs/heads/b")
		other.Told(webhook.Repository{ID: repo})
		w.until("the other server has taken the second transaction", func() bool { return w.outboxRows(repo) == 0 })
		other.Stop()
	}}, w.receivers)
	w.d.Start()
	w.set(repo, 1, "refs/heads/a")
	w.until("both events are taken", func() bool {
		taken := w.receivers.taken()
		return slices.Contains(taken, "refs/heads/a 01") && slices.Contains(taken, "refs/heads/b 02") && w.idle()
	})
	if taken := w.receivers.taken(); len(taken) > 3 {
		t.Errorf("taken %v", taken)
	}
}

// One server is about to take a transaction from the outbox when another one takes it, and sends
// it: it is not sent again.
func TestOutboxOfTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo, struck := w.create(1), make(chan struct{})
	w.d = w.deliverer(&intruder{Store: w.keys, match: isDelete("O"), strike: func() {
		defer close(struck)
		other := w.deliverer(w.keys, w.receivers)
		other.Start()
		other.Told(webhook.Repository{ID: repo})
		w.until("the other server has sent it", func() bool {
			return w.outboxRows(repo) == 0 && len(w.receivers.taken()) == 1 && w.idle()
		})
		other.Stop()
	}}, w.receivers)
	w.d.Start()
	w.set(repo, 1, "refs/heads/a")
	<-struck
	w.set(repo, 2, "refs/heads/a")
	w.until("the second event is taken", func() bool { return w.outboxRows(repo) == 0 && w.idle() })
	if taken := w.receivers.taken(); len(taken) != 2 {
		t.Errorf("%d events are taken: %v", len(taken), taken)
	}
}

// Two calls, on two servers, retry the same dead letters: each letter counts for one of them.
func TestRetryOfTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.giveUp = -1
	w.restart()
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusGone, nil })
	w.set(repo, 1, "refs/heads/a", "refs/heads/b", "refs/heads/c")
	w.until("all events are dead", func() bool { return w.status().Dead == 3 })
	w.receivers.with(nil)
	first := w.letters()[0].ID
	theirs := 0
	mine := w.deliverer(&intruder{Store: w.keys, match: isDelete("wd"), strike: func() {
		var err error
		if theirs, _, err = w.d.Retry(t.Context(), webhook.Selection{IDs: []string{first}}); err != nil {
			t.Error(err)
		}
	}}, w.receivers)
	ours, more, err := mine.Retry(t.Context(), webhook.Selection{})
	if err != nil || more || theirs != 1 || ours != 2 {
		t.Errorf("%d and %d letters, more: %t, %v", theirs, ours, more, err)
	}
	w.restart()
	w.until("all events are taken", func() bool { return len(w.receivers.taken()) >= 3 && w.idle() && w.status().Dead == 0 })
}

// A server that sends nothing revives a dead letter: the one that sends finds it in its next
// search.
func TestRetryOnAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.outlive()
	w.until("the event is dead", func() bool { return w.status().Dead == 1 })
	w.receivers.with(nil)
	other := w.deliverer(w.keys, silent{})
	if count, more, err := other.Retry(t.Context(), webhook.Selection{}); count != 1 || more || err != nil {
		t.Fatalf("%d, %t, %v", count, more, err)
	}
	w.until("it is taken", func() bool {
		w.clock.advance(time.Minute)
		return w.idle() && len(w.receivers.taken()) == 1
	})
}

// Two servers take turns: each sends what was left, and what came while it sent.
func TestTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	servers := []*webhook.Deliverer{w.d, w.deliverer(w.keys, w.receivers)}
	count := 0
	for turn := range byte(6) {
		w.set(repo, 2*turn+1, "refs/heads/main")
		servers[turn%2].Start()
		w.set(repo, 2*turn+2, "refs/heads/main")
		servers[0].Told(webhook.Repository{ID: repo})
		servers[1].Told(webhook.Repository{ID: repo})
		count += 2
		w.until("the events are taken", func() bool {
			w.clock.advance(time.Minute)
			return len(w.receivers.taken()) == count && w.idle()
		})
		servers[turn%2].Stop()
	}
}
