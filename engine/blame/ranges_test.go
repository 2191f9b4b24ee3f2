package blame_test

import (
	"fmt"
	"strings"
	"testing"

	"packhorse/engine/blame"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// blameRanges are ranges of lines in forms of git blame -L, good and bad ones, for rangedFile.
var blameRanges = [][]string{
	{"1"},
	{"5"},
	{"23"},
	{"24"},
	{"0"},
	{"-1"},
	{"+3"},
	{" 4"},
	{""},
	{","},
	{",4"},
	{"4,"},
	{"2,5"},
	{"5,2"},
	{"2,+3"},
	{"9,-3"},
	{"2,-9"},
	{"2,+0"},
	{"2,0"},
	{"22,99"},
	{",+5"},
	{",-5"},
	{"2,x"},
	{"x"},
	{"2 3"},
	{"2,3,4"},
	{"99999999999999999999"},
	{"/two/"},
	{"/two/,+2"},
	{"/two/,/}/"},
	{"/two/,4"},
	{"/nothing/"},
	{"/two"},
	{`/a\/b/`},
	{"^/func/,+1"},
	{"8,/^}/"},
	{"5,8", "/func/,+1"},
	{"5,8", "^/func/,+1"},
	{"2,3", "3,4", "12,+1"},
	{"12,14", "2,3"},
	{"22,23", "/x/"},
	{"22,23", "1"},
	{":one"},
	{":two"},
	{"^:one"},
	{":nothing"},
	{":"},
	{":one:"},
	{":one,3"},
	{"5,6", ":func"},
	{":l.st"},
	{":_under"},
	{`:a\:b`},
	{":x"},
	{`/f\(un\)c two/`},
	{`/fu*nc/`},
	{`/^*star/`},
	{`/*star/`},
	{`/two|one/`},
	{`/two\|one/`},
	{"/(a)/"},
	{`/x\{2\}/`},
	{`/x\{3,\}/`},
	{`/x\{,1\}y/`},
	{"/x{2}/"},
	{"/a+b/"},
	{`/a\+b/`},
	{`/a?b/`},
	{"/[a/b]/"},
	{`/[\]/`},
	{"/[]]/"},
	{"/[^a-z]x/"},
	{"/[[:digit:]]\\+/"},
	{"/a$/"},
	{"/a$b/"},
	{"/a^b/"},
	{`/\bone\b/`},
	{`/\<one\>/`},
	{`/\w\+ \s*b/`},
	{"/./"},
	{"/^$/"},
	{`/\(/`},
	{"/[/"},
	{`/\(^func\)/`},
	{`/\(one\|two$\)/`},
	{`/x\{9/`},
	{`/\./`},
}

// rangedFile is the file of the range tests.
const rangedFile = `#include
func one() {
	x := a/b
}

func two() {
	xx xxx y
	a+b aab
	*star (a)
}

_under score
	x{2} a?b
	9 a
	a$b a^b
$dollar
last a:b .
	[ab] \
	]
	some b
	one|two
	ümlaut
xxy`

// newRanged stores rangedFile, most of whose lines are of the first of two commits, as "file", and
// "empty" beside it. It returns the tip too.
func newRanged(tb testing.TB) (git *oracle.Repository, view *odb.View, tip string) {
	tb.Helper()
	git = oracle.New(tb)
	var stream strings.Builder
	for i, content := range []string{strings.Replace(rangedFile, "xx xxx y", "old", 1), rangedFile} {
		fmt.Fprintf(&stream,
			"commit refs/heads/main\ncommitter C <c@d> %d +0000\ndata 1\nm\nM 100644 inline file\ndata %d\n%s\n",
			1_700_000_000+i, len(content), content)
		stream.WriteString("M 100644 inline empty\ndata 0\n\n")
	}
	stream.WriteString("done\n")
	git.Input([]byte(stream.String()), "fast-import", "--quiet", "--done")
	return git, odbtest.Clone(tb, git), git.Git("rev-parse", "main")
}

// TestBlameRangesAgainstGit holds that each range selects the lines that it selects to git, and is
// refused where git refuses it.
func TestBlameRangesAgainstGit(t *testing.T) {
	t.Parallel()
	git, view, tip := newRanged(t)
	for _, ranges := range blameRanges {
		compareBlame(t, git, view, tip, "file", blame.Options{Ranges: ranges})
		compareBlame(t, git, view, tip, "empty", blame.Options{Ranges: ranges})
	}
	compareBlame(t, git, view, tip, "empty", blame.Options{})
}

// TestBlameRangesBeyondRE2 holds that patterns which git takes and RE2 cannot say are refused.
func TestBlameRangesBeyondRE2(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Input([]byte(
		"commit refs/heads/main\ncommitter C <c@d> 1700000000 +0000\ndata 0\nM 100644 inline file\ndata 5\na aa\n\ndone\n",
	), "fast-import", "--quiet", "--done")
	view := odbtest.Clone(t, git)
	tip := git.Git("rev-parse", "main")
	for _, pattern := range []string{`/\(a\)\1/`, `/[[=a=]]/`, `/[[.a.]]/`, `/\<\(a\)/`, `/\(a\)\>/`} {
		o := blame.Options{Ranges: []string{pattern}}
		if _, ok := theirBlame(t, git, tip, "file", o); !ok {
			t.Errorf("git refuses %s", pattern)
		}
		if _, ok := ourBlame(t, view, tip, "file", o); ok {
			t.Errorf("%s is accepted", pattern)
		}
	}
}
