package refs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// gated is a store whose batches become durable when the gate opens.
type gated struct {
	kv.Store
	gate    chan struct{}
	waiting chan string // reports the waiters
}

type gatedCommit struct {
	kv.Commit
	store *gated
}

func (s *gated) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	commit, err := s.Store.Apply(ctx, batch)
	return gatedCommit{commit, s}, err
}

func (c gatedCommit) Wait(ctx context.Context) error {
	c.store.waiting <- "writer"
	<-c.store.gate
	return c.Commit.Wait(ctx)
}

func (s *gated) WaitDurable(ctx context.Context, key []byte) error {
	s.waiting <- "reader"
	<-s.gate
	return s.Store.WaitDurable(ctx, key)
}

// No result is returned before it is durable, neither to the writer nor to others that are refused
// because of it, and the next writer is not held up by that.
func TestToldWhenDurable(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	repo := createRepo(t, keys, refs.Open(keys, refs.Options{}))
	store := &gated{Store: keys, gate: make(chan struct{}), waiting: make(chan string)}
	server := refs.Open(store, refs.Options{})
	update := func(prepare func(context.Context, *refs.Tx) error) func() error {
		return func() error {
			_, err := server.Update(t.Context(), repo, refs.Change{}, prepare)
			return err
		}
	}
	keyed := func() error {
		_, err := server.Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "")}, setter("refs/heads/c", 1))
		return err
	}
	calls := []struct {
		name, waits string
		call        func() error
		want        error
	}{
		{"a writer", "writer", update(setter("refs/heads/a", 1)), nil},
		{"the next writer", "writer", update(setter("refs/heads/b", 1)), nil},
		{"a stale one", "reader", update(func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, "refs/heads/a", new(id(7)), id(8), object.ZeroID)
		}), refs.ErrStale},
		{"one in conflict", "reader", update(setter("refs/heads/a/b", 1)), refs.ErrNameConflict},
		{"one without a change", "reader", update(setter("refs/heads/a", 1)), nil},
		{"a writer with a key", "writer", keyed, nil},
		{"its replay", "reader", keyed, nil},
		{"a reader of events", "reader", func() error { _, err := server.Events(t.Context(), repo, 0, 10); return err }, nil},
		{"a reader of refs", "reader", func() error { return openSnapshot(t, server, repo).WaitDurable(t.Context()) }, nil},
	}
	done := make(chan int, len(calls))
	results := make([]error, len(calls))
	for i, c := range calls {
		go func() {
			results[i] = c.call()
			done <- i
		}()
		select {
		case got := <-store.waiting:
			if got != c.waits {
				t.Errorf("%s waits as a %s", c.name, got)
			}
		case i := <-done:
			t.Fatalf("%s was told too early", calls[i].name)
		}
	}
	close(store.gate)
	for range calls {
		<-done
	}
	for i, c := range calls {
		if !errors.Is(results[i], c.want) {
			t.Errorf("%s: %v", c.name, results[i])
		}
	}
}

// Power fails at random instants under many writers. All acknowledged writes must exist,
// transactions as a whole and without a gap, and all tables must agree.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it crashes the file system of the keys")
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for seed := range uint64(rounds) {
		powerLoss(t, seed)
	}
}

func powerLoss(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, seed))
	fs := vfs.NewCrashableMem()
	keys := openKVOn(t, fs)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)

	var acknowledged atomic.Uint64 // the highest sequence
	var commits atomic.Int64
	crash, crashed := int64(1+random.IntN(120)), make(chan struct{})
	var survived *vfs.MemFS
	var promised uint64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for writer := range 6 {
		wg.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				// Each transaction moves two refs to one value, and turns a third one on or off.
				result, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
					toggle := fmt.Sprintf("refs/namespaces/ephemeral/refs/heads/%d", writer)
					_, err := tx.Lookup(ctx, toggle)
					if err == nil {
						err = tx.Delete(ctx, toggle, nil)
					} else if errors.Is(err, refs.ErrNotFound) {
						err = tx.Set(ctx, toggle, nil, id(1), object.ZeroID)
					}
					mine := id(1 + writer*1_000_000 + round)
					return errors.Join(err, tx.Set(ctx, "refs/heads/one", nil, mine, object.ZeroID),
						tx.Set(ctx, "refs/heads/two", nil, mine, object.ZeroID))
				})
				if err != nil {
					t.Error(err)
					return
				}
				for old := acknowledged.Load(); old < result.Sequence && !acknowledged.CompareAndSwap(old, result.Sequence); {
					old = acknowledged.Load()
				}
				if commits.Add(1) == crash {
					promised = acknowledged.Load()
					survived = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: random})
					close(crashed)
				}
			}
		})
	}
	<-crashed
	stop()
	wg.Wait()

	keys = openKVOn(t, survived)
	store = refs.Open(keys, refs.Options{})
	head, err := store.Head(t.Context(), repo)
	if err != nil || head < promised {
		t.Fatalf("seed %d: the head is %d, %v; %d was acknowledged", seed, head, err, promised)
	}
	now := map[string]object.ID{}
	for after := uint64(0); after < head; {
		page, err := store.Events(t.Context(), repo, after, 100)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, entry := range page.Entries {
			if now[entry.Ref] != entry.Before {
				t.Fatalf("seed %d: %+v on top of %s", seed, entry, now[entry.Ref])
			}
			now[entry.Ref] = entry.After
			if entry.After.IsZero() {
				delete(now, entry.Ref)
			}
		}
		after = page.Next
	}
	got := state(t, openSnapshot(t, store, repo))
	if fmt.Sprint(got) != fmt.Sprint(now) || got["refs/heads/one"] != got["refs/heads/two"] {
		t.Fatalf("seed %d: refs %v, journal %v", seed, got, now)
	}
	checkTables(t, keys, repo)
	set(t, store, repo, "refs/heads/after", 1)
	if err := keys.Close(); err != nil {
		t.Error(err)
	}
}
