package odb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// TestListingRests takes listings up again with another view, at places drawn, and holds them
// against walks.
func TestListingRests(t *testing.T) {
	t.Parallel()
	for _, options := range []historyOptions{
		{seed: 81, commitCount: 150},
		{seed: 82, commitCount: 150, skew: 100_000},
	} {
		t.Run(fmt.Sprintf("skew %d", options.skew), func(t *testing.T) {
			t.Parallel()
			g := newHistory(t, options)
			h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
			h.pushPack(g, lines("", g.tips()))
			must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
			r := rand.New(rand.NewPCG(options.seed, 3))
			tip := g.commits()[0]
			for _, path := range append(pickStrings(r, g.paths(tip), 4), "", "not there") {
				var want []object.ID
				if path == "" {
					want = collect(t, h.view(), revwalk.WalkOptions{Tips: []object.ID{tip}})
				} else {
					want = collectPath(t, h.view(), []object.ID{tip}, path)
				}
				if got := listRested(t, r, h, tip, path); !slices.Equal(got, want) {
					t.Errorf("%q: got %d: %v\nwant %d: %v", path, len(got), got, len(want), want)
				}
			}
		})
	}
}

// listRested lists with a rest every few commits.
func listRested(t *testing.T, r *rand.Rand, h *ingestHost, tip object.ID, path string) []object.ID {
	t.Helper()
	view := h.view()
	l, err := revwalk.List(t.Context(), view, tip, path)
	must(t, err)
	var ids []object.ID
	for {
		c, ok, err := l.Next(t.Context())
		must(t, err)
		if !ok {
			l.Rest()
			return ids
		}
		ids = append(ids, c.ID)
		if r.IntN(7) > 0 {
			continue
		}
		l.Rest()
		must(t, view.Close())
		if l.Bytes() <= int64(len(ids))*object.IDSize {
			t.Fatalf("a listing of %d commits takes %d bytes", len(ids), l.Bytes())
		}
		view = h.view()
		must(t, l.Resume(t.Context(), view))
	}
}

func pickStrings(r *rand.Rand, all []string, n int) []string {
	var picked []string
	for range n {
		picked = append(picked, all[r.IntN(len(all))])
	}
	return picked
}

func TestListingOfNothing(t *testing.T) {
	t.Parallel()
	h := newIngestHost(t, odb.Options{})
	for _, path := range []string{"", "a"} {
		if _, err := revwalk.List(t.Context(), h.view(), object.ID{1}, path); !errors.Is(err, odb.ErrNotFound) {
			t.Errorf("a listing of %q from nowhere: %v", path, err)
		}
	}
}
