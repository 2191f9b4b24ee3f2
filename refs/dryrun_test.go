package refs_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"packhorse/pack/object"
	"packhorse/refs"
)

// A dry run comes to the result of the transaction, and leaves nothing: no ref, no entry, no event,
// no receipt.
func TestDryRun(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	set(t, store, repo, "refs/heads/main", 1)
	before := state(t, openSnapshot(t, store, repo))
	change := refs.Change{
		Org: "acme", DryRun: true, Receipt: receipt(repo, "k", "body"),
		Announced: func() { t.Error("a dry run was announced") },
	}
	var last *refs.Tx
	dry := func(pairs ...any) (refs.Result, error) {
		return store.Update(t.Context(), repo, change, func(ctx context.Context, tx *refs.Tx) error {
			last = tx
			return setter(pairs...)(ctx, tx)
		})
	}
	rehearsed, err := dry("refs/heads/main", 2, "refs/heads/topic", 3)
	if err != nil || rehearsed.Sequence != 2 || last.After() != 2 {
		t.Fatalf("%+v, %v", rehearsed, err)
	}
	if _, err := dry("refs/heads/main/x", 2); !errors.Is(err, refs.ErrNameConflict) {
		t.Errorf("a refusal: %v", err)
	}
	if sequence, err := store.Head(t.Context(), repo); err != nil || sequence != 2 {
		t.Errorf("head %d, %v", sequence, err)
	}
	if after := state(t, openSnapshot(t, store, repo)); !maps.Equal(after, before) {
		t.Errorf("refs are %v, and were %v", after, before)
	}
	feed, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 10)
	if err != nil || len(feed.Events) != 0 {
		t.Errorf("%+v, %v", feed, err)
	}
	change.DryRun, change.Announced = false, nil
	made, err := dry("refs/heads/main", 2, "refs/heads/topic", 3)
	if err != nil || made.Replayed || made.Sequence != 3 || len(made.Updates) != len(rehearsed.Updates) {
		t.Fatalf("%+v, %v", made, err)
	}
	for i, entry := range rehearsed.Updates {
		if got := made.Updates[i]; got.Ref != entry.Ref || got.Before != entry.Before || got.After != entry.After {
			t.Errorf("%+v, and rehearsed %+v", got, entry)
		}
	}
	change.DryRun = true
	if again, err := dry("refs/heads/main", 4); err != nil || again.Replayed || again.Sequence != 3 {
		t.Errorf("a dry run with a used key: %+v, %v", again, err)
	}
}

// A dry run that shares a batch sees what those before it change, and those behind it do not see
// its own changes.
func TestDryRunCombined(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	set(t, store, repo, "refs/heads/main", 1)
	c := newCrowd(t, store, repo)
	move := func(before, after int) func(context.Context, *refs.Tx) error {
		return func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, "refs/heads/main", new(id(before)), id(after), object.ZeroID)
		}
	}
	first := c.join(move(1, 2))
	dry := c.add(t.Context(), refs.Change{Combiner: combinable{}, DryRun: true}, move(2, 9))
	refused := c.add(t.Context(), refs.Change{Combiner: combinable{}, DryRun: true}, move(9, 10))
	second := c.join(move(2, 3))
	c.run()
	first.want(t, "the first", 3, nil)
	dry.want(t, "the dry run", 3, nil)
	refused.want(t, "the other dry run", 0, refs.ErrStale)
	second.want(t, "the second", 4, nil)
	if got := state(t, openSnapshot(t, store, repo)); got["refs/heads/main"] != id(3) {
		t.Errorf("%v", got)
	}
	checkTables(t, keys, repo)
}
