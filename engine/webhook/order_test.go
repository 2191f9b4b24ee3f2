package webhook_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/refs"
)

// While one ref's event is not taken its later ones wait, and those of other refs do not.
func TestOrderPerRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	refused := 0
	w.receivers.with(func(d *delivery) (int, error) {
		if d.event.Ref == "refs/heads/bad" && refused < 2 {
			refused++
			return http.StatusInternalServerError, nil
		}
		return http.StatusOK, nil
	})
	w.d.Start()
	w.set(repo, 1, "refs/heads/bad", "refs/heads/good")
	w.until("the first event of bad is parked", func() bool { return w.status().Parked == 1 })
	w.set(repo, 2, "refs/heads/good", "refs/heads/bad")
	w.set(repo, 3, "refs/heads/bad")
	w.set(repo, 3, "refs/heads/good")
	w.until("good goes on and bad waits", func() bool {
		status := w.status()
		return len(w.receivers.taken()) == 3 && status.Parked == 1 && w.waits("refs/heads/bad") == 2
	})
	if got := len(w.receivers.attempts()); got != 4 {
		t.Errorf("%d attempts, a waiting one is among them", got)
	}
	if status := w.status(); status.LastError != "the receiver answered 500 Internal Server Error" ||
		!status.Oldest.Equal(w.clock.Now()) {
		t.Errorf("%+v", status)
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} {
		at := w.clock.Now().Add(wait)
		w.until("the lane waits", func() bool { return w.clock.awaited(at) })
		w.clock.advance(wait)
	}
	w.until("all are taken", w.idle)
	want := []string{
		"refs/heads/good 01", "refs/heads/good 02", "refs/heads/good 03", "refs/heads/bad 01", "refs/heads/bad 02",
		"refs/heads/bad 03",
	}
	if got := w.receivers.taken(); !slices.Equal(got, want) {
		t.Errorf("taken %v, want %v", got, want)
	}
	if stats := w.d.Stats(); stats != (webhook.Stats{Delivered: 6, Failed: 2}) {
		t.Errorf("%+v", stats)
	}
}

// A receiver that does not answer holds up no other one, and not the other refs of its own either.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const slow = "https://slow.example/"
	release := make(chan struct{})
	w.receivers.block = map[string]chan struct{}{slow: release}
	w.configure(webhook.Hook{URL: slow, Secret: "x"}, webhook.Hook{URL: hookURL, Secret: "y"})
	repo := w.create(1)
	w.d.Start()
	const events = 20
	for n := range byte(events) {
		w.set(repo, n+1, fmt.Sprintf("refs/heads/b%d", n))
	}
	w.until("the quick one has all", func() bool { return len(w.receivers.attempts()) == events })
	close(release)
	w.until("the slow one has all", func() bool { return len(w.receivers.attempts()) == 2*events })
	counts := map[string]int{}
	for _, d := range w.receivers.attempts() {
		counts[d.url]++
	}
	if counts[slow] != events || counts[hookURL] != events {
		t.Errorf("heard %v", counts)
	}
}

// A transaction of more refs than fit in memory at once is delivered completely.
func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	var names []string
	for i := range 450 {
		names = append(names, fmt.Sprintf("refs/tags/t%03d", i))
	}
	w.receivers.with(func(d *delivery) (int, error) {
		if d.event.Ref == "refs/tags/t399" && d.at.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) {
			return 0, errors.New("connection reset")
		}
		return http.StatusOK, nil
	})
	w.d.Start()
	w.set(repo, 1, names...)
	w.until("all but one are taken", func() bool { return len(w.receivers.taken()) == 449 && w.status().Behind == 0 })
	w.until("the lane waits", func() bool { return w.clock.awaited(w.clock.Now().Add(time.Second)) })
	w.clock.advance(time.Second)
	w.until("all are taken", w.idle)
	taken := w.receivers.taken()
	slices.Sort(taken)
	for i, name := range names {
		if i >= len(taken) || taken[i] != name+" 01" {
			t.Fatalf("taken %v", taken)
		}
	}
}

// Receivers fail at random, repositories are written to, the deliverer is restarted and the power
// fails: every event arrives, none is invented, and the first deliveries of each ref are in its
// order.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	w := newWorld(t)
	w.giveUp = math.MaxInt64 // the clock runs on while a slow machine keeps a deliverer from its turn
	w.linger = time.Hour
	random := rand.New(rand.NewPCG(1, 2))
	repos := []refs.RepoID{w.create(1), w.create(2), w.create(3)}
	w.receivers.with(func(*delivery) (int, error) {
		if random.IntN(3) == 0 { // called under the receivers' mutex
			return http.StatusBadGateway, nil
		}
		return http.StatusOK, nil
	})
	w.restart()
	written := map[string]int{} // by ref: the number of its last event
	want := 0
	draw := rand.New(rand.NewPCG(3, 4))
	for range rounds {
		for range 20 {
			repo := repos[draw.IntN(len(repos))]
			name := fmt.Sprintf("refs/heads/b%d", draw.IntN(4))
			key := fmt.Sprintf("repo-%d %s", repo[15], name)
			written[key]++
			want++
			w.set(repo, byte(written[key]), name)
		}
		switch draw.IntN(6) {
		case 0:
			w.restart()
		case 1, 2:
			w.crash(draw)
		}
		w.clock.advance(time.Duration(draw.IntN(30)) * time.Second)
	}
	w.until("all events are taken", func() bool {
		w.clock.advance(time.Minute)
		return w.idle()
	})
	if letters := w.letters(); len(letters) > 0 {
		t.Fatalf("dead letters %+v", letters)
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, d := range w.receivers.attempts() {
		if !d.taken || seen[d.id] {
			continue
		}
		seen[d.id] = true
		key := d.event.Repository.URL + " " + d.event.Ref
		last[key]++
		if number := fmt.Sprintf("%02x", last[key]); d.event.After[:2] != number {
			t.Fatalf("%s: event %s comes where %s is due", key, d.event.After[:2], number)
		}
	}
	if len(seen) != want {
		t.Errorf("%d events arrived, %d were written", len(seen), want)
	}
}
