package revwalk_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

func collectPath(t *testing.T, v *odb.View, tips []object.ID, path string) []object.ID {
	t.Helper()
	var ids []object.ID
	for commit, err := range revwalk.WalkPath(t.Context(), v, tips, path) {
		odbtest.Must(t, err)
		ids = append(ids, commit.ID)
	}
	return ids
}

// paths returns every file and folder of a commit.
func paths(t *testing.T, g *odbtest.Repository, commit object.ID) []string {
	t.Helper()
	out := g.Input(nil, "ls-tree", "-r", "-t", "-z", "--name-only", commit.String())
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

// comparePath compares a walk with git rev-list and git log, which agree.
func comparePath(t *testing.T, g *odbtest.Repository, v *odb.View, tips []object.ID, path string) int {
	t.Helper()
	got := collectPath(t, v, tips, path)
	for _, args := range [][]string{{"rev-list", "--stdin"}, {"log", "--format=%H", "--stdin"}} {
		want := g.IDs(odbtest.Lines("", tips)+"--\n"+path+"\n",
			append([]string{"-c", "core.commitGraph=false", "--literal-pathspecs"}, args...)...)
		if !slices.Equal(got, want) {
			t.Errorf("%s of %s from %v:\n got %d: %v\nwant %d: %v", args[0], path, tips, len(got), got, len(want), want)
		}
	}
	return len(got)
}

func TestWalkPathAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 51, CommitCount: 120},
		{Seed: 52, CommitCount: 250, Skew: 3000},
		{Seed: 53, CommitCount: 250, Skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.Seed, options.Skew), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, options)
			plain := odbtest.Clone(t, g.Repository)
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}, HistoryCommits: 5})
			h.PushGit(g, odbtest.Lines("", g.Tips()))
			h.BuildFilters()
			filtered := h.View()
			h.BuildHistories()
			h.Fsck()
			withHistories := h.View()
			commits := g.Commits()
			r := rand.New(rand.NewPCG(options.Seed, 3))
			given := 0
			for range 60 {
				tips := odbtest.Pick(r, commits, 1+r.IntN(3))
				path := "not there/at all"
				if paths := paths(t, g, odbtest.Pick(r, commits, 1)[0]); len(paths) > 0 && r.IntN(20) > 0 {
					path = paths[r.IntN(len(paths))]
				}
				given += comparePath(t, g, plain, tips, path)
				comparePath(t, g, filtered, tips, path)
				comparePath(t, g, withHistories, tips, path)
			}
			if given == 0 {
				t.Error("no path was ever changed")
			}
		})
	}
}

// TestWalkPathOfRealRepository is TestWalkPathAgainstGit on the repository that PACKHORSE_REAL_REPO
// names, with filters and path histories if PACKHORSE_FILTERS is set.
func TestWalkPathOfRealRepository(t *testing.T) {
	g, h := realWithFilters(t)
	v := h.View()
	tip := g.IDs("", "rev-parse", "HEAD")
	paths := paths(t, g, tip[0])
	r := rand.New(rand.NewPCG(2, 6))
	for range 12 {
		path := paths[r.IntN(len(paths))]
		t.Logf("%s: %d commits", path, comparePath(t, g, v, tip, path))
	}
}

// realWithFilters pushes a real history, and builds filters and path histories of it if
// PACKHORSE_FILTERS is set.
func realWithFilters(t *testing.T) (*odbtest.Repository, *odbtest.Pool) {
	t.Helper()
	g := odbtest.RepositoryOf(t, oracle.Real(t))
	h := odbtest.NewPool(t, odb.Options{})
	h.PushGit(g, odbtest.Lines("", g.Tips("refs/heads", "refs/tags")))
	if os.Getenv("PACKHORSE_FILTERS") != "" {
		h.BuildFilters()
		h.BuildHistories()
	}
	return g, h
}
