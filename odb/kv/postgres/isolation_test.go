package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestPairs lets two servers apply two batches at the same time that must not both happen as if
// alone, many times over.
func TestPairs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, first, second func(b *kv.Batch, key func(name string) []byte)
		check                 func(has func(name string) bool, firstDone, secondDone bool) bool
	}{
		"each needs the absence of what the other puts": {
			first: func(b *kv.Batch, key func(string) []byte) {
				b.RequireAbsent(key("x"))
				b.Put(key("y"), nil)
			},
			second: func(b *kv.Batch, key func(string) []byte) {
				b.RequireAbsent(key("y"))
				b.Put(key("x"), nil)
			},
			check: func(has func(string) bool, first, second bool) bool {
				return first != second && has("y") == first && has("x") == second
			},
		},
		"one adds to a range that the other removes and closes": {
			before: func(b *kv.Batch, key func(string) []byte) { b.Put(key("open"), []byte("1")) },
			first: func(b *kv.Batch, key func(string) []byte) {
				b.Require(key("open"), []byte("1"))
				b.Put(key("range/1"), nil)
			},
			second: func(b *kv.Batch, key func(string) []byte) {
				b.Require(key("open"), []byte("1"))
				b.Delete(key("open"))
				b.DeleteRange(key("range/"), key("range0"))
			},
			check: func(has func(string) bool, _, second bool) bool {
				return second && !has("range/1") && !has("open")
			},
		},
		"one removes what the other needs": {
			before: func(b *kv.Batch, key func(string) []byte) { b.Put(key("a"), []byte("1")) },
			first: func(b *kv.Batch, key func(string) []byte) {
				b.Require(key("a"), []byte("1"))
				b.RequireAbsent(key("gone"))
				b.Put(key("saw"), nil)
			},
			second: func(b *kv.Batch, key func(string) []byte) {
				b.DeleteRange(key("a"), key("b"))
				b.Put(key("gone"), nil)
			},
			check: func(has func(string) bool, first, second bool) bool {
				return second && !has("a") && has("gone") && has("saw") == first
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := postgres.Options{URL: postgrestest.Database(t)}
			stores := [2]*postgres.Store{openHere(t, options), openHere(t, options)}
			for round := range 60 {
				key := func(name string) []byte { return fmt.Appendf(nil, "%d/%s", round, name) }
				if test.before != nil {
					batch := kv.NewBatch()
					test.before(batch, key)
					apply(t, stores[0], batch)
				}
				var done [2]bool
				var group sync.WaitGroup
				for i, build := range []func(*kv.Batch, func(string) []byte){test.first, test.second} {
					group.Go(func() {
						batch := kv.NewBatch()
						build(batch, key)
						_, err := stores[i].Apply(t.Context(), batch)
						done[i] = err == nil
						if err != nil && !errors.Is(err, kv.ErrConflict) {
							t.Error(err)
						}
					})
				}
				group.Wait()
				has := func(name string) bool {
					_, err := stores[0].Get(t.Context(), key(name))
					return err == nil
				}
				if !test.check(has, done[0], done[1]) {
					t.Fatalf("round %d: happened %v", round, done)
				}
			}
		})
	}
}
