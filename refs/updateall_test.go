package refs_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

const mainRef = "refs/heads/main"

// openSeveral opens stores over the same keys, and repositories whose main is at 1.
func openSeveral(tb testing.TB, stores, repos int, options refs.Options) ([]*refs.Store, []refs.RepoID, kv.Store) {
	tb.Helper()
	keys := openKVOn(tb, vfs.NewMem())
	opened := make([]*refs.Store, stores)
	for i := range opened {
		opened[i] = refs.Open(keys, options)
	}
	ids := make([]refs.RepoID, repos)
	for i := range ids {
		ids[i] = createRepo(tb, keys, opened[0])
		set(tb, opened[0], ids[i], mainRef, 1)
	}
	return opened, ids, keys
}

func partsOf(repos ...refs.RepoID) []refs.Part {
	parts := make([]refs.Part, len(repos))
	for i, repo := range repos {
		parts[i] = refs.Part{Repo: repo, Change: refs.Change{Org: "acme", Actor: "a", Cause: "transaction"}}
	}
	return parts
}

// setAll points main of each part to a value, in reverse.
func setAll(n int, result string) func(context.Context, []*refs.Tx) ([]byte, error) {
	return func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
		for _, tx := range slices.Backward(txs) {
			if err := tx.Set(ctx, mainRef, nil, id(n), object.ZeroID); err != nil {
				return nil, err
			}
		}
		return []byte(result), nil
	}
}

func TestUpdateAll(t *testing.T) {
	t.Parallel()
	stores, repos, keys := openSeveral(t, 1, 3, refs.Options{})
	store := stores[0]
	announced := 0
	parts := partsOf(repos[2], repos[0], repos[1])
	for i := range parts {
		parts[i].Change.Announced = func() { announced++ }
	}
	key := &refs.Receipt{Key: refs.ReceiptKey{Org: "acme", Endpoint: "e", Key: "k"}, Request: sha256.Sum256([]byte("b"))}
	done, err := store.UpdateAll(t.Context(), parts, key, setAll(2, "told"))
	if err != nil || len(done.Parts) != 3 || announced != 3 {
		t.Fatalf("%+v, %v, announced %d times", done, err, announced)
	}
	for i, repo := range repos {
		if got := done.Parts[i]; got.Sequence != 3 || len(got.Updates) != 1 || got.Updates[0].Cause != "transaction" {
			t.Errorf("%+v", got)
		}
		page, err := store.Events(t.Context(), repo, 2, 1)
		elsewhere := []refs.Position{{repos[2], 3}, {repos[0], 3}, {repos[1], 3}}
		elsewhere = slices.DeleteFunc(elsewhere, func(p refs.Position) bool { return p.Repo == repo })
		if err != nil || len(page.Entries) != 1 || !slices.Equal(page.Entries[0].Elsewhere, elsewhere) {
			t.Errorf("%v, %+v, want to be at %v, too", err, page.Entries, elsewhere)
		}
		if got := state(t, openSnapshot(t, store, repo)); got[mainRef] != id(2) {
			t.Errorf("%v", got)
		}
		checkTables(t, keys, repo)
	}
	feed, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 10)
	if err != nil || len(feed.Events) != 3 {
		t.Errorf("%+v, %v", feed, err)
	}
	again, err := store.UpdateAll(t.Context(), parts, key, setAll(9, ""))
	if err != nil || !again.Replayed || string(again.Receipt) != "told" || announced != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	key.Request = sha256.Sum256([]byte("other"))
	if _, err := store.UpdateAll(t.Context(), parts, key, setAll(9, "")); !errors.Is(err, refs.ErrReceiptMismatch) {
		t.Errorf("another request: %v", err)
	}
}

// What one part refuses, none does; and what moves nothing has no entry.
func TestUpdateAllRefusals(t *testing.T) {
	t.Parallel()
	stores, repos, keys := openSeveral(t, 1, 3, refs.Options{})
	store := stores[0]
	unmoved := func() {
		t.Helper()
		for _, repo := range repos {
			if sequence, err := store.Head(t.Context(), repo); err != nil || sequence != 2 {
				t.Errorf("head %d, %v", sequence, err)
			}
			checkTables(t, keys, repo)
			if waiting := store.Waiting(repo); waiting != 0 {
				t.Errorf("%d wait", waiting)
			}
		}
	}
	all := partsOf(repos...)
	_, err := store.UpdateAll(t.Context(), all, nil, func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
		if err := txs[0].Set(ctx, mainRef, nil, id(2), object.ZeroID); err != nil {
			return nil, err
		}
		return nil, txs[2].Set(ctx, mainRef, new(id(7)), id(2), object.ZeroID)
	})
	if !errors.Is(err, refs.ErrStale) {
		t.Errorf("a stale part: %v", err)
	}
	unmoved()
	_, err = store.UpdateAll(t.Context(), append(partsOf(repos...), partsOf(refs.NewRepoID())...), nil, setAll(2, ""))
	absent, ok := errors.AsType[*refs.AbsentError](err)
	if !ok || absent.Part != 3 || !errors.Is(err, refs.ErrRepositoryNotFound) {
		t.Errorf("an absent repository: %v", err)
	}
	unmoved()
	large := strings.Repeat("x", 200<<10)
	_, err = store.UpdateAll(t.Context(), all, nil, func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
		for i, tx := range txs {
			for n := range 30 {
				tx.Batch().Put(fmt.Append(nil, "zz", i, n), []byte(large))
			}
		}
		return setAll(2, "")(ctx, txs)
	})
	if !errors.Is(err, refs.ErrLimit) || !strings.Contains(err.Error(), "16777216") {
		t.Errorf("a large batch: %v", err)
	}
	unmoved()
	parts := partsOf(repos...)
	for i := range parts {
		parts[i].Change.DryRun = true
	}
	dry, err := store.UpdateAll(t.Context(), parts, nil, setAll(2, ""))
	if err != nil || len(dry.Parts) != 3 || dry.Parts[1].Sequence != 2 || len(dry.Parts[1].Updates) != 1 {
		t.Errorf("a dry run: %+v, %v", dry, err)
	}
	unmoved()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = store.UpdateAll(ctx, partsOf(repos...), nil, func(context.Context, []*refs.Tx) ([]byte, error) {
		cancel()
		return nil, errors.ErrUnsupported
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	unmoved()
	one, err := store.UpdateAll(t.Context(), all, nil, func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
		return nil, txs[1].Set(ctx, mainRef, nil, id(2), object.ZeroID)
	})
	if err != nil || one.Parts[0].Sequence != 2 || one.Parts[1].Sequence != 3 || len(one.Parts[2].Updates) != 0 {
		t.Errorf("%+v, %v", one, err)
	}
}

