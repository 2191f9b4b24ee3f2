package refs_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/refs"
)

// A journal is read from each of its events on, in pages of each size, and never tells one twice.
func TestEventsBehind(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1)
	set(t, store, repo, "refs/heads/a", 2, "refs/heads/b", 1, "refs/heads/c", 1)
	set(t, store, repo, "refs/heads/c", 2, "refs/heads/d", 1)
	if want, got := "2 3.0 3.1 3 4.0 4", behind(t, store, repo, "0", 100); got != want {
		t.Fatalf("cursors are %s, want %s", got, want)
	}
	cursors := strings.Fields("2 3.0 3.1 3 4.0 4")
	for i, cursor := range cursors {
		for limit := 1; limit < 8; limit++ {
			if got, want := behind(t, store, repo, cursor, limit), strings.Join(cursors[i+1:], " "); got != want {
				t.Errorf("after %s, %d at once: %s, want %s", cursor, limit, got, want)
			}
		}
	}
	// Each event is whole wherever a page begins: changes of a transaction share only a part of what
	// they tell.
	set(t, store, repo, "refs/heads/a", 3, "refs/heads/b", 0, "refs/heads/e", 1)
	all, err := store.EventsBehind(t.Context(), repo, refs.JournalCursor{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i, event := range all.Events {
		rest, err := store.EventsBehind(t.Context(), repo, event.Cursor, 100)
		same := slices.EqualFunc(rest.Events, all.Events[i+1:], func(a, b refs.JournalEvent) bool {
			return reflect.DeepEqual(a, b)
		})
		if err != nil || !same {
			t.Errorf("after %v: %+v, %v, want %+v", event.Cursor, rest.Events, err, all.Events[i+1:])
		}
	}
	// Also behind a part of what was trimmed, the oldest sequence that is there is told.
	later := time.Now().Add(time.Hour)
	if _, err := store.TrimJournal(t.Context(), repo, later); err != nil {
		t.Fatal(err)
	}
	set(t, store, repo, "refs/heads/a", 4)
	_, err = store.EventsBehind(t.Context(), repo, refs.JournalCursor{Sequence: 3, Partial: true}, 100)
	trimmed, ok := errors.AsType[*refs.TrimmedError](err)
	if !ok || trimmed.Oldest != 6 {
		t.Errorf("behind a part of what was trimmed: %v", err)
	}
	for _, text := range []string{"", "x", "-1", "1.", ".1", "0.0", "01", "1.01", "1.2.3", "1.30000", "99999999999999999999"} {
		if c, err := refs.ParseJournalCursor(text); !errors.Is(err, refs.ErrInvalidJournalCursor) {
			t.Errorf("%q is taken for %v", text, c)
		}
	}
}

// behind returns the cursors of the events after one, which it reads in pages.
func behind(tb testing.TB, store *refs.Store, repo refs.RepoID, after string, limit int) string {
	tb.Helper()
	at, err := refs.ParseJournalCursor(after)
	if err != nil {
		tb.Fatal(err)
	}
	var told []string
	for {
		page, err := store.EventsBehind(tb.Context(), repo, at, limit)
		if err != nil || len(page.Events) > limit {
			tb.Fatalf("%d events after %v: %v", len(page.Events), at, err)
		}
		for _, event := range page.Events {
			told = append(told, fmt.Sprint(event.Cursor))
		}
		if !page.More {
			return strings.Join(told, " ")
		}
		at = page.Next
	}
}
