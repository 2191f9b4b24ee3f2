package revwalk_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

func TestMergeBasesAgainstGit(t *testing.T) {
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
		commits := g.Commits()
		r := rand.New(rand.NewPCG(options.Seed, 3))
		several := 0
		for range 80 {
			pair := odbtest.Pick(r, commits, 2)
			a, b := pair[0], pair[1]
			got, err := revwalk.MergeBases(t.Context(), v, a, b)
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
			ancestor, ancestorErr := revwalk.IsAncestor(t.Context(), v, a, b)
			if ancestorErr != nil {
				t.Fatal(ancestorErr)
			}
			if ancestor != (err == nil) {
				t.Errorf("%s is an ancestor of %s: %v", a, b, ancestor)
			}
			ahead, err := revwalk.Ahead(t.Context(), v, a, b)
			odbtest.Must(t, err)
			behind, err := revwalk.Ahead(t.Context(), v, b, a)
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

func TestAllReachAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 21, CommitCount: 60},
		{Seed: 22, CommitCount: 120, Skew: 100_000},
	} {
		g := odbtest.NewHistory(t, options)
		v := odbtest.Clone(t, g.Repository)
		parents, dates := map[object.ID][]object.ID{}, map[object.ID]int{}
		for line := range strings.Lines(g.Git("rev-list", "--all", "--parents", "--timestamp")) {
			date, ids, _ := strings.Cut(strings.TrimSpace(line), " ")
			row := parseIDs(t, ids)
			seconds, err := strconv.Atoi(date)
			odbtest.Must(t, err)
			parents[row[0]], dates[row[0]] = row[1:], seconds
		}
		commits := g.Commits()
		r := rand.New(rand.NewPCG(options.Seed, 4))
		answers, aged := map[bool]int{}, 0
		for range 120 {
			from, targets := odbtest.Pick(r, commits, 1+r.IntN(4)), odbtest.Pick(r, commits, r.IntN(6))
			shallow := odbtest.Pick(r, commits, r.IntN(4))
			counted, oldest := map[object.ID]bool{}, math.MaxInt
			for _, id := range targets {
				counted[id], oldest = true, min(oldest, dates[id])
				for _, parent := range parents[id] {
					counted[parent] = counted[parent] || !slices.Contains(shallow, id)
				}
			}
			// reached follows git's can_all_from_reach_with_flag.
			var reached func(id object.ID, oldest int) bool
			reached = func(id object.ID, oldest int) bool {
				return counted[id] ||
					!slices.Contains(shallow, id) && slices.ContainsFunc(parents[id], func(parent object.ID) bool {
						return counted[parent] || dates[parent] >= oldest && reached(parent, oldest)
					})
			}
			want := !slices.ContainsFunc(from, func(id object.ID) bool { return !reached(id, oldest) })
			if anyhow := !slices.ContainsFunc(from, func(id object.ID) bool { return !reached(id, 0) }); anyhow != want {
				aged++
			}
			got, err := revwalk.AllReach(t.Context(), v, from, targets, shallow)
			if err != nil || got != want {
				t.Errorf("all of %v reach one of %v: %v, %v, want %v", from, targets, got, err, want)
			}
			answers[want]++
		}
		if answers[true] < 5 || answers[false] < 5 || aged == 0 {
			t.Errorf("seed %d: the answers are %v, %d for the age of a commit", options.Seed, answers, aged)
		}
	}
}

func parseIDs(t *testing.T, text string) []object.ID {
	t.Helper()
	var ids []object.ID
	for field := range strings.FieldsSeq(text) {
		id, err := object.ParseID(field)
		odbtest.Must(t, err)
		ids = append(ids, id)
	}
	return ids
}

// Tags count as the objects that they peel to, and objects that peel to no commit are passed over.
func TestAllReachPeels(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 23, CommitCount: 20})
	v := odbtest.Clone(t, g.Repository)
	tip, tag, blob := g.Tips("refs/heads/main"), g.Tips("refs/tags/vv0"), g.Tips("refs/tags/blob")
	tagged := g.IDs("", "rev-parse", "refs/tags/vv0^{commit}")
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
		if got, err := revwalk.AllReach(t.Context(), v, test.from, test.targets, nil); err != nil || got != test.want {
			t.Errorf("%v reach %v: %v, %v", test.from, test.targets, got, err)
		}
	}
	if _, err := revwalk.AllReach(t.Context(), v, []object.ID{{1}}, tip, nil); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("an unknown start: %v", err)
	}
}
