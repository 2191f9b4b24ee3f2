package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/odb/odbtest"
)

// TestStoreAway has the store go away after some calls, while a dead letter is retried and another
// event comes: once it is back, both are sent, by the same deliverer.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for depth := range 14 {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			store := odbtest.NewAway(w.keys)
			w.d = w.deliverer(store, w.receivers)
			repo := w.create(1)
			w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
			w.d.Start()
			w.set(repo, 1, "refs/heads/main")
			w.outlive()
			w.until("the event is dead", func() bool { return w.status().Dead == 1 && w.idle() })
			w.receivers.with(nil)

			store.Leave(depth)
			_, _, err := w.d.Retry(t.Context(), webhook.Selection{})
			w.set(repo, 2, "refs/heads/a")
			for range 10 {
				w.clock.advance(time.Minute)
			}
			store.Return()
			if err != nil {
				if _, _, err := w.d.Retry(t.Context(), webhook.Selection{}); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{"refs/heads/a 02", "refs/heads/main 01"}
			w.until("both events are taken", func() bool {
				w.clock.advance(time.Minute)
				taken := w.receivers.taken()
				slices.Sort(taken)
				return slices.Equal(slices.Compact(taken), want) && w.idle()
			})
			if status := w.status(); status.Dead != 0 {
				t.Errorf("%+v", status)
			}
		})
	}
}
