package refs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// announced is a change that leaves a row for each transaction that was announced, and counts the
// calls.
type announced struct {
	refs.Change
	tries, told int
}

func announce(change refs.Change) *announced {
	a := &announced{Change: change}
	a.Announce = func(b *kv.Batch, updates []refs.Entry) {
		a.tries++
		b.Put(fmt.Appendf(nil, "z%d", updates[0].Sequence), fmt.Append(nil, len(updates)))
	}
	a.Announced = func() { a.told++ }
	return a
}

// announcements returns the rows that [announce] left.
func announcements(t *testing.T, keys kv.Store) []string {
	t.Helper()
	var rows []string
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte("z"), End: []byte("{")}) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, string(pair.Key)+" "+string(pair.Value))
	}
	return rows
}

// A change of refs is announced in the batch that makes it, however often that is tried, and
// nothing else is.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	denied := errors.New("denied")
	tests := map[string]struct {
		prepare     func(context.Context, *refs.Tx) error
		strikes     int // how often another server comes first
		receipt     bool
		tries, told int
		rows        []string
		err         error
	}{
		"a change": {
			prepare: setter("refs/heads/a", 2, "refs/heads/b", 1), tries: 1, told: 1, rows: []string{"z3 2"},
		},
		"at the third try": {prepare: setter("refs/heads/b", 1), strikes: 2, tries: 3, told: 1, rows: []string{"z5 1"}},
		"at no try":        {prepare: setter("refs/heads/b", 1), strikes: 16, tries: 16, err: refs.ErrBusy},
		"a replay":         {prepare: setter("refs/heads/b", 1), receipt: true},
		"no change":        {prepare: setter("refs/heads/a", 1)},
		"no change of a ref": {prepare: func(_ context.Context, tx *refs.Tx) error {
			tx.Batch().Put([]byte("y"), nil)
			return nil
		}},
		"a refusal":  {prepare: func(context.Context, *refs.Tx) error { return denied }, err: denied},
		"a deletion": {prepare: drop},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := openKV(t)
			other := refs.Open(keys, refs.Options{})
			repo := createRepo(t, keys, other)
			change := announce(refs.Change{})
			if test.receipt {
				change.Receipt = receipt(repo, "key", "body")
			}
			if _, err := other.Update(
				t.Context(), repo, refs.Change{Receipt: change.Receipt}, setter("refs/heads/a", 1),
			); err != nil {
				t.Fatal(err)
			}
			struck := 0
			store := refs.Open(&intruder{Store: keys, strike: func() {
				if struck++; struck <= test.strikes {
					set(t, other, repo, "refs/heads/theirs", struck)
				}
			}}, refs.Options{})
			_, err := store.Update(t.Context(), repo, change.Change, test.prepare)
			if !errors.Is(err, test.err) || change.tries != test.tries || change.told != test.told {
				t.Errorf("%d tries, told %d times: %v", change.tries, change.told, err)
			}
			if rows := announcements(t, keys); !slices.Equal(rows, test.rows) {
				t.Errorf("announced %q", rows)
			}
		})
	}
}

// No change is announced that a crash could undo.
func TestAnnouncedWhenDurable(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	repo := createRepo(t, keys, refs.Open(keys, refs.Options{}))
	store := &gated{Store: keys, gate: make(chan struct{}), waiting: make(chan string)}
	change := announce(refs.Change{})
	told, done := make(chan struct{}), make(chan error)
	change.Announced = func() { close(told) }
	go func() {
		_, err := refs.Open(store, refs.Options{}).Update(t.Context(), repo, change.Change, setter("refs/heads/a", 1))
		done <- err
	}()
	<-store.waiting
	select {
	case <-told:
		t.Error("told before it was durable")
	default:
	}
	close(store.gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-told
}
