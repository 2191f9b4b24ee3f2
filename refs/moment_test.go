package refs_test

import (
	"errors"
	"testing"
	"time"

	"packhorse/refs"
)

// TestSnapshotAt reads a short history at each of its sequences, and beyond both ends.
func TestSnapshotAt(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/b", 2)
	set(t, store, repo, "refs/heads/a", 3)
	set(t, store, repo, "refs/heads/b", 0, "refs/tags/v", 4)
	set(t, store, repo, "refs/heads/b", 5)
	want := []map[string]int{
		1: {}, 2: {"refs/heads/a": 1, "refs/heads/b": 2}, 3: {"refs/heads/a": 3, "refs/heads/b": 2},
		4: {"refs/heads/a": 3, "refs/tags/v": 4}, 5: {"refs/heads/a": 3, "refs/tags/v": 4, "refs/heads/b": 5},
	}
	for sequence := uint64(1); sequence <= 5; sequence++ {
		snapshot, err := store.SnapshotAt(t.Context(), repo, sequence)
		if err != nil {
			t.Fatal(sequence, err)
		}
		if snapshot.Sequence() != sequence || snapshot.Count() != len(want[sequence]) {
			t.Errorf("at %d: sequence %d, %d refs", sequence, snapshot.Sequence(), snapshot.Count())
		}
		for _, name := range []string{"refs/heads/a", "refs/heads/b", "refs/tags/v", "refs/heads/none"} {
			ref, err := snapshot.Lookup(t.Context(), name)
			if to := want[sequence][name]; ref.ID != id(to) || to == 0 && !errors.Is(err, refs.ErrNotFound) {
				t.Errorf("at %d: %s is at %s, %v", sequence, name, ref.ID, err)
			}
		}
		if got := state(t, snapshot); len(got) != len(want[sequence]) {
			t.Errorf("at %d: %v", sequence, got)
		}
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}
	future := &refs.FutureError{}
	if _, err := store.SnapshotAt(t.Context(), repo, 6); !errors.As(err, &future) || future.Last != 5 {
		t.Errorf("after now: %v", err)
	}
	if _, err := store.SnapshotAt(t.Context(), repo, 0); !errors.Is(err, refs.ErrBeforeCreation) {
		t.Errorf("before the creation: %v", err)
	}
	if _, err := store.SnapshotAt(t.Context(), refs.NewRepoID(), 1); !errors.Is(err, refs.ErrRepositoryNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

// TestSequenceAt asks for times between transactions.
func TestSequenceAt(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return start }})
	repo := createRepo(t, keys, store)
	for hour := range 9 {
		change := refs.Change{Time: start.Add(time.Duration(hour+1) * time.Hour)}
		if _, err := store.Update(t.Context(), repo, change, setter("refs/heads/a", hour+1)); err != nil {
			t.Fatal(err)
		}
	}
	for half := range 30 {
		at := start.Add(time.Duration(half) * 30 * time.Minute)
		if got, err := store.SequenceAt(t.Context(), repo, at); err != nil || got != uint64(min(1+half/2, 10)) {
			t.Errorf("at %v: %d, %v", at, got, err)
		}
	}
	before := &refs.BeforeCreationError{}
	_, err := store.SequenceAt(t.Context(), repo, start.Add(-time.Millisecond))
	if !errors.As(err, &before) || !before.Created.Equal(start) {
		t.Errorf("before the creation: %v", err)
	}
	if oldest, at, err := store.Oldest(t.Context(), repo); err != nil || oldest != 1 || !at.Equal(start) {
		t.Errorf("oldest %d at %v, %v", oldest, at, err)
	}
}
