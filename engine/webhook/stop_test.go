package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"packhorse/engine/webhook"
)

// TestStopKeepsAnswers stops a deliverer while a receiver has an event and has not answered yet:
// what it answers is stored, and the next deliverer sends nothing that was taken.
func TestStopKeepsAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		linger   time.Duration
		status   int
		want     webhook.Stats // of the one that stops
		parked   int
		attempts int // that receivers have seen in the end
	}{
		"taken":     {time.Hour, http.StatusOK, webhook.Stats{Delivered: 1}, 0, 1},
		"refused":   {time.Hour, http.StatusBadGateway, webhook.Stats{Failed: 1}, 1, 2},
		"cancelled": {-1, 0, webhook.Stats{}, 0, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.linger = test.linger
			answer := make(chan struct{})
			asked := &asking{receivers: w.receivers, asked: make(chan struct{}, 1)}
			w.receivers.block = map[string]chan struct{}{hookURL: answer}
			w.receivers.with(func(*delivery) (int, error) { return test.status, nil })
			w.d = w.deliverer(w.keys, asked)
			repo := w.create(1)
			w.d.Start()
			w.set(repo, 1, "refs/heads/main")
			<-asked.asked
			w.until("the deliverer waits", func() bool { return w.clock.timers() > 0 })
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				w.d.Stop()
			}()
			w.until("it is about to stop", func() bool { return w.clock.timers() == 0 })
			if test.status != 0 {
				close(answer)
			}
			<-stopped
			if got := w.d.Stats(); got != test.want {
				t.Errorf("%+v", got)
			}
			if got := w.status(); got.Parked != test.parked || (got.Behind == 0) != (test.status != 0) {
				t.Errorf("%+v", got)
			}
			if test.status == 0 {
				close(answer)
			}
			w.receivers.with(nil)
			w.d = w.deliverer(w.keys, w.receivers)
			w.d.Start()
			w.until("nothing is left", func() bool {
				w.clock.advance(time.Minute)
				return w.idle()
			})
			if got := len(w.receivers.attempts()); got != test.attempts {
				t.Errorf("%d attempts: %v", got, w.receivers.attempts())
			}
		})
	}
}

// asking says when a receiver is asked.
type asking struct {
	*receivers
	asked chan struct{}
}

func (a *asking) RoundTrip(request *http.Request) (*http.Response, error) {
	a.asked <- struct{}{}
	return a.receivers.RoundTrip(request)
}
