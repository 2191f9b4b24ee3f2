package revwalk_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
)

// TestRelationsAgainstGit asks the same relations about many pairs of commits.
func TestRelationsAgainstGit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("hundreds of questions to git")
	}
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 11, CommitCount: 150},
		{Seed: 12, CommitCount: 250, Skew: 50_000},
	} {
		g := odbtest.NewHistory(t, options)
		v := odbtest.Clone(t, g.Repository)
		relations := revwalk.NewRelations(v)
		commits := g.Commits()
		r := rand.New(rand.NewPCG(options.Seed, 3))
		several := 0
		for range 80 {
			pair := odbtest.Pick(r, commits, 2)
			a, b := pair[0], pair[1]
			got, err := relations.MergeBases(t.Context(), a, b)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := g.Try(nil, "merge-base", "--all", a.String(), b.String()) // fails for unrelated ones
			if odbtest.Lines("", got) != string(want) {
				t.Errorf("merge bases of %s and %s:\n%swant\n%s", a, b, odbtest.Lines("", got), want)
			}
			if len(got) > 1 {
				several++
			}
			_, err = g.Try(nil, "merge-base", "--is-ancestor", a.String(), b.String())
			ancestor, ancestorErr := relations.IsAncestor(t.Context(), a, b)
			if ancestorErr != nil {
				t.Fatal(ancestorErr)
			}
			if ancestor != (err == nil) {
				t.Errorf("%s is an ancestor of %s: %v", a, b, ancestor)
			}
			ahead, err := relations.Ahead(t.Context(), a, b)
			odbtest.Must(t, err)
			behind, err := relations.Ahead(t.Context(), b, a)
			odbtest.Must(t, err)
			count := g.Git("rev-list", "--left-right", "--count", a.String()+"..."+b.String())
			if got := fmt.Sprintf("%d\t%d", ahead, behind); got != count {
				t.Errorf("%s is ahead and behind %s by %q, want %q", a, b, got, count)
			}
		}
		if several == 0 {
			t.Errorf("seed %d has no criss-cross merges", options.Seed)
		}
	}
}
