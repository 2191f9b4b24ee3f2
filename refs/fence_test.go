package refs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// outcome is an acknowledged transaction with the bounds of its sequence.
type outcome struct {
	refs.Result
	began uint64 // the head before the call
	name  string
}

// Three servers share one store. Their writers expect values that they read before; every
// acknowledged transaction is in the journal, at its sequence, on top of exactly the values that it
// expected, and in an order that fits the clock.
func TestServersShareRepository(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	servers := make([]*refs.Store, 3)
	for i := range servers {
		servers[i] = refs.Open(keys, refs.Options{})
	}
	repo := createRepo(t, keys, servers[0])
	const writers, rounds = 12, 60
	var mu sync.Mutex
	var outcomes []outcome
	stale := 0
	// All writers have seen the empty repository before any commits, so that of twelve that are about
	// to create four branches most are stale.
	var seen sync.WaitGroup
	seen.Add(writers)
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			store, random := servers[writer%len(servers)], rand.New(rand.NewPCG(1, uint64(writer)))
			for round := range rounds {
				name := fmt.Sprintf("refs/heads/%d", random.IntN(4))
				snapshot, err := store.Snapshot(t.Context(), repo)
				if round == 0 {
					seen.Done()
					seen.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
				tip, err := snapshot.Lookup(t.Context(), name)
				if err != nil && !errors.Is(err, refs.ErrNotFound) {
					t.Error(err)
				}
				expected, mine := tip.ID, id(1+writer*rounds+round)
				result, err := store.Update(t.Context(), repo, refs.Change{Actor: fmt.Sprint(writer)},
					func(ctx context.Context, tx *refs.Tx) error {
						if round%5 == 4 && !expected.IsZero() {
							return tx.Delete(ctx, name, &expected)
						}
						// A second ref, without an expectation, moves along.
						return errors.Join(
							tx.Set(ctx, name, &expected, mine, object.ZeroID),
							tx.Set(ctx, fmt.Sprintf("refs/tags/%d", writer), nil, mine, object.ZeroID),
						)
					})
				mu.Lock()
				switch {
				case errors.Is(err, refs.ErrStale):
					stale++
				case errors.Is(err, refs.ErrBusy): // the other servers were sooner each time
				case err != nil:
					t.Error(err)
				default:
					outcomes = append(outcomes, outcome{result, snapshot.Sequence(), name})
				}
				mu.Unlock()
				if err := snapshot.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d committed, %d stale", len(outcomes), stale)
	if stale == 0 {
		t.Error("no writer was stale")
	}

	bySequence := map[uint64]outcome{}
	for _, o := range outcomes {
		if o.Sequence <= o.began {
			t.Errorf("%d committed after %d was seen", o.Sequence, o.began)
		}
		if other, taken := bySequence[o.Sequence]; taken {
			t.Errorf("two transactions are %d: %+v and %+v", o.Sequence, o, other)
		}
		bySequence[o.Sequence] = o
	}
	now, after := map[string]object.ID{}, uint64(1)
	for more := true; more; {
		page, err := servers[0].Events(t.Context(), repo, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			acknowledged := bySequence[entry.Sequence]
			if int(entry.Index) >= len(acknowledged.Updates) {
				t.Fatalf("%+v was never acknowledged", entry)
			}
			if got := acknowledged.Updates[entry.Index]; got.Ref != entry.Ref || got.Before != entry.Before ||
				got.After != entry.After {
				t.Errorf("journal %+v, acknowledged %+v", entry, got)
			}
			if now[entry.Ref] != entry.Before {
				t.Errorf("%s: %s was lost to %+v", entry.Ref, now[entry.Ref], entry)
			}
			now[entry.Ref] = entry.After
		}
		after, more = page.Next, page.More
	}
	if after != uint64(len(outcomes))+1 {
		t.Errorf("%d transactions, the last is %d", len(outcomes), after)
	}
	for name, got := range state(t, openSnapshot(t, servers[1], repo)) {
		if now[name] != got {
			t.Errorf("%s is at %s, the journal says %s", name, got, now[name])
		}
	}
	checkTables(t, keys, repo)
}

// intruder commits through another server whenever a batch is about to be applied, until it is
// switched off.
type intruder struct {
	kv.Store
	strike func()
}

func (s *intruder) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	s.strike()
	return s.Store.Apply(ctx, batch)
}

func TestStaleHead(t *testing.T) {
	t.Parallel()
	for strikes, want := range map[int]error{0: nil, 1: nil, 15: nil, 16: refs.ErrBusy, 100: refs.ErrBusy} {
		keys := openKV(t)
		other := refs.Open(keys, refs.Options{})
		repo := createRepo(t, keys, other)
		struck := 0
		store := refs.Open(&intruder{Store: keys, strike: func() {
			if struck++; struck <= strikes {
				set(t, other, repo, "refs/heads/theirs", struck)
			}
		}}, refs.Options{})
		tries := 0
		result, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
			tries++
			if ref, err := tx.Lookup(ctx, "refs/heads/theirs"); tries > 1 && (err != nil || ref.ID != id(tries-1)) {
				t.Errorf("try %d sees %+v, %v", tries, ref, err)
			}
			return setter("refs/heads/mine", 1)(ctx, tx)
		})
		if !errors.Is(err, want) || tries != min(strikes+1, 16) || err == nil && result.Sequence != uint64(strikes)+2 {
			t.Errorf("%d strikes: %d tries, %+v, %v", strikes, tries, result, err)
		}
	}
}

