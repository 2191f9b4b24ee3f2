package refs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv"
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

// A moment costs the trips that now costs: one for the refs that are named, one more for others or
// for all, and one when all of them are cached. A time is found in two trips and those of the
// bisection.
func TestTripsOfMoments(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/b", 2)
	set(t, store, repo, "refs/heads/a", 3, "refs/heads/b", 0)
	moved := time.Now().Add(time.Hour)
	if _, err := store.Update(t.Context(), repo, refs.Change{Time: moved}, setter("refs/heads/b", 4)); err != nil {
		t.Fatal(err)
	}
	at := func(sequence uint64, names []string, do func(*refs.Snapshot) error) func() error {
		return func() error {
			snapshot, err := store.SnapshotAt(t.Context(), repo, sequence, names...)
			if err != nil {
				return err
			}
			return errors.Join(do(snapshot), snapshot.WaitDurable(t.Context()), snapshot.Close())
		}
	}
	lookup := func(want int) func(*refs.Snapshot) error {
		return func(snapshot *refs.Snapshot) error {
			ref, err := snapshot.Lookup(t.Context(), "refs/heads/a")
			if ref.ID != id(want) {
				t.Errorf("at %d: %s", snapshot.Sequence(), ref.ID)
			}
			return err
		}
	}
	list := func(want int) func(*refs.Snapshot) error {
		return func(snapshot *refs.Snapshot) error {
			if got := state(t, snapshot); len(got) != want {
				t.Errorf("at %d: %v", snapshot.Sequence(), got)
			}
			_, err := snapshot.Branches(t.Context(), refs.Main, refs.Creation{}, 10)
			return err
		}
	}
	named := []string{"refs/heads/a", "refs/heads/none"}
	var many []any
	for i := range 3000 {
		many = append(many, fmt.Sprint("refs/tags/", i), 1)
	}
	costs(t, keys, []tripStep{
		{"a named lookup", at(2, named, lookup(1)), "read h j r T", nil},
		{"a lookup", at(2, nil, lookup(1)), "read h j, read r h j T", nil},
		{"a list", at(2, nil, list(2)), "read h j, read h j R T", nil},
		{"a list again", at(2, nil, list(2)), "read h j", nil},
		{"a named lookup in a list", at(2, named, lookup(1)), "read h j", nil},
		{"now", at(4, named, lookup(3)), "read h j r T", nil},
		{"what is to come", at(5, named, lookup(3)), "read h j r T", refs.ErrFuture},
		{"before the creation", at(0, nil, lookup(3)), "read h j, read h t J", refs.ErrBeforeCreation},
		{"many refs", func() error { set(t, store, repo, many...); keys.take(); return nil }, "", nil},
		{"a list of few among many", at(3, nil, list(1)), "read h j, read h j R T, snapshot, read h j, read T, scan r", nil},
		{"a list of few among many again", at(3, nil, list(1)), "read h j", nil},
		{"a time", func() error {
			sequence, err := store.SequenceAt(t.Context(), repo, moved.Add(-time.Minute))
			if sequence != 3 {
				t.Errorf("sequence %d", sequence)
			}
			return err
		}, "read h t J, read j", nil},
		{"the last time", func() error {
			_, err := store.SequenceAt(t.Context(), repo, moved)
			return err
		}, "read h t J", nil},
	})
}

// failing is a store whose Apply asks first.
type failing struct {
	kv.Store
	before func(batch *kv.Batch) error
}

func (s *failing) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if err := s.before(batch); err != nil {
		return nil, err
	}
	return s.Store.Apply(ctx, batch)
}