// Another process commits to a part that moves, and to one on which the others only rely: the
// transaction is decided again each time.
func TestUpdateAllLostRaces(t *testing.T) {
	t.Parallel()
	stores, repos, _ := openSeveral(t, 2, 2, refs.Options{Shared: true})
	tries := 0
	done, err := stores[0].UpdateAll(t.Context(), partsOf(repos...), nil,
		func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
			if tries++; tries <= 2 {
				set(t, stores[1], repos[tries-1], mainRef, 10*tries)
			}
			relied, err := txs[1].Lookup(ctx, mainRef)
			if err != nil {
				return nil, err
			}
			return nil, txs[0].Set(ctx, mainRef, nil, relied.ID, object.ZeroID)
		})
	if err != nil || tries != 3 || done.Parts[0].Updates[0].After != id(20) || done.Parts[0].Updates[0].Before != id(10) {
		t.Errorf("after %d tries: %+v, %v", tries, done, err)
	}
	_, err = stores[0].UpdateAll(t.Context(), partsOf(repos...), nil,
		func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
			tries++
			set(t, stores[1], repos[1], mainRef, 100+tries)
			return setAll(3, "")(ctx, txs)
		})
	if !errors.Is(err, refs.ErrBusy) {
		t.Errorf("%v", err)
	}
}

// several is what a client asks for: to set some repositories to a value, or to read one.
type several struct {
	repos []int
	to    int // 0 for a read
}

// TestUpdateAllLinearizable lets clients of two processes write one or several repositories, which
// share batches, and read single ones, and searches for an order of the calls that explains all
// values that they met.
func TestUpdateAllLinearizable(t *testing.T) {
	t.Parallel()
	const count = 3
	model := porcupine.Model{
		Init: func() any { return [count]object.ID{id(1), id(1), id(1)} },
		Step: func(state, input, output any) (bool, any) {
			now, asked, got := state.([count]object.ID), input.(several), output.([count]object.ID)
			for _, repo := range asked.repos {
				if got[repo] != now[repo] {
					return false, now
				}
				if asked.to != 0 {
					now[repo] = id(asked.to)
				}
			}
			return true, now
		},
	}
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for seed := range uint64(rounds) {
		stores, repos, keys := openSeveral(t, 2, count, refs.Options{Shared: true, CombineMax: 64})
		var mu sync.Mutex
		var history []porcupine.Operation // guarded by mu
		var clients sync.WaitGroup
		begin := time.Now()
		for number := range 6 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(number)))
				for call := range 25 {
					asked := several{repos: random.Perm(count)[:1+random.IntN(count)], to: 1000*(number+1) + call}
					if random.IntN(4) == 0 {
						asked = several{repos: asked.repos[:1]}
					}
					start := time.Since(begin)
					got, err := asked.do(t.Context(), stores[number%2], repos)
					if errors.Is(err, refs.ErrBusy) {
						continue // nothing was changed
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					history = append(history, porcupine.Operation{
						ClientId: number, Input: asked, Output: got, Call: start.Nanoseconds(), Return: time.Since(begin).Nanoseconds(),
					})
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		if !porcupine.CheckOperations(model, history) {
			t.Errorf("seed %d: no order of the calls explains what the clients met", seed)
		}
		for _, repo := range repos {
			checkTables(t, keys, repo)
		}
	}
}

// do asks for it, and returns the values before.
func (w several) do(ctx context.Context, store *refs.Store, repos []refs.RepoID) (got [3]object.ID, err error) {
	exchange := func(ctx context.Context, tx *refs.Tx, at int) error {
		ref, err := tx.Lookup(ctx, mainRef)
		if err != nil {
			return err
		}
		got[at] = ref.ID
		return tx.Set(ctx, mainRef, &ref.ID, id(w.to), object.ZeroID)
	}
	switch first := w.repos[0]; {
	case w.to == 0:
		snapshot, err := store.Snapshot(ctx, repos[first])
		if err != nil {
			return got, err
		}
		defer snapshot.Close()
		ref, err := snapshot.Lookup(ctx, mainRef)
		got[first] = ref.ID
		return got, err
	case len(w.repos) == 1:
		_, err = store.Update(ctx, repos[first], refs.Change{Combiner: combinable{}, Names: []string{mainRef}, Org: "acme"},
			func(ctx context.Context, tx *refs.Tx) error { return exchange(ctx, tx, first) })
		return got, err
	}
	parts := make([]refs.Part, len(w.repos))
	for i, repo := range w.repos {
		parts[i] = refs.Part{Repo: repos[repo], Change: refs.Change{Org: "acme", Names: []string{mainRef}}}
	}
	_, err = store.UpdateAll(ctx, parts, nil, func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
		for i, repo := range w.repos {
			if err := exchange(ctx, txs[i], repo); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return got, err
}
