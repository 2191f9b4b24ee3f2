package webhook_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// world is a deliverer with a journal, an outbox, a clock and receivers that the test owns.
type world struct {
	t         *testing.T
	fs        *vfs.MemFS
	clock     *clock
	receivers *receivers

	keys  kv.Store
	names *refs.Store
	d     *webhook.Deliverer

	mu    sync.Mutex // guards hooks
	hooks []webhook.Hook
}

const hookURL = "https://hook.example/a"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, fs: vfs.NewCrashableMem(), clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		receivers: &receivers{}, hooks: []webhook.Hook{{URL: hookURL, Secret: "s3cret"}},
	}
	w.receivers.clock = w.clock
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.keys, err = kv.OpenPebble("keys", kv.PebbleOptions{FS: w.fs, MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.names = refs.Open(w.keys, refs.Options{Now: w.clock.Now})
	w.d = webhook.New(webhook.Config{
		KV: w.keys, Source: source{w}, Client: &http.Client{Transport: w.receivers}, Agent: "packhorse/test", Clock: w.clock,
	})
}

func (w *world) close() {
	w.t.Helper()
	w.d.Stop()
	if err := w.keys.Close(); err != nil {
		w.t.Error(err)
	}
}

// restart ends the deliverer and starts another over the same store.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
	w.d.Start()
}

// crash cuts the power while the deliverer works, and starts another one with what is left.
func (w *world) crash(random *rand.Rand) {
	w.t.Helper()
	dead := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	w.close()
	w.fs = dead
	w.open()
	w.d.Start()
}

func (w *world) configure(hooks ...webhook.Hook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hooks = hooks
}

// create creates a repository.
func (w *world) create(n byte) refs.RepoID {
	w.t.Helper()
	id := refs.RepoID{15: n}
	b := kv.NewBatch()
	if err := w.names.Create(b, id, refs.Change{}); err != nil {
		w.t.Fatal(err)
	}
	commit, err := w.keys.Apply(w.t.Context(), b)
	if err == nil {
		err = commit.Wait(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// set points refs to ids that a number makes, in one transaction; zero deletes.
func (w *world) set(repo refs.RepoID, n byte, names ...string) {
	w.t.Helper()
	change := refs.Change{Time: w.clock.Now(), Announced: func() { w.d.Told(repo) }}
	change.Announce = func(b *kv.Batch, updates []refs.Entry) { b.Put(outboxKey(repo, updates[0].Sequence), nil) }
	_, err := w.names.Update(w.t.Context(), repo, change, func(ctx context.Context, tx *refs.Tx) error {
		for _, name := range names {
			err := tx.Set(ctx, name, nil, object.ID{n}, object.ZeroID)
			if n == 0 {
				err = tx.Delete(ctx, name, nil)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for something to become true.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s: never; %d attempts: %v", what, len(w.receivers.attempts()), w.receivers.attempts())
		}
	}
}

// rows counts the rows of the package.
func (w *world) rows() (count int) {
	w.t.Helper()
	for _, err := range w.keys.Scan(w.t.Context(), kv.ScanOptions{Start: []byte("w"), End: []byte("x")}) {
		if err != nil {
			w.t.Fatal(err)
		}
		count++
	}
	return count
}

// status returns that of the only hook, which is behind until the deliverer has seen its first event.
func (w *world) status() webhook.Status {
	w.t.Helper()
	var list []webhook.Status
	for status, err := range w.d.List(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, status)
	}
	switch len(list) {
	case 0:
		return webhook.Status{Behind: 1}
	case 1:
		return list[0]
	}
	w.t.Fatalf("hooks %+v", list)
	return webhook.Status{}
}

// idle tells whether nothing is left to do but to look after dead letters.
func (w *world) idle() bool {
	status := w.status()
	return status.Parked == 0 && status.Behind == 0
}

func (w *world) letters() (letters []webhook.Letter) {
	w.t.Helper()
	for letter, err := range w.d.Letters(w.t.Context(), "") {
		if err != nil {
			w.t.Fatal(err)
		}
		letters = append(letters, letter)
	}
	return letters
}

// source is the host.
type source struct{ w *world }

func (s source) Hooks(string) []webhook.Hook {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return slices.Clone(s.w.hooks)
}

func (s source) Repository(ctx context.Context, id refs.RepoID) (webhook.Repository, error) {
	_, err := s.w.names.Head(ctx, id)
	return webhook.Repository{ID: id, Org: "acme", Name: fmt.Sprintf("repo-%d", id[15])}, err
}

func (s source) Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error) {
	page, err := s.w.names.Events(ctx, id, after, limit)
	page.Entries = slices.DeleteFunc(page.Entries, func(entry refs.Entry) bool { return strings.Contains(entry.Ref, "/notes/") })
	return page, err
}

func outboxKey(id refs.RepoID, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte("O"), id[:]...), sequence)
}

func (s source) sequences(ctx context.Context, start, end []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for pair, err := range s.w.keys.Scan(ctx, kv.ScanOptions{Start: start, End: end}) {
			if !yield(slices.Clone(pair.Key), err) {
				return
			}
		}
	}
}

