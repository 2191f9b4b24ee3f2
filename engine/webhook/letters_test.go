package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/refs"
)

// waitAndAdvance advances the clock to when the lane is due next, which must be after that time.
func (w *world) waitAndAdvance(by time.Duration) {
	w.t.Helper()
	at := w.clock.Now().Add(by)
	w.until("an attempt is due in "+by.String(), func() bool { return w.clock.awaited(at) })
	w.clock.advance(by)
}

// outlive advances the clock from each attempt of an event to the next one until it is too old to
// be tried again, and returns the waits.
func (w *world) outlive() (waits []time.Duration) {
	w.t.Helper()
	begun := w.clock.Now()
	for wait := time.Second; w.clock.Now().Sub(begun) < 24*time.Hour; wait = min(2*wait, time.Hour) {
		w.waitAndAdvance(wait)
		waits = append(waits, wait)
	}
	return waits
}

// An event that is never taken is tried for a day, ever less often, and is a dead letter then; what
// waited for it is tried once. Both are sent again when an operator says so.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusGone, nil })
	w.d.Start()
	begun := w.clock.Now()
	w.set(repo, 1, "refs/heads/main")
	w.until("the first event is parked", func() bool { return w.status().Parked == 1 })
	w.set(repo, 2, "refs/heads/main")
	w.until("the second one waits", func() bool { return w.waits("refs/heads/main") == 1 })
	if status := w.status(); status.Parked != 1 || status.Behind != 1 {
		t.Errorf("%+v", status)
	}
	waits := w.outlive()
	w.until("both are dead", func() bool { return w.status().Dead == 2 })
	attempts := w.receivers.attempts()
	if len(attempts) != len(waits)+2 || attempts[len(attempts)-1].event.After[:2] != "02" {
		t.Errorf("%d attempts after %d waits: %v", len(attempts), len(waits), attempts)
	}
	if got := waits[:4]; !slices.Equal(got, []time.Duration{1e9, 2e9, 4e9, 8e9}) || waits[len(waits)-1] != time.Hour {
		t.Errorf("waits %v", waits)
	}
	letters := w.letters()
	if len(letters) != 2 {
		t.Fatalf("letters %+v", letters)
	}
	letter := letters[0]
	if letter.ID != repo.String()+".2.0" || letter.Attempts != len(waits)+1 || !letter.Since.Equal(begun) ||
		!letter.Died.Equal(w.clock.Now()) ||
		letter.Error != "the receiver answered 410 Gone" || letter.Event.Ref != "refs/heads/main" || letter.URL != hookURL ||
		letter.Org != "acme" {
		t.Errorf("%+v", letter)
	}
	if stats := w.d.Stats(); stats.Dead != 2 || stats.Pending != 0 || stats.Failed != uint64(len(attempts)) {
		t.Errorf("%+v", stats)
	}

	w.receivers.with(nil)
	for _, none := range []webhook.Selection{
		{Org: "other"}, {URL: "https://other.example/"}, {IDs: []string{repo.String() + ".9.0"}},
	} {
		if count, more, err := w.d.Retry(t.Context(), none); count != 0 || more || err != nil {
			t.Errorf("%+v: %d, %t, %v", none, count, more, err)
		}
	}
	if count, _, err := w.d.Retry(t.Context(), webhook.Selection{IDs: []string{letters[1].ID}}); count != 1 || err != nil {
		t.Errorf("%d, %v", count, err)
	}
	w.until("the second one is taken", func() bool {
		return slices.Equal(w.receivers.taken(), []string{"refs/heads/main 02"})
	})
	if count, _, err := w.d.Retry(t.Context(), webhook.Selection{URL: hookURL, Org: "acme"}); count != 1 || err != nil {
		t.Errorf("%d, %v", count, err)
	}
	w.until("the first one is taken", func() bool { return len(w.receivers.taken()) == 2 && w.idle() })
	if letters := w.letters(); letters != nil {
		t.Errorf("letters %+v", letters)
	}
}

// A dead letter that is retried while no deliverer runs is sent by the next one, before the events
// waiting behind it.
func TestRetryWithoutDeliverer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.outlive()
	w.until("the event is dead", func() bool { return w.status().Dead == 1 })
	w.set(repo, 2, "refs/heads/main")
	w.until("the next one waits", func() bool { return w.status().Parked == 1 && w.status().Behind == 0 })
	w.close()
	w.open()
	if count, more, err := w.d.Retry(t.Context(), webhook.Selection{}); count != 1 || more || err != nil {
		t.Fatalf("%d, %t, %v", count, more, err)
	}
	if status := w.status(); status.Parked != 2 || status.Dead != 0 {
		t.Errorf("%+v", status)
	}
	w.receivers.with(nil)
	w.d.Start()
	w.until("both are taken", func() bool {
		w.clock.advance(time.Minute)
		return w.idle()
	})
	if taken := w.receivers.taken(); !slices.Equal(taken, []string{"refs/heads/main 01", "refs/heads/main 02"}) {
		t.Errorf("taken %v", taken)
	}
}

