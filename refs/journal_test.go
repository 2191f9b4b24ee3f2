package refs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"packhorse/refs"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	at := time.Date(2226, 3, 1, 12, 0, 0, 123456789, time.FixedZone("x", 3600))
	change := refs.Change{Actor: "alice", Cause: "push", Time: at, Options: []string{"ci.skip", ""}}
	if _, err := store.Update(
		t.Context(), repo, change, setter("refs/heads/a", 1, "refs/heads/b", 2, "refs/heads/c", 3),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(t.Context(), repo, refs.Change{
		Cause: "settings",
	}, func(_ context.Context, tx *refs.Tx) error {
		tx.Batch().Put([]byte("zzz"), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	set(t, store, repo, "refs/heads/b", 0, "refs/heads/a", 4)

	page, err := store.Events(t.Context(), repo, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if page.More || page.Next != 4 || len(page.Entries) != 5 {
		t.Fatalf("%+v", page)
	}
	first := page.Entries[1]
	want := refs.Entry{
		Sequence: 2, Index: 1, Ref: "refs/heads/b", After: id(2),
		Actor: "alice", Time: at.UTC().Truncate(time.Millisecond), Cause: "push", Options: []string{"ci.skip", ""},
	}
	if fmt.Sprint(first.Sequence, first.Index, first.Ref, first.Before, first.After, first.Actor, first.Time, first.Cause,
		first.Options, len(first.Options)) !=
		fmt.Sprint(want.Sequence, want.Index, want.Ref, want.Before, want.After, want.Actor, want.Time, want.Cause,
			want.Options, len(want.Options)) {
		t.Errorf("got %+v, want %+v", first, want)
	}
	for i, want := range []string{
		"2.0 refs/heads/a 0 1", "2.1 refs/heads/b 0 2", "2.2 refs/heads/c 0 3", "4.0 refs/heads/b 2 0",
		"4.1 refs/heads/a 1 4",
	} {
		entry := page.Entries[i]
		if got := fmt.Sprintf(
			"%d.%d %s %d %d", entry.Sequence, entry.Index, entry.Ref, entry.Before[19], entry.After[19],
		); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if page.Entries[3].Actor != "test" || page.Entries[3].Options != nil {
		t.Errorf("what one transaction shares reached another: %+v", page.Entries[3])
	}
}

func TestEventsPages(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	for i := range 10 {
		set(t, store, repo, "refs/heads/a", i+1, fmt.Sprintf("refs/heads/b%d", i), 1)
	}
	tests := []struct {
		after uint64
		limit int
		count int
		next  uint64
		more  bool
	}{
		{0, 1, 2, 2, true},
		{1, 2, 2, 2, true},
		{1, 3, 4, 3, true},
		{2, 18, 18, 11, false},
		{2, 17, 18, 11, false},
		{2, 0, 2, 3, true},
		{10, 5, 2, 11, false},
		{11, 5, 0, 11, false},
		{99, 5, 0, 99, false},
	}
	for _, test := range tests {
		page, err := store.Events(t.Context(), repo, test.after, test.limit)
		if err != nil || len(page.Entries) != test.count || page.Next != test.next || page.More != test.more {
			t.Errorf("after %d, limit %d: %d entries, next %d, more %v, %v", test.after, test.limit, len(page.Entries),
				page.Next, page.More, err)
		}
	}
	if _, err := store.Events(t.Context(), refs.NewRepoID(), 0, 1); !errors.Is(err, refs.ErrRepositoryNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestTrimJournal(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return start }})
	repo, other := createRepo(t, keys, store), createRepo(t, keys, store)
	for day := range 5 {
		change := refs.Change{Time: start.AddDate(0, 0, day)}
		if _, err := store.Update(
			t.Context(), repo, change, setter("refs/heads/a", day+1, "refs/heads/b", day+1),
		); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		before time.Time
		oldest uint64
	}{
		{start, 1},
		{start.AddDate(0, 0, 2), 4},
		{start.AddDate(0, 0, 2), 4},
		{start.AddDate(0, 0, 2).Add(1), 5},
		{start.AddDate(1, 0, 0), 7},
	}
	for _, test := range tests {
		oldest, err := store.TrimJournal(t.Context(), repo, test.before)
		if err != nil || oldest != test.oldest {
			t.Fatalf("trimmed to %v: oldest %d, %v, want %d", test.before, oldest, err, test.oldest)
		}
		for after := range uint64(8) {
			page, err := store.Events(t.Context(), repo, after, 100)
			var trimmed *refs.TrimmedError
			switch {
			case after+1 < oldest && after < 6:
				if !errors.As(err, &trimmed) || trimmed.Oldest != oldest || !errors.Is(err, refs.ErrTrimmed) {
					t.Errorf("oldest %d, after %d: %+v, %v", oldest, after, page, err)
				}
			case err != nil:
				t.Errorf("oldest %d, after %d: %v", oldest, after, err)
			}
		}
	}
	set(t, store, repo, "refs/heads/c", 1)
	if page, err := store.Events(t.Context(), repo, 6, 10); err != nil || len(page.Entries) != 1 {
		t.Errorf("after all was trimmed: %+v, %v", page, err)
	}
	if page, err := store.Events(t.Context(), other, 0, 10); err != nil || page.Next != 1 {
		t.Errorf("the other repository: %+v, %v", page, err)
	}
}
