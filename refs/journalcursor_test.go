package refs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// A journal is read from each of its events on, in pages of each size, and never tells one twice.
func TestEventsBehind(t *testing.T) {
	t.Parallel()
	keys := openKV(t, kv.PebbleOptions{})
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