func (s source) Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		for key, err := range s.sequences(ctx, []byte("O"), []byte("P")) {
			if err != nil {
				yield(refs.RepoID{}, err)
				return
			}
			if !yield(refs.RepoID(key[1:17]), nil) {
				return
			}
		}
	}
}

func (s source) Span(ctx context.Context, id refs.RepoID, after uint64) (first, last uint64, found bool, err error) {
	for key, err := range s.sequences(ctx, outboxKey(id, after+1), outboxKey(id, 1<<62)) {
		if err != nil {
			return 0, 0, false, err
		}
		last = binary.BigEndian.Uint64(key[17:])
		if !found {
			first, found = last, true
		}
	}
	return first, last, found, nil
}

func (s source) Remove(b *kv.Batch, id refs.RepoID, first, last uint64) {
	b.DeleteRange(outboxKey(id, first), outboxKey(id, last+1))
}

// clock stands still but for the test.
type clock struct {
	mu      sync.Mutex // guards the fields below
	now     time.Time
	waiters []*waiter
}

type waiter struct {
	at  time.Time
	due chan time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) At(at time.Time) (due <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{at, make(chan time.Time, 1)}
	c.waiters = append(c.waiters, w)
	c.fire()
	return w.due, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	}
}

// fire is called with mu held.
func (c *clock) fire() {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		if w.at.After(c.now) {
			return false
		}
		w.due <- c.now
		return true
	})
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
	c.fire()
}

// awaited tells whether somebody waits for exactly that time.
func (c *clock) awaited(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.waiters, func(w *waiter) bool { return w.at.Equal(at) })
}

// delivery is an attempt as a receiver sees it.
type delivery struct {
	url, id string
	at      time.Time
	header  http.Header
	body    string
	event   webhook.Event
	taken   bool
}

// String is short, for messages.
func (d delivery) String() string {
	return fmt.Sprintf("%s %s %.2s taken=%t", d.event.Repository.URL, d.event.Ref, d.event.After, d.taken)
}

// receivers are all receivers, in place of the network.
type receivers struct {
	clock *clock

	mu     sync.Mutex // guards the fields below
	heard  []delivery
	answer func(d *delivery) (status int, err error) // nil takes everything
	block  map[string]chan struct{}                  // by URL: what its receiver waits for
}

func (r *receivers) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	d := delivery{
		url: request.URL.String(), id: request.Header.Get("X-Pierre-Delivery"), at: r.clock.Now(), header: request.Header, body: string(body),
	}
	if err := json.Unmarshal(body, &d.event); err != nil {
		return nil, err
	}
	r.mu.Lock()
	block := r.block[d.url]
	r.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := http.StatusNoContent
	if r.answer != nil {
		status, err = r.answer(&d)
	}
	d.taken = err == nil && status/100 == 2
	r.heard = append(r.heard, d)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: request}, nil
}

// with sets how receivers answer.
func (r *receivers) with(answer func(d *delivery) (int, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receivers) attempts() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

// taken describes the events that were taken, as "ref first-byte-of-after", in their order.
func (r *receivers) taken() []string {
	var taken []string
	for _, d := range r.attempts() {
		if d.taken {
			taken = append(taken, d.event.Ref+" "+d.event.After[:2])
		}
	}
	return taken
}

// drop deletes a repository.
func drop(_ context.Context, tx *refs.Tx) error {
	tx.Drop()
	return nil
}
