package revwalk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

func collect(t *testing.T, v *odb.View, options revwalk.WalkOptions) []object.ID {
	t.Helper()
	var ids []object.ID
	for commit, err := range revwalk.Walk(t.Context(), v, options) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, commit.ID)
	}
	return ids
}

func TestWalkAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 1, CommitCount: 120},
		{Seed: 2, CommitCount: 250, Skew: 3000},
		{Seed: 3, CommitCount: 250, Skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.Seed, options.Skew), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, options)
			v := odbtest.Clone(t, g.Repository)
			commits := g.Commits()
			r := rand.New(rand.NewPCG(options.Seed, 2))
			for range 60 {
				compareWalk(t, g, v, revwalk.WalkOptions{
					Tips:        odbtest.Pick(r, commits, 1+r.IntN(4)),
					Hide:        odbtest.Pick(r, commits, r.IntN(5)),
					Order:       revwalk.Order(r.IntN(3)),
					FirstParent: r.IntN(4) == 0,
					Since:       []int64{0, 0, 1_500_000_000 + r.Int64N(20_000)}[r.IntN(3)],
				})
			}
		})
	}
}

func compareWalk(t *testing.T, g *odbtest.Repository, v *odb.View, options revwalk.WalkOptions) {
	t.Helper()
	args := []string{"-c", "core.commitGraph=false", "rev-list", "--stdin"}
	switch options.Order {
	case revwalk.OrderDate:
	case revwalk.OrderDateTopo:
		args = append(args, "--date-order")
	case revwalk.OrderTopo:
		args = append(args, "--topo-order")
	}
	if options.FirstParent {
		args = append(args, "--first-parent")
	}
	if options.Since != 0 {
		args = append(args, fmt.Sprintf("--max-age=%d", options.Since))
	}
	want := g.IDs(odbtest.Lines("", options.Tips)+odbtest.Lines("^", options.Hide), args...)
	if got := collect(t, v, options); !slices.Equal(got, want) {
		t.Errorf("walk %+v\n got %d: %v\nwant %d: %v", options, len(got), got, len(want), want)
	}
}
