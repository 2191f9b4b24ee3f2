package refs_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// counting is a store that notes the calls that would be round trips over a network.
type counting struct {
	kv.Store
	mu    sync.Mutex
	calls []string // guarded by mu
}

func (s *counting) note(call string, keys ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		call += " " + string(key[:min(1, len(key))])
	}
	s.calls = append(s.calls, call)
}

// take returns the calls since it was called last, each with the tables of what it asks for.
func (s *counting) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}

func tablesOf(set kv.ReadSet) [][]byte {
	var tables [][]byte
	for _, key := range set.Keys {
		tables = append(tables, key[:1])
	}
	for _, options := range set.Ranges {
		tables = append(tables, []byte(strings.ToUpper(string(options.Start[:1]))))
	}
	return slices.CompactFunc(tables, slices.Equal)
}

func (s *counting) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.note("get", key)
	return s.Store.Get(ctx, key)
}

func (s *counting) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.note("read", tablesOf(set)...)
	return s.Store.Read(ctx, set)
}

func (s *counting) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	s.note("scan", options.Start)
	return s.Store.Scan(ctx, options)
}

func (s *counting) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.note("snapshot")
	snapshot, err := s.Store.Snapshot(ctx)
	return countingSnapshot{snapshot, s}, err
}

func (s *counting) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	s.note("apply")
	return s.Store.Apply(ctx, batch)
}

type countingSnapshot struct {
	kv.Snapshot
	store *counting
}

func (s countingSnapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.store.note("get", key)
	return s.Snapshot.Get(ctx, key)
}

func (s countingSnapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.store.note("read", tablesOf(set)...)
	return s.Snapshot.Read(ctx, set)
}

func (s countingSnapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	s.store.note("scan", options.Start)
	return s.Snapshot.Scan(ctx, options)
}

// openCounted opens a repository whose store counts.
func openCounted(t *testing.T, options refs.Options) (*counting, *refs.Store, refs.RepoID) {
	t.Helper()
	keys := &counting{Store: openKV(t, kv.PebbleOptions{})}
	store := refs.Open(keys, options)
	repo := createRepo(t, keys, store)
	keys.take()
	return keys, store, repo
}

// A transaction reads its head, and all that an equal request may have left, at once.
func TestTripsOfReceipts(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	plain := func(context.Context, *refs.Tx) error { return nil }
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"a search", func() error {
			_, found, err := store.FindReceipt(t.Context(), receipt(repo, "k", ""))
			if found {
				t.Error("found")
			}
			return err
		}, "read i"},
		{"a transaction", func() error {
			_, err := store.Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "")}, func(_ context.Context, tx *refs.Tx) error {
				tx.Batch().Put([]byte("zzz"), nil)
				return nil
			})
			return err
		}, "read h i, apply"},
		{"its replay", func() error {
			_, err := store.Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "")}, plain)
			return err
		}, "read h i"},
		{"another request with its key", func() error {
			_, err := store.Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "other")}, plain)
			if !errors.Is(err, refs.ErrReceiptMismatch) {
				t.Error(err)
			}
			return nil
		}, "read h i"},
		{"one that fails", func() error {
			_, err := store.Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k2", "")},
				func(context.Context, *refs.Tx) error { return errors.ErrUnsupported })
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
			return nil
		}, "read h i, get h"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := keys.take(); got != step.want {
			t.Errorf("%s: %s; want %s", step.name, got, step.want)
		}
	}
}

// A replay does not wait for the transaction that has the turn.
func TestReplayBesideATurn(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	change := refs.Change{Receipt: receipt(repo, "k", "")}
	if _, err := store.Update(t.Context(), repo, change, committer(1, "one")); err != nil {
		t.Fatal(err)
	}
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, _ *refs.Tx) error {
		result, err := store.Update(ctx, repo, change, func(context.Context, *refs.Tx) error {
			t.Error("prepared again")
			return nil
		})
		if err != nil || string(result.Receipt) != "one" {
			t.Errorf("%+v, %v", result, err)
		}
		return refs.ErrUnchanged
	})
	if err != nil {
		t.Fatal(err)
	}
}

// More buckets than a read may have are searched in several.
func TestReceiptsOfManyHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	keys, store, repo := openCounted(t, refs.Options{
		ReceiptAge: 2500 * time.Hour, Now: func() time.Time { return now },
	})
	change := refs.Change{Receipt: receipt(repo, "k", "")}
	if _, err := store.Update(t.Context(), repo, change, committer(1, "one")); err != nil {
		t.Fatal(err)
	}
	begin := now
	for _, hours := range []int{0, 1, 996, 997, 998, 999, 1000, 1001, 2500} {
		now = begin.Add(time.Duration(hours) * time.Hour)
		keys.take()
		result, err := store.Update(t.Context(), repo, change, committer(2, "two"))
		if err != nil || string(result.Receipt) != "one" {
			t.Errorf("after %d hours: %+v, %v", hours, result, err)
		}
		if got := keys.take(); got != "read h i, read i, read i" {
			t.Errorf("after %d hours: %s", hours, got)
		}
	}
	now = begin.Add(2503 * time.Hour)
	if result, err := store.Update(t.Context(), repo, change, committer(2, "two")); err != nil || result.Replayed {
		t.Errorf("after its life: %+v, %v", result, err)
	}
}
