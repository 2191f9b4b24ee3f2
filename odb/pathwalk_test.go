package odb_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

func collectPath(t *testing.T, v *odb.View, tips []object.ID, path string) []object.ID {
	t.Helper()
	var ids []object.ID
	for commit, err := range revwalk.WalkPath(t.Context(), v, tips, path) {
		must(t, err)
		ids = append(ids, commit.ID)
	}
	return ids
}

// paths returns every file and folder of a commit.
func (g *repository) paths(commit object.ID) []string {
	g.tb.Helper()
	out := g.Input(nil, "ls-tree", "-r", "-t", "-z", "--name-only", commit.String())
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

// comparePath compares a walk with git rev-list and git log, which agree.
func comparePath(t *testing.T, g *repository, v *odb.View, tips []object.ID, path string) int {
	t.Helper()
	got := collectPath(t, v, tips, path)
	for _, args := range [][]string{{"rev-list", "--stdin"}, {"log", "--format=%H", "--stdin"}} {
		want := g.ids(lines("", tips)+"--\n"+path+"\n",
			append([]string{"-c", "core.commitGraph=false", "--literal-pathspecs"}, args...)...)
		if !slices.Equal(got, want) {
			t.Errorf("%s of %s from %v:\n got %d: %v\nwant %d: %v", args[0], path, tips, len(got), got, len(want), want)
		}
	}
	return len(got)
}

func TestWalkPathAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []historyOptions{
		{seed: 51, commitCount: 120},
		{seed: 52, commitCount: 250, skew: 3000},
		{seed: 53, commitCount: 250, skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.seed, options.skew), func(t *testing.T) {
			t.Parallel()
			g := newHistory(t, options)
			plain := viewOf(t, g)
			h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
			h.pushPack(g, lines("", g.tips()))
			must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
			h.fsck()
			filtered := h.view()
			commits := g.commits()
			r := rand.New(rand.NewPCG(options.seed, 3))
			given := 0
			for range 60 {
				tips := pick(r, commits, 1+r.IntN(3))
				path := "not there/at all"
				if paths := g.paths(pick(r, commits, 1)[0]); len(paths) > 0 && r.IntN(20) > 0 {
					path = paths[r.IntN(len(paths))]
				}
				given += comparePath(t, g, plain, tips, path)
				comparePath(t, g, filtered, tips, path)
			}
			if given == 0 {
				t.Error("no path was ever changed")
			}
		})
	}
}

// TestWalkPathOfRealRepository is TestWalkPathAgainstGit on the repository that PACKHORSE_REAL_REPO
// names, with filters if PACKHORSE_FILTERS is set.
func TestWalkPathOfRealRepository(t *testing.T) {
	g, h := realWithFilters(t)
	v := h.view()
	tip := g.ids("", "rev-parse", "HEAD")
	paths := g.paths(tip[0])
	r := rand.New(rand.NewPCG(2, 6))
	for range 12 {
		path := paths[r.IntN(len(paths))]
		t.Logf("%s: %d commits", path, comparePath(t, g, v, tip, path))
	}
}

// realWithFilters pushes a real history, and makes filters of it if PACKHORSE_FILTERS is set.
func realWithFilters(t *testing.T) (*repository, *ingestHost) {
	t.Helper()
	g := &repository{Repository: oracle.Real(t), tb: t}
	h := newIngestHost(t, odb.Options{})
	h.pushPack(g, lines("", g.tips("refs/heads", "refs/tags")))
	if os.Getenv("PACKHORSE_FILTERS") != "" {
		must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
	}
	return g, h
}