// TestTrimsInBatches trims a journal that takes several batches, is interrupted before each of
// them, and finds all that remains in order.
func TestTrimsInBatches(t *testing.T) {
	t.Parallel()
	keys := &failing{Store: openKV(t), before: func(*kv.Batch) error { return nil }}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return start }})
	repo := createRepo(t, keys, store)
	const transactions, count = 12, 500
	for i := range transactions {
		var pairs []any
		for ref := range count {
			pairs = append(pairs, fmt.Sprint("refs/tags/", ref), i+1)
		}
		change := refs.Change{Time: start.Add(time.Duration(i+1) * time.Hour)}
		if _, err := store.Update(t.Context(), repo, change, setter(pairs...)); err != nil {
			t.Fatal(err)
		}
	}
	before := start.Add((transactions-1)*time.Hour - time.Minute)
	broken := errors.New("broken")
	for batches := 1; ; batches++ {
		applied := 0
		keys.before = func(batch *kv.Batch) error {
			if batch.Count() > 5000 {
				t.Errorf("a batch of %d", batch.Count())
			}
			if applied++; applied > 1 {
				return broken
			}
			return nil
		}
		_, err := store.TrimJournal(t.Context(), repo, before)
		if report, err := store.Fsck(t.Context(), repo); err != nil || report.ProblemCount > 0 {
			t.Fatalf("after %d batches: %+v, %v", batches, report, err)
		}
		for sequence := uint64(2); sequence <= transactions+1; sequence++ {
			snapshot, err := store.SnapshotAt(t.Context(), repo, sequence, "refs/tags/7")
			if errors.Is(err, refs.ErrTrimmed) && sequence < transactions {
				continue
			}
			if err != nil {
				t.Fatal(sequence, err)
			}
			ref, err := snapshot.Lookup(t.Context(), "refs/tags/7")
			if err != nil || ref.ID != id(int(sequence)-1) {
				t.Errorf("after %d batches, at %d: %s, %v", batches, sequence, ref.ID, err)
			}
			if err := snapshot.Close(); err != nil {
				t.Error(err)
			}
		}
		if err == nil {
			if batches < 3 {
				t.Errorf("%d batches", batches)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	if oldest, at, err := store.Oldest(t.Context(), repo); err != nil || oldest != transactions-1 || !at.Equal(before) {
		t.Errorf("oldest %d at %v, %v", oldest, at, err)
	}
}

// Of two processes that trim at once, the one that removes more decides.
func TestTrimsBesideEachOther(t *testing.T) {
	t.Parallel()
	keys := &failing{Store: openKV(t), before: func(*kv.Batch) error { return nil }}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options := refs.Options{Now: func() time.Time { return start }}
	store, other := refs.Open(keys, options), refs.Open(keys.Store, options)
	repo := createRepo(t, keys, store)
	for i := range 8 {
		change := refs.Change{Time: start.Add(time.Duration(i+1) * time.Hour)}
		if _, err := store.Update(t.Context(), repo, change, setter("refs/heads/a", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	late := start.Add(6*time.Hour + time.Minute)
	keys.before = func(*kv.Batch) error {
		keys.before = func(*kv.Batch) error { return nil }
		_, err := other.TrimJournal(t.Context(), repo, late)
		return err
	}
	if oldest, err := store.TrimJournal(t.Context(), repo, start.Add(3*time.Hour)); err != nil || oldest != 8 {
		t.Errorf("trimmed to %d, %v", oldest, err)
	}
	if oldest, at, err := store.Oldest(t.Context(), repo); err != nil || oldest != 7 || !at.Equal(late) {
		t.Errorf("oldest %d at %v, %v", oldest, at, err)
	}
	trimmed := &refs.TrimmedError{}
	_, err := store.SequenceAt(t.Context(), repo, late.Add(-time.Second))
	if !errors.As(err, &trimmed) || trimmed.Oldest != 7 || !trimmed.At.Equal(late) {
		t.Errorf("before the floor: %v", err)
	}
	if sequence, err := store.SequenceAt(t.Context(), repo, late); err != nil || sequence != 7 {
		t.Errorf("at the floor: %d, %v", sequence, err)
	}
}

// A journal that an older release has trimmed to its end reaches back to the first trim of this
// one.
func TestTrimOfOldJournal(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	now := time.Date(2226, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return now }})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1)
	apply(t, keys, func(b *kv.Batch) {
		for _, table := range []byte("jt") {
			for _, row := range rowsOf(t, keys, table, repo) {
				b.Delete(row.Key)
			}
		}
	})
	now = now.AddDate(1, 0, 0)
	if _, err := store.SequenceAt(t.Context(), repo, now.Add(-time.Second)); !errors.Is(err, refs.ErrTrimmed) {
		t.Errorf("before the first trim: %v", err)
	}
	if sequence, err := store.SequenceAt(t.Context(), repo, now); err != nil || sequence != 2 {
		t.Errorf("now: %d, %v", sequence, err)
	}
	if _, err := store.TrimJournal(t.Context(), repo, now.AddDate(0, -1, 0)); err != nil {
		t.Fatal(err)
	}
	trimmed := now
	now = now.AddDate(0, 0, 1)
	set(t, store, repo, "refs/heads/a", 2)
	for at, want := range map[time.Time]uint64{trimmed: 2, now.Add(-time.Second): 2, now: 3} {
		if sequence, err := store.SequenceAt(t.Context(), repo, at); err != nil || sequence != want {
			t.Errorf("at %v: %d, %v", at, sequence, err)
		}
	}
	snapshot, err := store.SnapshotAt(t.Context(), repo, 2)
	if err != nil {
		t.Fatal(err)
	}
	if ref, err := snapshot.Lookup(t.Context(), "refs/heads/a"); err != nil || ref.ID != id(1) {
		t.Errorf("%s, %v", ref.ID, err)
	}
	if err := snapshot.Close(); err != nil {
		t.Error(err)
	}
}

// A moment that the store has lost is not taken for one of the history that followed.
func TestLostMoments(t *testing.T) {
	t.Parallel()
	keys := &rewound{}
	keys.rewind(openKV(t))
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1)
	saved := copyOf(t, keys)
	set(t, store, repo, "refs/heads/a", 2)
	set(t, store, repo, "refs/heads/a", 3)
	var lost []*refs.Snapshot
	for i := range 2 {
		snapshot, err := store.SnapshotAt(t.Context(), repo, 3)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && len(state(t, snapshot)) != 1 { // now all refs are cached
			t.Error("no refs")
		}
		lost = append(lost, snapshot)
	}
	keys.rewind(saved)
	if _, err := lost[0].Lookup(t.Context(), "refs/heads/a"); !errors.Is(err, refs.ErrBusy) {
		t.Errorf("a moment that is lost: %v", err)
	}
	set(t, store, repo, "refs/heads/a", 4)
	set(t, store, repo, "refs/heads/a", 5)
	if _, err := lost[0].Lookup(t.Context(), "refs/heads/a"); !errors.Is(err, refs.ErrBusy) {
		t.Errorf("a moment of a lost history: %v", err)
	}
	for range 2 {
		snapshot, err := store.SnapshotAt(t.Context(), repo, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got := state(t, snapshot); got["refs/heads/a"] != id(4) || snapshot.Version() == lost[0].Version() {
			t.Errorf("%v, version %v", got, snapshot.Version())
		}
		lost = append(lost, snapshot)
	}
	for _, snapshot := range lost {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A walk passes over the moves of a branch that was moved often: two pages of former states, not
// one for each page of them.
func TestWalkPassesOverMoves(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{CacheBytes: 1})
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/hot", 1, "refs/heads/z", 1)
	const moves = 3 * kv.PageCountMax
	for i := range moves {
		set(t, store, repo, "refs/heads/hot", i+2)
	}
	set(t, store, repo, "refs/heads/a", 2, "refs/heads/z", 0)
	for _, sequence := range []uint64{2, 3, moves / 2, moves - 100, moves + 1, moves + 2} {
		snapshot, err := store.SnapshotAt(t.Context(), repo, sequence)
		if err != nil {
			t.Fatal(err)
		}
		keys.take()
		got := state(t, snapshot)
		if got["refs/heads/a"] != id(1) || got["refs/heads/z"] != id(1) || got["refs/heads/hot"] != id(int(sequence)-1) {
			t.Errorf("at %d: %v", sequence, got)
		}
		want := 2
		if sequence == moves/2 { // more than a page of moves before it, and behind it
			want = 3
		}
		if calls := keys.take(); strings.Count(calls, "read T") != want {
			t.Errorf("at %d: %s; want %d reads of former states", sequence, calls, want)
		}
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}
}
