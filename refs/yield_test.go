package refs_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// yieldRow is the key of the row that asks servers to yield.
func yieldRow(repo refs.RepoID) []byte { return append([]byte("a"), repo[:]...) }

// onlooker is a store that tells of each look whether others ask to yield.
type onlooker struct {
	kv.Store
	looks func()
}

func (s *onlooker) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.HasPrefix(key, []byte("a")) {
		s.looks()
	}
	return s.Store.Get(ctx, key)
}

// Two servers write to one repository, and one of them is always ahead of the other. That one asks
// it to yield, and gets its turn.
func TestYield(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	looked := make(chan struct{}, 1)
	ahead := refs.Open(&onlooker{Store: keys, looks: func() {
		select {
		case looked <- struct{}{}:
		default:
		}
	}}, refs.Options{Shared: true})
	repo := createRepo(t, keys, ahead)
	var running sync.WaitGroup
	written, striking := 0, true
	behind := refs.Open(&intruder{Store: keys, strike: func() {
		if !striking {
			return
		}
		done := make(chan struct{})
		written++
		running.Go(func() {
			defer close(done)
			name, value := "refs/heads/ahead", written
			if _, err := ahead.Update(context.Background(), repo, refs.Change{}, setter(name, value)); err != nil {
				t.Error(err)
			}
		})
		select {
		case <-done:
		case <-looked: // it yields
			striking = false
		}
	}}, refs.Options{Shared: true})
	tries := 0
	_, err := behind.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		tries++
		return setter("refs/heads/behind", 1)(ctx, tx)
	})
	running.Wait()
	if err != nil || tries > 4 {
		t.Errorf("%d tries, %v", tries, err)
	}
	got := state(t, openSnapshot(t, behind, repo))
	if got["refs/heads/behind"] != id(1) || got["refs/heads/ahead"] != id(written) {
		t.Errorf("after %d writes of the other server: %v", written, got)
	}
	if _, err := keys.Get(t.Context(), yieldRow(repo)); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("the row is still there: %v", err)
	}
	checkTables(t, keys, repo)
}

// A server that has asked the others to yield dies. They wait for it once, and not for ever, and
// who gives up meanwhile leaves at once.
func TestYieldToTheDead(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	ctx, cancel := context.WithCancel(t.Context())
	var looks atomic.Int64
	store := refs.Open(&onlooker{Store: keys, looks: func() {
		looks.Add(1)
		cancel()
	}}, refs.Options{Shared: true, CombineMax: 64})
	repo := createRepo(t, keys, store)
	batch := kv.NewBatch()
	batch.Put(yieldRow(repo), []byte("a server that died"))
	if commit, err := keys.Apply(t.Context(), batch); err != nil || commit.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	_, err := store.Update(ctx, repo, refs.Change{}, setter("refs/heads/given-up", 1))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up: %v", err)
	}
	set(t, store, repo, "refs/heads/main", 1)
	patience := looks.Load()
	set(t, store, repo, "refs/heads/main", 2)
	if looks.Load() != patience || patience < 10 {
		t.Errorf("%d looks, then %d", patience, looks.Load()-patience)
	}
	if got := state(t, openSnapshot(t, store, repo)); len(got) != 1 || got["refs/heads/main"] != id(2) {
		t.Errorf("%v", got)
	}
	if _, err := keys.Get(t.Context(), yieldRow(repo)); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("the row is still there: %v", err)
	}
}

// A server asks for itself alone: its own row does not stop it, and a transaction without a change
// leaves it to the next one.
func TestYieldOfOneself(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	other := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, other)
	strikes := 0
	store := refs.Open(&intruder{Store: keys, strike: func() {
		if strikes++; strikes <= 5 {
			set(t, other, repo, "refs/heads/theirs", strikes)
		}
	}}, refs.Options{Shared: true})
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		if strikes < 3 {
			return setter("refs/heads/ours", 1)(ctx, tx)
		}
		return errors.ErrUnsupported
	})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if row, err := keys.Get(t.Context(), yieldRow(repo)); err != nil || len(row) == 0 {
		t.Fatalf("nobody has been asked to yield: %v", err)
	}
	set(t, store, repo, "refs/heads/ours", 2)
	got := state(t, openSnapshot(t, store, repo))
	if got["refs/heads/ours"] != id(2) || got["refs/heads/theirs"] == object.ZeroID {
		t.Errorf("%v", got)
	}
	if _, err := keys.Get(t.Context(), yieldRow(repo)); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("the row is still there: %v", err)
	}
}
