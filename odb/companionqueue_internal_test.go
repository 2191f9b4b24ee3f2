package odb

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// gatedKeys let nobody read the manifest of a pool before its gate is open.
type gatedKeys struct {
	kv.Store
	gates map[string]chan struct{} // by the manifest's key
}

func (g *gatedKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	if gate := g.gates[string(key)]; gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.Store.Get(ctx, key)
}

// TestAwaitCompanions waits for pools that were added before, while others are added. None of them exists, which the work takes for deleted.
func TestAwaitCompanions(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	plain, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: fs, MemoryBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	files, err := file.OpenDir("files", file.DirOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	keys := &gatedKeys{Store: plain, gates: make(map[string]chan struct{})}
	store, err := Open(t.Context(), keys, files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(store.Close(context.Background()), files.Close(), plain.Close()); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newCompanionQueue(t.Context(), store)
		add := func(pools string) {
			for _, pool := range []byte(pools) {
				q.add(PoolID{pool})
			}
		}
		open := func(pool byte) { close(keys.gates[string(manifestKey(PoolID{pool}))]) }
		await := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- q.await(ctx) }()
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
			keys.gates[string(manifestKey(PoolID{pool}))] = make(chan struct{})
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
		q.close()
		ends(third, nil)
		ends(fourth, nil)
		add("a")
		ends(await(t.Context()), nil)
	})
}
