package refs_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// TestRaiseFloor raises the floor of a history with a transaction an hour, at half hours.
func TestRaiseFloor(t *testing.T) {
	t.Parallel()
	keys := &failing{Store: openKV(t), before: func(*kv.Batch) error { return nil }}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return start }})
	repo := createRepo(t, keys, store)
	at := func(halves int) time.Time { return start.Add(time.Duration(halves) * 30 * time.Minute) }
	move := func(hour int) {
		t.Helper()
		if _, err := store.Update(t.Context(), repo, refs.Change{Time: at(2 * hour)}, setter("refs/heads/a", hour)); err != nil {
			t.Fatal(err)
		}
	}
	raise := func(before time.Time, sequence uint64, since time.Time) {
		t.Helper()
		floor, err := store.RaiseFloor(t.Context(), repo, before)
		if err != nil || floor.Sequence != sequence || !floor.Since.Equal(since) {
			t.Errorf("before %v: %+v, %v, want %d since %v", before, floor, err, sequence, since)
		}
		window, err := store.Window(t.Context(), repo)
		if err != nil || window.Sequence != sequence || !window.Since.Equal(since) {
			t.Errorf("before %v: the window is %+v, %v", before, window, err)
		}
		if sequence > 0 && (!window.Below(sequence-1) || window.Below(sequence)) {
			t.Errorf("what is below the floor of %+v", window)
		}
	}
	raise(at(-1), 0, time.Time{}) // the repository is younger
	for hour := 1; hour <= 4; hour++ {
		move(hour)
	}
	raise(at(3), 2, at(3))
	raise(at(2), 2, at(3)) // never lowered
	raise(at(4), 3, at(4))
	keys.before = func(*kv.Batch) error { // a transaction of another server comes first
		keys.before = func(*kv.Batch) error { return nil }
		here := store
		defer func() { store = here }()
		store = refs.Open(keys, refs.Options{Now: func() time.Time { return start }})
		move(5)
		return nil
	}
	raise(at(7), 4, at(7))
	if _, err := store.TrimJournal(t.Context(), repo, at(7)); err != nil {
		t.Fatal(err)
	}
	raise(at(9), 5, at(9))
	if _, err := store.TrimJournal(t.Context(), repo, at(100)); err != nil { // all of it
		t.Fatal(err)
	}
	raise(at(200), 6, at(200))
	if report, err := store.Fsck(t.Context(), repo); err != nil || report.ProblemCount != 0 {
		t.Errorf("fsck: %+v, %v", report, err)
	}
	if _, err := store.RaiseFloor(t.Context(), refs.NewRepoID(), start); !errors.Is(err, refs.ErrRepositoryNotFound) {
		t.Errorf("of nothing: %v", err)
	}

	apply(t, keys, func(b *kv.Batch) {
		for _, row := range rowsOf(t, keys, 'b', repo) {
			b.Put(row.Key, append(row.Value[:7:7], append([]byte{9}, row.Value[8:]...)...))
		}
	})
	if report, err := store.Fsck(t.Context(), repo); err != nil || report.ProblemCount != 1 {
		t.Errorf("fsck of a floor above the head: %+v, %v", report, err)
	}
	apply(t, keys, func(b *kv.Batch) {
		for _, row := range rowsOf(t, keys, 'b', repo) {
			b.Put(row.Key, row.Value[:9])
		}
	})
	if _, err := store.Window(t.Context(), repo); !errors.Is(err, refs.ErrCorrupt) {
		t.Errorf("a damaged floor: %v", err)
	}
}

// TestRaiseFloorOfBusyRepository raises a floor while a transaction of the same process arrives: it
// waits for its turn, and no try is lost.
func TestRaiseFloorOfBusyRepository(t *testing.T) {
	t.Parallel()
	keys := &failing{Store: openKV(t), before: func(*kv.Batch) error { return nil }}
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	if _, err := store.Update(t.Context(), repo, refs.Change{}, setter("refs/heads/a", 1)); err != nil {
		t.Fatal(err)
	}
	tries, done := 0, make(chan error, 1)
	keys.before = func(*kv.Batch) error {
		if tries++; tries > 1 {
			return nil // the transaction's
		}
		go func() {
			_, err := store.Update(t.Context(), repo, refs.Change{}, setter("refs/heads/a", 2))
			done <- err
		}()
		for store.Waiting(repo) < 2 {
			select {
			case err := <-done:
				t.Errorf("a transaction came between: %v", err)
				done <- err
				return nil
			default:
				runtime.Gosched()
			}
		}
		return nil
	}
	if _, err := store.RaiseFloor(t.Context(), repo, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if tries != 2 {
		t.Errorf("%d batches", tries)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	keys.before = func(*kv.Batch) error {
		keys.before = func(*kv.Batch) error { return nil }
		if _, err := store.RaiseFloor(ended, repo, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("a floor that has no time to wait: %v", err)
		}
		return nil
	}
	if _, err := store.Update(t.Context(), repo, refs.Change{}, setter("refs/heads/a", 3)); err != nil {
		t.Error(err)
	}
}
