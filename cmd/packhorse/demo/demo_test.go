package demo_test

import (
	"strconv"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/demo"
	"packhorse/fuzz/oracle"
)

// tip is where main ends. Who changes the story changes it here: by mistake it must not change.
const tip = "0aacc7b843d30800123a6087423aa9c3f7355ab1"

// TestMake lets git read the repository, and finds in it what there is to look at.
func TestMake(t *testing.T) {
	t.Parallel()
	made, err := demo.Make()
	if err != nil {
		t.Fatal(err)
	}
	git := oracle.New(t)
	git.Input(made.Pack, "index-pack", "--strict", "--stdin")
	for _, ref := range made.Refs {
		git.Git("update-ref", ref.Name, ref.ID.String())
	}
	git.Git("symbolic-ref", "HEAD", "refs/heads/main")
	if out := git.Git("fsck", "--full", "--strict"); out != "" {
		t.Errorf("fsck says %s", out)
	}
	if got := git.Git("rev-parse", "main"); got != tip {
		t.Errorf("main is at %s, want %s: IDs are the same in all releases", got, tip)
	}
	count := func(args ...string) int {
		t.Helper()
		n, err := strconv.Atoi(git.Git(append([]string{"rev-list", "--count"}, args...)...))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lines := func(args ...string) []string {
		t.Helper()
		return strings.Split(strings.TrimSpace(git.Git(args...)), "\n")
	}
	if n := count("--branches"); n < 30 || n > 99 {
		t.Errorf("%d commits, want some tens", n)
	}
	if n := count("--merges", "main"); n != 1 {
		t.Errorf("%d merges", n)
	}
	if authors := lines("shortlog", "-sn", "--branches"); len(authors) != 4 {
		t.Errorf("authors %q", authors)
	}
	times := lines("log", "--branches", "--author-date-order", "--format=%at")
	last, _ := strconv.Atoi(times[0])
	first, _ := strconv.Atoi(times[len(times)-1])
	if days := (last - first) / (24 * 60 * 60); days < 28 || days > 100 {
		t.Errorf("the history takes %d days, want weeks", days)
	}
	for _, line := range lines("log", "main", "--format=%ct %P", "--date-order") {
		if strings.HasSuffix(line, " ") {
			continue
		}
		fields := strings.Fields(line)
		for _, parent := range fields[1:] {
			if before := git.Git("show", "-s", "--format=%ct", parent); before >= fields[0] {
				t.Errorf("a commit of %s follows one of %s", fields[0], before)
			}
		}
	}
	if kinds := lines("for-each-ref", "--format=%(objecttype)", "refs/tags"); strings.Join(kinds, " ") != "tag tag tag" {
		t.Errorf("tags are %q", kinds)
	}
	if notes := lines("notes", "list"); len(notes) != 3 {
		t.Errorf("notes %q", notes)
	}
	if renamed := git.Git("log", "--follow", "--diff-filter=R", "--name-status", "--format=", "main", "--",
		demo.Script); !strings.Contains(renamed, "kettle.py\t"+demo.Script) {
		t.Errorf("no rename of %s: %q", demo.Script, renamed)
	}
	if binary := git.Git("log", "--numstat", "--format=", "--diff-filter=A", "main", "--", "docs/logo.bmp"); !strings.HasPrefix(
		binary, "-\t-\t") {
		t.Errorf("the logo is not binary: %q", binary)
	}
	if n := len(lines("blame", "--line-porcelain", "main", "--", demo.File)); n < 50 {
		t.Errorf("blame has %d lines", n)
	}
	if _, err := git.Try(nil, "merge-base", "--is-ancestor", demo.Merged, "main"); err != nil {
		t.Errorf("%s is not merged: %v", demo.Merged, err)
	}
	for branch, clean := range map[string]bool{demo.Ahead: true, demo.Conflicting: false} {
		out, err := git.Try(nil, "merge-tree", "--write-tree", "--name-only", "main", branch)
		if (err == nil) != clean || !clean && !strings.Contains(string(out), "\n"+demo.File+"\n") {
			t.Errorf("a merge of %s: %v, %s", branch, err, out)
		}
		if count("main.."+branch) < 2 || count(branch+"..main") == 0 {
			t.Errorf("%s has not diverged from main", branch)
		}
	}
}