// openTwice opens a repository on two servers.
func openTwice(t *testing.T) (store, other *refs.Store, repo refs.RepoID) {
	t.Helper()
	keys := openKV(t)
	store, other = refs.Open(keys, refs.Options{}), refs.Open(keys, refs.Options{})
	return store, other, createRepo(t, keys, store)
}

// A refusal that was found while another server moved the repository counts for nothing: it may
// speak of a state that never was.
func TestRefusalOnStaleHead(t *testing.T) {
	t.Parallel()
	store, other, repo := openTwice(t)
	set(t, store, repo, "refs/heads/a", 1)
	for name, outcomes := range map[string][2]error{
		"error": {errors.ErrUnsupported, errors.ErrUnsupported}, "unchanged": {refs.ErrUnchanged, nil},
	} {
		outcome, want := outcomes[0], outcomes[1]
		tries := 0
		result, err := store.Update(t.Context(), repo, refs.Change{}, func(context.Context, *refs.Tx) error {
			if tries++; tries > 1 {
				return outcome
			}
			set(t, other, repo, "refs/heads/"+name, 1)
			return errors.New("decided on a state that has gone")
		})
		if tries != 2 || !errors.Is(err, want) {
			t.Errorf("%s: %d tries, %+v, %v", name, tries, result, err)
		}
	}
}

// Another precondition of the caller's that does not hold leads to another try, which can see why.
func TestForeignPrecondition(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	row, tries := []byte("zmanifest"), 0
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		if tries++; tries == 1 {
			tx.Batch().Require(row, []byte("1"))
			batch := kv.NewBatch()
			batch.Put(row, []byte("2"))
			if _, err := keys.Apply(ctx, batch); err != nil {
				return err
			}
		} else {
			tx.Batch().Require(row, []byte("2"))
		}
		return setter("refs/heads/a", 1)(ctx, tx)
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
}

// A transaction may delete a ref that its head does not count yet. Its batch is refused, and the
// next try counts it.
func TestCountsOnStaleHead(t *testing.T) {
	t.Parallel()
	store, other, repo := openTwice(t)
	set(t, store, repo, "refs/heads/main", 1)
	tries := 0
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		if tries++; tries == 1 {
			set(t, other, repo, "refs/tags/v1", 1)
		}
		return setter("refs/tags/v1", 0)(ctx, tx)
	})
	state, stateErr := store.State(t.Context(), repo)
	if err := errors.Join(err, stateErr); err != nil || tries != 2 || state.RefCount != 1 {
		t.Errorf("%d tries, %+v, %v", tries, state, err)
	}
}
