package webhook_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/webhook"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// world is a deliverer with a journal, an outbox, a clock and receivers that the test owns.
type world struct {
	t         *testing.T
	fs        *vfs.MemFS
	clock     *clock
	receivers *receivers
	giveUp    time.Duration // of the deliverers that are opened from now on; their default when 0
	linger    time.Duration // of the same
	turn      func(context.Context, fair.Tenant, func(context.Context) error) error

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
		receivers: &receivers{}, linger: -1, hooks: []webhook.Hook{{URL: hookURL, Secret: "s3cret"}},
	}
	w.receivers.clock = w.clock
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.keys = odbtest.OpenKeys(w.t, w.fs)
	w.names = refs.Open(w.keys, refs.Options{Now: w.clock.Now})
	w.d = w.deliverer(w.keys, w.receivers)
}

// deliverer makes a deliverer, which the caller starts.
func (w *world) deliverer(keys kv.Store, network http.RoundTripper) *webhook.Deliverer {
	return webhook.New(webhook.Config{
		KV: keys, Source: source{w}, Client: &http.Client{Transport: network}, Agent: "packhorse/test", Clock: w.clock,
		GiveUp: w.giveUp, Linger: w.linger, Turn: w.turn,
		Timeout: time.Hour, // the only time that is not the clock's
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

// crash cuts the power while the deliverer works, and starts another one on the remaining data.
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
	w.setIn(w.names, repo, n, names...)
}

// setIn is set through a server.
func (w *world) setIn(store *refs.Store, repo refs.RepoID, n byte, names ...string) {
	w.t.Helper()
	change := refs.Change{Time: w.clock.Now(), Announced: func() { w.d.Told(webhook.Repository{ID: repo}) }}
	change.Announce = func(b *kv.Batch, updates []refs.Entry) { b.Put(outboxKey(repo, updates[0].Sequence), nil) }
	_, err := store.Update(w.t.Context(), repo, change, func(ctx context.Context, tx *refs.Tx) error {
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
	for end := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s: never; %d attempts: %v", what, len(w.receivers.attempts()), w.receivers.attempts())
		}
	}
}

// waits counts the transactions that may wait in journals for an earlier event of a ref.
func (w *world) waits(ref string) (count uint64) {
	w.t.Helper()
	for pair, err := range w.keys.Scan(w.t.Context(), kv.ScanOptions{Start: []byte("wb"), End: []byte("wc")}) {
		var row struct{ From, Until struct{ Sequence uint64 } }
		if err == nil {
			err = json.Unmarshal(pair.Value, &row)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.HasSuffix(string(pair.Key), ref) {
			count += row.Until.Sequence - row.From.Sequence + 1
		}
	}
	return count
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

// status returns that of the only hook, which is behind until the deliverer has seen its first
// event.
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

// idle reports whether only dead letters are left to handle. A transaction moves from the outbox to
// the streams in one batch, so the outbox is looked at first.
func (w *world) idle() bool {
	w.t.Helper()
	for _, err := range w.keys.Scan(w.t.Context(), kv.ScanOptions{Start: []byte("O"), End: []byte("P")}) {
		if err != nil {
			w.t.Fatal(err)
		}
		return false
	}
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

// drop deletes a repository.
func drop(_ context.Context, tx *refs.Tx) error {
	tx.Drop()
	return nil
}
