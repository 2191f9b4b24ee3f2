package revwalk_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
)

// TestAncestry has a branch grow along its first parents, and compares its merge bases with all
// commits with those that a walk of its own finds, and that the same relations find in between.
func TestAncestry(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 41, CommitCount: 80},
		{Seed: 44, CommitCount: 150, Skew: 50_000},
	} {
		g := odbtest.NewHistory(t, options)
		v := odbtest.Clone(t, g.Repository)
		commits := g.Commits()
		tips := g.IDs("", "rev-list", "--first-parent", "refs/heads/main")
		slices.Reverse(tips)
		r := rand.New(rand.NewPCG(options.Seed, 5))
		relations := revwalk.NewRelations(v)
		a, err := revwalk.NewAncestry(t.Context(), relations, tips[0])
		odbtest.Must(t, err)
		counts := make(map[int]int)
		for _, tip := range tips {
			odbtest.Must(t, a.Advance(t.Context(), tip))
			for _, other := range odbtest.Pick(r, commits, 60) {
				got, err := a.MergeBases(t.Context(), other)
				odbtest.Must(t, err)
				want, err := revwalk.MergeBases(t.Context(), v, tip, other)
				odbtest.Must(t, err)
				between, err := relations.MergeBases(t.Context(), tip, other)
				odbtest.Must(t, err)
				if !slices.Equal(got, want) || !slices.Equal(between, want) {
					t.Fatalf("seed %d: merge bases of %s and %s: %s and %s, want %s", options.Seed, tip, other, got, between,
						want)
				}
				counts[min(len(got), 2)]++
			}
		}
		if counts[0] == 0 || counts[1] == 0 || counts[2] == 0 {
			t.Errorf("seed %d: pairs by their number of merge bases: %v", options.Seed, counts)
		}
	}
}
