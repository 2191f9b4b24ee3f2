package fuzz

import (
	"os"
	"strconv"
	"testing"
)

// TestDiffsOfRepository compares our diffs with git's, for the repository in the folder PACKHORSE_DIFF_REPO: the newest commits of its
// branches, as many as PACKHORSE_DIFF_COMMITS says, or all.
func TestDiffsOfRepository(t *testing.T) {
	dir := os.Getenv("PACKHORSE_DIFF_REPO")
	if dir == "" {
		t.Skip("PACKHORSE_DIFF_REPO names no repository")
	}
	count, err := strconv.Atoi(os.Getenv("PACKHORSE_DIFF_COMMITS"))
	if err != nil {
		count = 1 << 30
	}
	w := newPatchWorld(t, dir)
	steps := stepsOf(t, dir, count)
	git := openDiffStream(t, dir, steps, "-M", "--raw", "--no-abbrev")
	bad := 0
	for i, s := range steps {
		var following *step
		if i+1 < len(steps) {
			following = &steps[i+1]
		}
		want := string(git.answer(s, following))
		if got := rawDiff(t, w.view, s); got != want {
			bad++
			if bad < 10 {
				t.Errorf("%s %s\ngot  %s\nwant %s", s.before, s.after, got, want)
			}
		}
	}
	git.close()
	t.Logf("%d steps, %d differ", len(steps), bad)
}
