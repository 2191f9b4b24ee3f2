package odb_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

func TestAllReachAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []historyOptions{{seed: 21, commitCount: 60}, {seed: 22, commitCount: 120, skew: 100_000}} {
		g := newHistory(t, options)
		v := viewOf(t, g)
		parents := map[string][]string{}
		for line := range strings.Lines(g.Git("rev-list", "--all", "--parents")) {
			ids := strings.Fields(line)
			parents[ids[0]] = ids[1:]
		}
		commits := g.commits()
		r := rand.New(rand.NewPCG(options.seed, 4))
		answers, cut := map[bool]int{}, filepath.Join(t.TempDir(), "shallow")
		for range 60 {
			from, targets := pick(r, commits, 1+r.IntN(4)), pick(r, commits, r.IntN(6))
			shallow := pick(r, commits, r.IntN(4))
			g.must(os.WriteFile(cut, []byte(lines("", shallow)), 0o600))
			counted := map[string]bool{}
			for _, id := range targets {
				counted[id.String()] = true
				for _, parent := range parents[id.String()] {
					counted[parent] = counted[parent] || !slices.Contains(shallow, id)
				}
			}
			want := !slices.ContainsFunc(from, func(id object.ID) bool {
				return !slices.ContainsFunc(lineList(g.Git("--shallow-file", cut, "rev-list", id.String())), func(id string) bool { return counted[id] })
			})
			got, err := v.AllReach(t.Context(), from, targets, shallow)
			if err != nil || got != want {
				t.Errorf("all of %v reach one of %v: %v, %v, want %v", from, targets, got, err, want)
			}
			answers[want]++
		}
		if answers[true] < 5 || answers[false] < 5 {
			t.Errorf("seed %d: the answers are %v", options.seed, answers)
		}
	}
}

// Tags count as what they lead to, and what leads to no commit is passed over.
func TestAllReachPeels(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 23, commitCount: 20})
	v := viewOf(t, g)
	tip, tag, blob := g.tips("refs/heads/main"), g.tips("refs/tags/vv0"), g.tips("refs/tags/blob")
	tagged := g.ids("", "rev-parse", "refs/tags/vv0^{commit}")
	for _, test := range []struct {
		from, targets []object.ID
		want          bool
	}{
		{tag, tagged, true},
		{tagged, tag, true},
		{blob, tip, true},
		{tip, blob, false},
		{nil, tip, true},
		{tip, nil, false},
		{append(slices.Clone(blob), tag...), tag, true},
	} {
		if got, err := v.AllReach(t.Context(), test.from, test.targets, nil); err != nil || got != test.want {
			t.Errorf("%v reach %v: %v, %v", test.from, test.targets, got, err)
		}
	}
	if _, err := v.AllReach(t.Context(), []object.ID{{1}}, tip, nil); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("an unknown start: %v", err)
	}
}

func lineList(out string) []string { return strings.Split(out, "\n") }
