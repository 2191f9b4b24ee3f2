package webhook_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// isPut matches the storing of rows of a kind.
func isPut(prefix string) func(op kv.Operation) bool {
	return func(op kv.Operation) bool {
		return op.Kind == kv.OperationPut && bytes.HasPrefix(op.Key, []byte(prefix))
	}
}

// refuse has the receivers refuse all events until they are open.
func (w *world) refuse() (open *atomic.Bool) {
	open = new(atomic.Bool)
	w.receivers.with(func(*delivery) (int, error) {
		if open.Load() {
			return http.StatusOK, nil
		}
		return http.StatusBadGateway, nil
	})
	return open
}

// takenOf returns the numbers of the events of a ref that were taken, in their order.
func (w *world) takenOf(ref string) (numbers []string) {
	for _, taken := range w.receivers.taken() {
		if number, is := strings.CutPrefix(taken, ref+" "); is {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// numbers are those of events, from 1 on.
func numbers(count int) (all []string) {
	for n := range count {
		all = append(all, fmt.Sprintf("%02x", n+1))
	}
	return all
}

// A ref changes often while its receiver refuses its first event. However many events wait, they
// take one row; those of another ref do not wait; and they arrive in order, also if the deliverer
// is restarted when some of them have, and if one of them fails.
func TestManyEventsWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ restart, fail int }{{}, {restart: 60}, {fail: 120}, {restart: 200, fail: 201}} {
		t.Run(fmt.Sprintf("restart at %d, failure of %d", test.restart, test.fail), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.linger = time.Hour
			w.restart()
			repo := w.create(1)
			const bad, good = "refs/heads/bad", "refs/heads/good"
			var open, failed atomic.Bool
			reached := make(chan struct{})
			var once sync.Once
			w.receivers.with(func(d *delivery) (int, error) {
				switch number := d.event.After[:2]; {
				case d.event.Ref == bad && !open.Load():
					return http.StatusBadGateway, nil
				case d.event.Ref == bad && number == fmt.Sprintf("%02x", test.fail) && !failed.Swap(true):
					return http.StatusBadGateway, nil
				case d.event.Ref == bad && number == fmt.Sprintf("%02x", test.restart):
					once.Do(func() { close(reached) })
				}
				return http.StatusOK, nil
			})
			w.set(repo, 1, bad, good)
			w.until("the first event fails", func() bool { return w.status().Parked == 1 })
			const count = 250
			for n := range byte(count - 1) {
				w.set(repo, n+2, bad)
				if n%5 == 0 {
					w.set(repo, n+2, good)
				}
			}
			w.until("all of the other ref have arrived", func() bool {
				return len(w.takenOf(good)) == count/5+1 && w.waits(bad) > count-2
			})
			status := w.status()
			if rows := w.rows(); rows > 5 || status.Parked != 1 || status.Behind < count-1 || status.Behind > count*2 {
				t.Errorf("%d rows, %+v", rows, status)
			}
			w.until("only the failed one is in memory", func() bool { return w.d.Stats().Pending == 1 })
			open.Store(true)
			if test.restart > 0 {
				w.until("some have arrived", func() bool {
					w.clock.advance(time.Minute)
					select {
					case <-reached:
						return true
					default:
						return false
					}
				})
				w.restart()
			}
			w.until("all have arrived", func() bool {
				w.clock.advance(time.Minute)
				return w.idle()
			})
			if got := slices.Compact(w.takenOf(bad)); !slices.Equal(got, numbers(count)) {
				t.Errorf("%d events arrived: %v", len(got), got)
			}
			if rows := w.rows(); rows != 2 {
				t.Errorf("%d rows are left", rows)
			}
		})
	}
}

// What waits in the journal of a repository that is deleted goes with it; the event that has failed
// does not.
func TestDeletionOfWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.receivers.with(func(*delivery) (int, error) { return http.StatusBadGateway, nil })
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.until("the event fails", func() bool { return w.status().Parked == 1 })
	w.set(repo, 2, "refs/heads/main")
	w.until("the next one waits", func() bool { return w.waits("refs/heads/main") == 1 })
	if _, err := w.names.Update(t.Context(), repo, refs.Change{}, drop); err != nil {
		t.Fatal(err)
	}
	w.receivers.with(nil)
	w.until("the first is taken", func() bool {
		w.clock.advance(time.Minute)
		return w.idle()
	})
	if taken := w.receivers.taken(); !slices.Equal(taken, []string{"refs/heads/main 01"}) {
		t.Errorf("taken %v", taken)
	}
	if rows := w.rows(); rows != 2 {
		t.Errorf("%d rows are left", rows)
	}
}