// Events that the journal does not hold any more leave a dead letter that says so, which cannot be
// sent.
func TestTrimmedJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.set(repo, 1, "refs/heads/main")
	w.set(repo, 2, "refs/heads/main")
	w.clock.advance(100 * 24 * time.Hour)
	w.set(repo, 3, "refs/heads/main")
	if oldest, err := w.names.TrimJournal(t.Context(), repo, w.clock.Now().Add(-time.Hour)); oldest != 4 || err != nil {
		t.Fatalf("trimmed to %d, %v", oldest, err)
	}
	w.d.Start()
	w.until("what is left is taken", func() bool {
		return slices.Equal(w.receivers.taken(), []string{"refs/heads/main 03"}) && w.idle()
	})
	letters := w.letters()
	if len(letters) != 1 || !letters[0].Lost ||
		letters[0].Error != "the journal was trimmed: transactions 2 to 3 are lost" {
		t.Errorf("letters %+v", letters)
	}
	if count, _, err := w.d.Retry(t.Context(), webhook.Selection{}); count != 0 || err != nil {
		t.Errorf("%d, %v", count, err)
	}
}

func TestDeadLettersExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusNotFound, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.outlive()
	w.until("the event is dead", func() bool { return w.status().Dead == 1 })
	died := w.letters()[0].Died
	w.clock.advance(died.Add(30*24*time.Hour - time.Hour).Sub(w.clock.Now()))
	w.restart() // it looks at once
	w.set(repo, 2, "refs/heads/other")
	w.until("another event was tried", func() bool { return w.status().Parked == 1 })
	if w.status().Dead != 1 {
		t.Error("the letter went too early")
	}
	w.until("the letter is gone", func() bool {
		w.clock.advance(time.Hour)
		return !slices.ContainsFunc(w.letters(), func(l webhook.Letter) bool { return l.Died.Equal(died) })
	})
}

// hooks come and go while the deliverer runs.
func TestHooksChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.until("the first event is taken", func() bool { return len(w.receivers.taken()) == 1 && w.idle() })
	old, added := webhook.Hook{URL: hookURL, Secret: "another"}, webhook.Hook{URL: "https://new.example/", Secret: "n"}
	w.configure(old, added, old)
	w.set(repo, 2, "refs/heads/main")
	w.until("both hear of the second", func() bool { return len(w.receivers.taken()) == 3 })
	for _, d := range w.receivers.attempts()[1:] {
		secret := map[string]string{old.URL: old.Secret, added.URL: added.Secret}[d.url]
		if d.event.After[:2] != "02" || d.header.Get("X-Pierre-Signature") != webhook.Sign(secret, d.at, []byte(d.body)) {
			t.Errorf("%s heard %v, signed %s", d.url, d, d.header.Get("X-Pierre-Signature"))
		}
	}

	w.configure(added)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusServiceUnavailable, nil })
	w.set(repo, 3, "refs/heads/main")
	w.until("the event is parked", func() bool { return strings.Contains(w.list(), added.URL+" 1") })
	w.configure()
	w.until("the old one is forgotten", func() bool {
		w.clock.advance(10 * time.Minute)
		return !strings.Contains(w.list(), old.URL)
	})
	w.until("the other one is too", func() bool {
		w.clock.advance(10 * time.Minute)
		return w.rows() == 0
	})
}

// list describes all hooks with how many events of each are parked.
func (w *world) list() string {
	w.t.Helper()
	var lines strings.Builder
	for status, err := range w.d.List(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintln(&lines, status.URL, status.Parked)
	}
	return lines.String()
}

// A hook that is gone from the configuration for less than an hour loses nothing.
func TestHookComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusServiceUnavailable, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.until("the event is parked", func() bool { return w.status().Parked == 1 })
	w.configure()
	w.until("it is seen to be missing", func() bool { return w.status().Missing })
	before := len(w.receivers.attempts())
	for range 50 {
		w.clock.advance(time.Minute)
	}
	w.receivers.with(nil)
	w.configure(webhook.Hook{URL: hookURL, Secret: "s"})
	w.until("the event is taken", func() bool {
		w.clock.advance(time.Second)
		return w.idle()
	})
	if got := len(w.receivers.attempts()); got > before+2 { // one may have been on its way
		t.Errorf("%d attempts after %d", got, before)
	}
}

// Deleting a repository removes events that were not tried yet; those that were tried are retried.
func TestDeletedRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo, other := w.create(1), w.create(2)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusServiceUnavailable, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.until("the event is parked", func() bool { return w.status().Parked == 1 })
	w.close()
	w.open()
	w.set(repo, 2, "refs/heads/main")
	if _, err := w.names.Update(t.Context(), repo, refs.Change{}, drop); err != nil {
		t.Fatal(err)
	}
	w.receivers.with(nil)
	w.set(other, 3, "refs/heads/main")
	w.d.Start()
	w.until("two are taken", func() bool {
		w.clock.advance(time.Second)
		return len(w.receivers.taken()) == 2 && w.idle()
	})
	taken := w.receivers.taken()
	slices.Sort(taken)
	if !slices.Equal(taken, []string{"refs/heads/main 01", "refs/heads/main 03"}) {
		t.Errorf("taken %v", taken)
	}
}

// Hooks are listed while the deliverer starts and stops, since those who list know nothing of it.
func TestListWhileStarting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.d.Start()
	w.set(w.create(1), 1, "refs/heads/main")
	w.until("the event is delivered", func() bool { return w.d.Stats().Delivered == 1 })
	w.d.Stop()
	for range 100 {
		var listed sync.WaitGroup
		listed.Go(func() {
			for status, err := range w.d.List(t.Context()) {
				if err != nil || status.Missing || status.URL != hookURL {
					t.Errorf("%+v, %v", status, err)
				}
			}
		})
		w.d.Start()
		w.d.Stop()
		listed.Wait()
	}
}
