package maintain_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"packhorse/engine/maintain"
	"packhorse/odb"
)

// TestAuxiliaries waits for pools that were added before, while others are added. A pool is worked
// on until its gate is open; the work of one that has none fails, and that of another panics.
func TestAuxiliaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gates := make(map[odb.PoolID]chan struct{})
		q := maintain.NewAuxiliaries(func(ctx context.Context, pool odb.PoolID, owner string) error {
			if owner != "owner of "+string(rune(pool[0])) {
				t.Errorf("pool %c is of %q", pool[0], owner)
			}
			if pool[0] == 'b' {
				defer panic("it cannot be built")
			}
			select {
			case <-gates[pool]:
			case <-ctx.Done():
				return ctx.Err()
			}
			return odb.ErrCorrupt
		}, func() bool { return true }, slog.New(slog.DiscardHandler))
		add := func(pools string) {
			for _, pool := range []byte(pools) {
				q.Add(odb.PoolID{pool}, "owner of "+string(rune(pool)))
			}
		}
		open := func(pool byte) { close(gates[odb.PoolID{pool}]) }
		await := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- q.Await(ctx) }()
			synctest.Wait()
			return ended
		}
		ends := func(ended <-chan error, want error) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				if !errors.Is(err, want) {
					t.Errorf("the wait ends with %v, want %v", err, want)
				}
			default:
				t.Error("the wait goes on")
			}
		}
		goesOn := func(ended <-chan error) {
			t.Helper()
			synctest.Wait()
			if len(ended) > 0 {
				t.Errorf("the wait has ended with %v", <-ended)
			}
		}
		for _, pool := range []byte("abcd") {
			gates[odb.PoolID{pool}] = make(chan struct{})
		}

		ends(await(t.Context()), nil) // nothing was added yet
		add("ab")
		first := await(t.Context())
		add("bcab")
		second := await(t.Context())
		goesOn(first)
		open('a')
		goesOn(first)
		open('b')
		ends(first, nil)
		goesOn(second)
		open('c')
		ends(second, nil)
		ends(await(t.Context()), nil)

		add("d")
		ctx, cancel := context.WithCancel(t.Context())
		canceled, third := await(ctx), await(t.Context())
		cancel()
		ends(canceled, context.Canceled)
		goesOn(third)
		add("a") // never comes to its turn
		fourth := await(t.Context())
		q.Close()
		ends(third, nil)
		ends(fourth, nil)
		add("a")
		ends(await(t.Context()), nil)
	})
}
