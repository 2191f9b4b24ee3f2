package revwalk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// TestListingRests resumes listings with other views, at random places, and compares them with
// walks.
func TestListingRests(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 81, CommitCount: 150},
		{Seed: 82, CommitCount: 150, Skew: 100_000},
	} {
		t.Run(fmt.Sprintf("skew %d", options.Skew), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, options)
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}, HistoryCommits: 5})
			h.PushGit(g, odbtest.Lines("", g.Tips()))
			h.BuildFilters()
			h.BuildHistories()
			r := rand.New(rand.NewPCG(options.Seed, 3))
			tip := g.Commits()[0]
			for _, path := range append(pickStrings(r, paths(t, g, tip), 4), "", "not there") {
				var want []object.ID
				if path == "" {
					want = collect(t, h.View(), revwalk.WalkOptions{Tips: []object.ID{tip}})
				} else {
					want = collectPath(t, h.View(), []object.ID{tip}, path)
				}
				if got := listRested(t, r, h, tip, path); !slices.Equal(got, want) {
					t.Errorf("%q: got %d: %v\nwant %d: %v", path, len(got), got, len(want), want)
				}
			}
		})
	}
}

// listRested lists with a rest after a few commits each.
func listRested(t *testing.T, r *rand.Rand, h *odbtest.Pool, tip object.ID, path string) []object.ID {
	t.Helper()
	view := h.View()
	l, err := revwalk.List(t.Context(), view, tip, path)
	odbtest.Must(t, err)
	var ids []object.ID
	for {
		c, ok, err := l.Next(t.Context())
		odbtest.Must(t, err)
		if !ok {
			l.Rest()
			return ids
		}
		ids = append(ids, c.ID)
		if r.IntN(7) > 0 {
			continue
		}
		l.Rest()
		odbtest.Must(t, view.Close())
		if l.Bytes() <= int64(len(ids))*object.IDSize {
			t.Fatalf("a listing of %d commits takes %d bytes", len(ids), l.Bytes())
		}
		view = h.View()
		odbtest.Must(t, l.Resume(t.Context(), view))
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
	h := odbtest.NewPool(t, odb.Options{})
	for _, path := range []string{"", "a"} {
		if _, err := revwalk.List(t.Context(), h.View(), object.ID{1}, path); !errors.Is(err, odb.ErrNotFound) {
			t.Errorf("a listing of %q from nowhere: %v", path, err)
		}
	}
}
