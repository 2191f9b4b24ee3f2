package engine_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
)

// tripping counts the trips to a store: calls that read, and pages of scans.
type tripping struct {
	kv.Store
	trips atomic.Int64
}

func (s *tripping) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.trips.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *tripping) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.trips.Add(1)
	return s.Store.Read(ctx, set)
}

func (s *tripping) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		count := 0
		for pair, err := range s.Store.Scan(ctx, options) {
			if count%kv.PageCountMax == 0 {
				s.trips.Add(1)
			}
			if count++; !yield(pair, err) {
				return
			}
		}
		if count == 0 {
			s.trips.Add(1)
		}
	}
}

// TestTripsOfListings counts how often listings of an organization go to the store.
func TestTripsOfListings(t *testing.T) {
	t.Parallel()
	var store *tripping
	host := enginetest.OpenBehind(t, engine.Config{}, func(keys kv.Store) kv.Store {
		store = &tripping{Store: keys}
		return store
	})
	const total = 1000
	for i := range total {
		request := engine.CreateRequest{Name: fmt.Sprintf("team%d/r%d", i%2, i)}
		if i%5 == 0 {
			request.Upstream = &engine.UpstreamBase{Origin: upstream.Origin{
				Provider: "gitlab", Owner: "o", Name: fmt.Sprint("n", i),
			}}
		}
		if _, err := host.CreateRepository(t.Context(), acme, request); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		options      engine.ListOptions
		found, trips int
		more         bool
	}{
		"100":                {engine.ListOptions{Limit: 100}, 100, 3, true},
		"the last 100":       {engine.ListOptions{Limit: 100, Cursor: cursorAt(t, host, total-100)}, 100, 3, false},
		"search":             {engine.ListOptions{Limit: 100, Query: "R99"}, 11, 8, false},
		"search of little":   {engine.ListOptions{Limit: 1, Query: "r999"}, 1, 8, false},
		"search in vain":     {engine.ListOptions{Limit: 20, Query: "none"}, 0, 8, false},
		"search at its page": {engine.ListOptions{Limit: 100, Query: "team1/"}, 100, 8, true},
	}
	for name, test := range tests {
		before := store.trips.Load()
		page, err := host.Repositories(t.Context(), acme.Org, test.options)
		if err != nil {
			t.Fatal(err)
		}
		if trips := int(store.trips.Load() - before); trips > test.trips {
			t.Errorf("%s: %d trips, want at most %d", name, trips, test.trips)
		}
		if len(page.Items) != test.found || (page.Next != "") != test.more {
			t.Errorf("%s: %d repositories, more %q", name, len(page.Items), page.Next)
		}
	}
}

// cursorAt is a cursor behind so many repositories.
func cursorAt(t *testing.T, host *engine.Host, count int) string {
	t.Helper()
	page, err := host.Repositories(t.Context(), acme.Org, engine.ListOptions{Limit: count})
	if err != nil || len(page.Items) != count {
		t.Fatal(len(page.Items), err)
	}
	return page.Next
}

// BenchmarkRepositories lists and opens repositories.
func BenchmarkRepositories(b *testing.B) {
	host := enginetest.Open(b)
	for i := range 1000 {
		if _, err := host.CreateRepository(b.Context(), acme, engine.CreateRequest{Name: fmt.Sprint("r", i)}); err != nil {
			b.Fatal(err)
		}
	}
	for name, options := range map[string]engine.ListOptions{
		"list 20": {Limit: 20}, "list 100": {Limit: 100}, "search": {Limit: 100, Query: "r99"},
		"search all": {Limit: 20, Query: "r"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := host.Repositories(b.Context(), acme.Org, options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := host.Repository(b.Context(), acme.Org, "r500"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
