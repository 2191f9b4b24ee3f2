package odb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
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
	for _, options := range []historyOptions{
		{seed: 1, commitCount: 120},
		{seed: 2, commitCount: 250, skew: 3000},
		{seed: 3, commitCount: 250, skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.seed, options.skew), func(t *testing.T) {
			t.Parallel()
			g := newHistory(t, options)
			v := viewOf(t, g)
			commits := g.commits()
			r := rand.New(rand.NewPCG(options.seed, 2))
			for range 60 {
				compareWalk(t, g, v, revwalk.WalkOptions{
					Tips:        pick(r, commits, 1+r.IntN(4)),
					Hide:        pick(r, commits, r.IntN(5)),
					Order:       revwalk.Order(r.IntN(3)),
					FirstParent: r.IntN(4) == 0,
					Since:       []int64{0, 0, 1_500_000_000 + r.Int64N(20_000)}[r.IntN(3)],
				})
			}
		})
	}
}

func compareWalk(t *testing.T, g *repository, v *odb.View, options revwalk.WalkOptions) {
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
	want := g.ids(lines("", options.Tips)+lines("^", options.Hide), args...)
	if got := collect(t, v, options); !slices.Equal(got, want) {
		t.Errorf("walk %+v\n got %d: %v\nwant %d: %v", options, len(got), got, len(want), want)
	}
}

func TestMergeBasesAgainstGit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("hundreds of questions to git")
	}
	for _, options := range []historyOptions{
		{seed: 11, commitCount: 150},
		{seed: 12, commitCount: 250, skew: 50_000},
	} {
		g := newHistory(t, options)
		v := viewOf(t, g)
		commits := g.commits()
		r := rand.New(rand.NewPCG(options.seed, 3))
		several := 0
		for range 80 {
			pair := pick(r, commits, 2)
			a, b := pair[0], pair[1]
			got, err := revwalk.MergeBases(t.Context(), v, a, b)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := g.Try(nil, "merge-base", "--all", a.String(), b.String()) // fails for unrelated ones
			if lines("", got) != string(want) {
				t.Errorf("merge bases of %s and %s:\n%swant\n%s", a, b, lines("", got), want)
			}
			if len(got) > 1 {
				several++
			}
			_, err = g.Try(nil, "merge-base", "--is-ancestor", a.String(), b.String())
			ancestor, ancestorErr := revwalk.IsAncestor(t.Context(), v, a, b)
			if ancestorErr != nil {
				t.Fatal(ancestorErr)
			}
			if ancestor != (err == nil) {
				t.Errorf("%s is an ancestor of %s: %v", a, b, ancestor)
			}
			ahead, err := revwalk.Ahead(t.Context(), v, a, b)
			must(t, err)
			behind, err := revwalk.Ahead(t.Context(), v, b, a)
			must(t, err)
			count := g.Git("rev-list", "--left-right", "--count", a.String()+"..."+b.String())
			if got := fmt.Sprintf("%d\t%d", ahead, behind); got != count {
				t.Errorf("%s is ahead and behind %s by %q, want %q", a, b, got, count)
			}
		}
		if several == 0 {
			t.Errorf("seed %d has no criss-cross merges", options.seed)
		}
	}
}
