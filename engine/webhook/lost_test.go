package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// rewindable is a store that can lose what was written since a time. Nothing is read or written
// while it does.
type rewindable struct {
	kv.Store
	rewound []func()
	count   atomic.Uint64
	mu      sync.RWMutex
}

func (r *rewindable) OnRewind(call func()) { r.rewound = append(r.rewound, call) }

func (r *rewindable) Rewinds() uint64 { return r.count.Load() }

func (r *rewindable) Get(ctx context.Context, key []byte) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.Store.Get(ctx, key)
}

func (r *rewindable) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.Store.Read(ctx, set)
}

func (r *rewindable) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !b.AllowsRewinds(r.count.Load()) {
		return nil, &kv.ConflictError{}
	}
	return r.Store.Apply(ctx, b)
}

// Scan reads everything at once: who walks may write.
func (r *rewindable) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var pairs []kv.Pair
	for pair, err := range r.Store.Scan(ctx, options) {
		if err != nil {
			return func(yield func(kv.Pair, error) bool) { yield(kv.Pair{}, err) }
		}
		pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	return func(yield func(kv.Pair, error) bool) {
		for _, pair := range pairs {
			if !yield(pair, nil) {
				return
			}
		}
	}
}

// rows are all rows.
func (r *rewindable) rows(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for pair, err := range r.Store.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		rows[string(pair.Key)] = string(pair.Value)
	}
	return rows
}

// rewind brings the store back to former rows.
func (r *rewindable) rewind(t *testing.T, before map[string]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count.Add(1)
	for _, call := range r.rewound {
		call()
	}
	b := kv.NewBatch()
	for key := range r.rows(t) {
		if _, was := before[key]; !was {
			b.Delete([]byte(key))
		}
	}
	for key, value := range before {
		b.Put([]byte(key), []byte(value))
	}
	if _, err := r.Store.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestLostTransactions has the store lose transactions that were taken, sent, parked or under way,
// and others take their numbers: these are sent as if nothing had been.
func TestLostTransactions(t *testing.T) {
	t.Parallel()
	lose := map[string]func(w *world){ // how far the lost ones have come
		"sent": func(w *world) {
			w.until("they are sent", func() bool { return len(w.receivers.taken()) == 4 && w.idle() })
		},
		"parked": func(w *world) {
			w.until("one is parked, and two wait", func() bool { return w.waits("refs/heads/lost") == 2 })
		},
		"under way": func(w *world) {
			w.until("the outbox is read", func() bool { return len(w.receivers.attempts()) > 1 })
		},
	}
	for name, far := range lose {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			store := &rewindable{Store: w.keys}
			w.keys, w.names = store, refs.Open(store, refs.Options{Now: w.clock.Now})
			w.d = w.deliverer(store, w.receivers)
			repo := w.create(1)
			w.d.Start()
			w.set(repo, 1, "refs/heads/kept")
			w.until("the first is sent", func() bool { return len(w.receivers.taken()) == 1 && w.idle() })
			before := store.rows(t)
			if name != "sent" {
				w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
			}
			for n := range byte(3) {
				w.set(repo, 10+n, "refs/heads/lost")
			}
			far(w)
			store.rewind(t, before)
			w.receivers.with(nil)
			w.set(repo, 2, "refs/heads/a")
			w.set(repo, 3, "refs/heads/b")
			want := []string{"refs/heads/a 02", "refs/heads/b 03"}
			w.until("those that took their numbers are sent", func() bool {
				w.clock.advance(time.Minute)
				taken := w.receivers.taken()
				return slices.Contains(taken, want[0]) && slices.Contains(taken, want[1]) && w.idle()
			})
		})
	}
}

// interrupted is a store that does something before one of its batches, which is on its way then.
type interrupted struct {
	*rewindable
	gate     sync.Mutex // guards left; held while nothing goes on
	left     int64      // batches up to that one
	before   func()
	happened chan struct{} // closed behind that one
}

func (s *interrupted) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	s.gate.Lock()
	s.left--
	is := s.left == 0
	s.gate.Unlock()
	if is {
		s.before()
		defer close(s.happened)
	}
	return s.rewindable.Apply(ctx, b)
}

// has reports whether the batch has been applied.
func (s *interrupted) has() bool {
	select {
	case <-s.happened:
		return true
	default:
		return false
	}
}

// disarm has nothing more happen, and reports whether it has, or is about to.
func (s *interrupted) disarm() bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	armed := s.left > 0
	s.left = 0
	return !armed
}

// underWay is how the store of a deliverer loses transactions while one of its batches about them
// is on its way.
type underWay struct {
	batch int64 // which one
	parks bool  // the receiver refuses the lost ones, again and again
	soon  bool  // others have taken their numbers when the batch arrives
}

// lose does so, and awaits that those which took the numbers are sent. It reports false if there is
// no such batch.
func (u underWay) lose(t *testing.T) bool {
	t.Helper()
	w := newWorld(t)
	store := &interrupted{rewindable: &rewindable{Store: w.keys}, happened: make(chan struct{})}
	there := refs.Open(w.keys, refs.Options{Now: w.clock.Now}) // of another server
	w.keys, w.names = store.rewindable, refs.Open(store.rewindable, refs.Options{Now: w.clock.Now})
	w.d = w.deliverer(store, w.receivers)
	repo := w.create(1)
	w.d.Start()
	w.set(repo, 1, "refs/heads/kept")
	w.until("the first is sent", func() bool { return len(w.receivers.taken()) == 1 && w.idle() })
	kept := store.rows(t)
	others := func() {
		for n, name := range []string{"refs/heads/lost", "refs/heads/b", "refs/heads/lost"} {
			w.setIn(there, repo, 2+byte(n), name)
		}
	}
	store.before = func() {
		store.rewind(t, kept)
		w.receivers.with(nil)
		if u.soon {
			others()
		}
	}
	if u.parks {
		w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
	}
	store.gate.Lock()
	store.left = u.batch
	for n := range byte(3) {
		w.set(repo, 10+n, "refs/heads/lost")
	}
	store.gate.Unlock()
	w.until("the batch, or all are sent", func() bool {
		w.clock.advance(time.Minute)
		return store.has() || w.idle()
	})
	if !store.disarm() {
		return false
	}
	<-store.happened
	if !u.soon {
		others()
	}
	w.until("those that took their numbers are sent", func() bool {
		w.clock.advance(time.Minute)
		taken := w.receivers.taken()
		return slices.Contains(taken, "refs/heads/lost 02") && slices.Contains(taken, "refs/heads/b 03") &&
			slices.Contains(taken, "refs/heads/lost 04") && w.idle()
	})
	return true
}

// TestLostTransactionsUnderWay tries each batch of the deliverer.
func TestLostTransactionsUnderWay(t *testing.T) {
	t.Parallel()
	for _, parks := range []bool{false, true} {
		for _, soon := range []bool{false, true} {
			t.Run(fmt.Sprintf("parked %t, soon %t", parks, soon), func(t *testing.T) {
				t.Parallel()
				batches := int64(0)
				for found := true; found && (!parks || batches < 6); { // one is parked, and tried four times more
					t.Run(fmt.Sprint(batches+1), func(t *testing.T) { // each has a store of its own
						found = underWay{batch: batches + 1, parks: parks, soon: soon}.lose(t)
					})
					if found {
						batches++
					}
				}
				if t.Logf("%d batches", batches); batches < 3 {
					t.Error("too few")
				}
			})
		}
	}
}
