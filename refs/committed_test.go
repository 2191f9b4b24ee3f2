package refs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/pack/object"
	"packhorse/refs"
)

// Committed hears of every transaction that moves refs, with the context of its caller, and of no
// other.
func TestCommitted(t *testing.T) {
	t.Parallel()
	type caller struct{}
	var heard []string
	keys := openKVOn(t, vfs.NewMem())
	store := refs.Open(keys, refs.Options{Committed: func(ctx context.Context, done refs.Committed) {
		line := fmt.Sprint(ctx.Value(caller{}), " ", done.Org, " ", done.Name, " ", done.Actor, " ", done.Cause)
		for _, update := range done.Updates {
			line += fmt.Sprintf(" %d.%d %s %s>%s", update.Sequence, update.Index, update.Ref, update.Before, update.After)
		}
		heard = append(heard, line)
	}})
	one, _ := found(t, store, 1)
	two, _ := found(t, store, 0)
	ctx := context.WithValue(t.Context(), caller{}, "the caller")
	change := refs.Change{Org: "acme", Name: "r", Actor: "ada", Cause: "push"}
	move := func(change refs.Change, prepare func(ctx context.Context, tx *refs.Tx) error) {
		_, err := store.Update(ctx, one, change, prepare)
		if err != nil && !errors.Is(err, refs.ErrNotFound) {
			t.Fatal(err)
		}
	}
	setMain := func(ctx context.Context, tx *refs.Tx) error { return tx.Set(ctx, mainRef, nil, id(1), object.ZeroID) }
	move(change, setMain)
	move(change, setMain) // changes nothing
	move(change, func(ctx context.Context, tx *refs.Tx) error { return tx.Delete(ctx, "refs/heads/none", nil) })
	dry := change
	dry.DryRun = true
	move(dry, func(ctx context.Context, tx *refs.Tx) error { return tx.Delete(ctx, mainRef, nil) })
	move(change, func(ctx context.Context, tx *refs.Tx) error { return tx.Delete(ctx, mainRef, nil) })
	parts := partsOf(one, two)
	if _, err := store.UpdateAll(ctx, parts, nil, setAll(2, "")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("<nil> acme    1.0 refs/heads/0 %s>%s", object.ZeroID, id(1)),
		fmt.Sprintf("the caller acme r ada push 2.0 %s %s>%s", mainRef, object.ZeroID, id(1)),
		fmt.Sprintf("the caller acme r ada push 3.0 %s %s>%s", mainRef, id(1), object.ZeroID),
		fmt.Sprintf("the caller acme  a transaction 4.0 %s %s>%s", mainRef, object.ZeroID, id(2)),
		fmt.Sprintf("the caller acme  a transaction 2.0 %s %s>%s", mainRef, object.ZeroID, id(2)),
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard\n%q\nwant\n%q", heard, want)
	}
}
