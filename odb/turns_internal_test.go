package odb

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// Places go round among the keys that wait, whatever the number of those who wait by one key, and a
// key does not get all of them.
func TestTurnsGoRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places := newTurns(3, 2)
		var order []string
		releases := make(map[string][]func())
		take := func(ctx context.Context, key string) {
			go func() {
				release, err := places.take(ctx, key)
				if err != nil {
					order = append(order, "no "+key)
					return
				}
				order = append(order, key)
				releases[key] = append(releases[key], release)
			}()
			synctest.Wait()
		}
		give := func(key string) {
			t.Helper()
			release := releases[key][0]
			releases[key] = releases[key][1:]
			release()
			synctest.Wait()
		}
		wants := func(want ...string) {
			t.Helper()
			if !slices.Equal(order, want) {
				t.Fatalf("the order is %q, want %q", order, want)
			}
		}
		for range 50 {
			take(t.Context(), "many")
		}
		wants("many", "many")
		take(t.Context(), "one")
		wants("many", "many", "one")
		ended, cancel := context.WithCancel(t.Context())
		take(ended, "gone")
		take(t.Context(), "two")
		take(t.Context(), "one")
		cancel()
		synctest.Wait()
		wants("many", "many", "one", "no gone")
		give("many")
		wants("many", "many", "one", "no gone", "many")
		give("many")
		wants("many", "many", "one", "no gone", "many", "two")
		give("two")
		wants("many", "many", "one", "no gone", "many", "two", "one")
		if _, err := places.take(ended, "gone"); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
		for len(releases["many"]) > 0 || len(releases["one"]) > 0 {
			for key := range releases {
				if len(releases[key]) > 0 {
					give(key)
				}
			}
		}
		if places.count != 0 || len(places.taken)+len(places.waiting)+len(places.keys) != 0 {
			t.Errorf("%d places are taken, %d keys wait", places.count, len(places.keys))
		}
	})
}