// A dead letter tells of events that have waited until the journal was trimmed.
func TestTrimmedWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.giveUp = 1000 * 24 * time.Hour
	w.restart()
	repo := w.create(1)
	open := w.refuse()
	w.set(repo, 1, "refs/heads/main")
	w.until("the event fails", func() bool { return w.status().Parked == 1 })
	w.set(repo, 2, "refs/heads/main")
	w.clock.advance(100 * 24 * time.Hour)
	w.set(repo, 3, "refs/heads/main")
	w.until("two wait", func() bool { return w.waits("refs/heads/main") == 2 })
	if oldest, err := w.names.TrimJournal(t.Context(), repo, w.clock.Now().Add(-time.Hour)); oldest != 4 || err != nil {
		t.Fatalf("trimmed to %d, %v", oldest, err)
	}
	open.Store(true)
	w.until("what is left is taken", func() bool {
		w.clock.advance(time.Minute)
		return w.idle()
	})
	if taken := w.receivers.taken(); !slices.Equal(taken, []string{"refs/heads/main 01", "refs/heads/main 03"}) {
		t.Errorf("taken %v", taken)
	}
	if letters := w.letters(); len(letters) != 1 || !letters[0].Lost ||
		letters[0].Error != "the journal was trimmed: transactions 3 to 3 are lost" {
		t.Errorf("letters %+v", letters)
	}
}

// A server is about to store that an event failed when another one takes over and sends everything:
// nothing of the first one stays, and each event arrives in its order.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	open := w.refuse()
	struck := make(chan struct{})
	w.d = w.deliverer(&intruder{Store: w.keys, match: isPut("wp"), strike: func() {
		defer close(struck)
		open.Store(true)
		other := w.deliverer(w.keys, w.receivers)
		other.Start()
		other.Told(webhook.Repository{ID: repo, Org: "acme"})
		w.until("the other server has sent what there is", func() bool {
			w.clock.advance(time.Minute)
			return len(w.receivers.taken()) > 0 && w.idle()
		})
		other.Stop()
	}}, w.receivers)
	w.set(repo, 1, "refs/heads/main")
	w.set(repo, 2, "refs/heads/main")
	w.d.Start()
	<-struck
	w.set(repo, 3, "refs/heads/main")
	w.until("the third event is taken", func() bool {
		w.clock.advance(time.Minute)
		return len(w.takenOf("refs/heads/main")) == 3 && w.idle()
	})
	if got := w.takenOf("refs/heads/main"); !slices.Equal(got, numbers(3)) {
		t.Errorf("taken %v", got)
	}
	if rows := w.rows(); rows != 2 {
		t.Errorf("%d rows are left", rows)
	}
}

// Damaged rows of what waits are passed by: all else is sent, and the hook can be listed.
func TestDamagedWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(1)
	w.d.Start()
	w.set(repo, 1, "refs/heads/main")
	w.until("the first event is taken", func() bool { return len(w.receivers.taken()) == 1 && w.idle() })
	b := kv.NewBatch()
	for pair, err := range w.keys.Scan(t.Context(), kv.ScanOptions{Start: []byte("wh"), End: []byte("wi")}) {
		if err != nil {
			t.Fatal(err)
		}
		hook := string(pair.Key[2:])
		b.Put([]byte("wb"+hook+string(repo[:])+"refs/heads/main"), []byte("{"))
		b.Put([]byte("wb"+hook+"short"), []byte(`{"from":{"sequence":1},"until":{"sequence":9}}`))
	}
	if _, err := w.keys.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.set(repo, 2, "refs/heads/main")
	w.until("the second one is taken", func() bool { return len(w.receivers.taken()) == 2 && w.idle() })
}
