package kv_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

// gate lets syncs of the log pass one at a time, or all when it is open.
type gate struct {
	arrived chan struct{} // gets one for each sync
	pass    chan struct{}
	open    chan struct{}
	once    sync.Once
}

func openGated(t *testing.T) (*kv.Pebble, *gate) {
	t.Helper()
	g := &gate{arrived: make(chan struct{}, 1000), pass: make(chan struct{}), open: make(chan struct{})}
	closed := make(chan struct{}) // until the store is open
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		select {
		case <-closed:
		default:
			return nil
		}
		if strings.HasSuffix(op.Path, ".log") && isSync(op.Kind) {
			g.arrived <- struct{}{}
			select {
			case <-g.pass:
			case <-g.open:
			}
		}
		return nil
	}))
	store, err := kv.OpenPebble("db",
		kv.PebbleOptions{FS: fs, RestAfter: time.Hour, Logger: quiet(), OnFatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	close(closed)
	t.Cleanup(func() {
		g.release()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, g
}

// release opens the gate for good.
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func put(t *testing.T, store *kv.Pebble, key, value string) kv.Commit {
	t.Helper()
	batch := kv.NewBatch()
	batch.Put([]byte(key), []byte(value))
	commit, err := store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// TestGroupCommit applies many batches on one key while the first sync hangs: no guard is held over
// the sync, and one more sync is enough for the rest.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	store, gate := openGated(t)
	before := store.Stats().LogSyncs
	var commits []kv.Commit
	for i := range 100 {
		batch := kv.NewBatch()
		if i > 0 {
			batch.Require([]byte("head"), fmt.Append(nil, i-1))
		}
		batch.Put([]byte("head"), fmt.Append(nil, i))
		commit, err := store.Apply(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, commit)
	}
	if syncs := store.Stats().LogSyncs - before; syncs != 0 {
		t.Errorf("%d syncs passed a closed gate", syncs)
	}
	if unsynced := store.Stats().Unsynced; unsynced != 100 {
		t.Errorf("%d unsynced, want 100", unsynced)
	}
	gate.release()
	for _, commit := range commits {
		if err := commit.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The log is also synced as it grows.
	if syncs := store.Stats().LogSyncs - before; syncs > 4 {
		t.Errorf("100 commits took %d syncs", syncs)
	}
}

// TestWaitDurableWaitsForNoMore checks which syncs WaitDurable waits for: not those of other keys,
// and one for its own, not those of later writes.
func TestWaitDurableWaitsForNoMore(t *testing.T) {
	t.Parallel()
	store, gate := openGated(t)
	first := put(t, store, "key", "1")
	await(t, gate.arrived, "the first sync")
	free := false // another key may share the stripe
	for i := 0; i < 3 && !free; i++ {
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		free = store.WaitDurable(soon, fmt.Append(nil, "other/", i)) == nil
		cancel()
	}
	if !free {
		t.Error("WaitDurable waits for keys that nobody writes")
	}

	told := make(chan struct{})
	waits := store.Stats().Waits
	go func() {
		defer close(told)
		if err := store.WaitDurable(t.Context(), []byte("key")); err != nil {
			t.Error(err)
		}
	}()
	for store.Stats().Waits == waits {
		time.Sleep(time.Millisecond) // until it has seen the pending commits
	}
	later := put(t, store, "key", "2")
	select {
	case <-told:
		t.Error("WaitDurable did not wait")
	default:
	}
	gate.pass <- struct{}{}
	await(t, told, "WaitDurable after the sync")
	if err := first.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := later.Wait(soon); err == nil {
		t.Error("the later write is durable: there was nothing to wait for")
	}
}

// await fails the test when something takes for ever.
func await(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
	}
}
