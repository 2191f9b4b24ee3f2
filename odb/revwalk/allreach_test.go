package revwalk_test

import (
	"errors"
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
