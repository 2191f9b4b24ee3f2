package grep_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/engine/grep"
	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// query is a search, as git could be asked for it.
type query struct {
	pattern    string
	ignoreCase bool
	paths      []string
	grep.Options
}

// searched prints all pages of a search of a tree as git grep does: "path:number:text" for a match,
// "path-number-text" for context.
func searched(t *testing.T, view *odb.View, root object.ID, q query) string {
	t.Helper()
	var err error
	if q.Pattern, err = grep.Compile(q.pattern, q.ignoreCase); err != nil {
		t.Fatal(err)
	}
	if q.Filter, err = (&pathspec.Spec{Paths: q.paths}).Compile(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for range 10_000 {
		page, err := grep.Search(t.Context(), view, root, q.Options)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Files) > q.FilesMax && q.FilesMax > 0 {
			t.Fatalf("%d files, at most %d", len(page.Files), q.FilesMax)
		}
		count := 0
		for _, f := range page.Files {
			for _, l := range f.Lines {
				count++
				sign := "-"
				if l.Match {
					sign = ":"
				}
				fmt.Fprintf(&out, "%s%s%d%s%s\n", f.Path, sign, l.Number, sign, l.Text)
			}
		}
		if count > q.LinesMax && q.LinesMax > 0 {
			t.Fatalf("%d lines, at most %d", count, q.LinesMax)
		}
		if !page.More {
			return out.String()
		}
		q.From = page.Next
	}
	t.Fatal("the pages do not end")
	return ""
}

// treeOf asks git for the tree of a revision.
func treeOf(t *testing.T, git *oracle.Repository, revision string) object.ID {
	t.Helper()
	id, err := object.ParseID(git.Git("rev-parse", revision+"^{tree}"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// gitGrep asks git for the same lines.
func gitGrep(git *oracle.Repository, ref string, q *query, more ...string) string {
	args := []string{
		"-c", "core.quotePath=false", "grep", "-P", "-I", "-n", "--no-color", fmt.Sprintf("-B%d", q.Before),
		fmt.Sprintf("-A%d", q.After),
	}
	if q.ignoreCase {
		args = append(args, "-i")
	}
	if q.MatchesMax > 0 {
		args = append(args, fmt.Sprintf("-m%d", q.MatchesMax))
	}
	args = append(args, more...)
	args = append(append(args, "-e", q.pattern, ref, "--"), q.paths...)
	printed, _ := git.Try(nil, args...) // fails if nothing matches
	var out strings.Builder
	for line := range strings.Lines(string(printed)) {
		if line != "--\n" { // it stands between lines that do not follow each other
			out.WriteString(strings.TrimPrefix(line, ref+":"))
		}
	}
	return out.String()
}

// firstDifference returns the first line in which two listings differ.
func firstDifference(got, want string) string {
	ours, theirs := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(ours), len(theirs)) {
		if ours[i] != theirs[i] {
			return fmt.Sprintf("line %d: got %.200q, want %.200q", i, ours[i], theirs[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(ours), len(theirs))
}

// What all searches of the tests have seen, of whatever files: all of it, and so little that most
// of it is forgotten again.
var (
	remembered       = grep.NewTrigrams(64 << 20)
	hardlyRemembered = grep.NewTrigrams(16 << 10)
)

// compareGrep holds a search against git's, of each view, without and with what earlier ones saw,
// and returns what git printed.
func compareGrep(t *testing.T, git *oracle.Repository, ref string, q query, views ...*odb.View) string {
	t.Helper()
	root, want := treeOf(t, git, ref), gitGrep(git, ref, &q)
	for _, q.Known = range []*grep.Trigrams{nil, remembered, remembered, hardlyRemembered} {
		for _, view := range views {
			if got := searched(t, view, root, q); got != want {
				t.Errorf("%+v\n%s", q, firstDifference(got, want))
			}
		}
	}
	return want
}

// withTrigrams returns a view with stored trigrams.
func withTrigrams(tb testing.TB, git *oracle.Repository) *odb.View {
	tb.Helper()
	h := odbtest.NewPool(tb, odb.Options{
		Limits: odb.Limits{HotCount: 1}, TrigramBytes: 1, Trigrams: grep.StoredTrigrams,
	})
	h.PushSegment(odbtest.PackAll(git, "--delta-base-offset"))
	h.BuildTrigrams()
	h.Fsck()
	return h.View()
}

// texts is a tree of files with unusual lines.
func texts(git *oracle.Repository) string {
	var index strings.Builder
	add := func(mode, content, path string) {
		id := content
		if mode != "160000" {
			id = git.Write("blob", []byte(content))
		}
		fmt.Fprintf(&index, "%s %s\t%s\n", mode, id, path)
	}
	add("100644", "horse", "no newline")
	add("100644", "\n\nhorse\n\n\n", "empty lines")
	add("100644", "a horse\r\nHORSE\r\nno\r\n", "crlf")
	add("100644", "one\x00horse\n", "binary")
	add("100644", strings.Repeat("line\n", 2000)+"horse\x00horse\nnothing\nhorse\n", "late NUL")
	add("100644", "caf\xe9 horse\n\xff\xfe\nhorse \xc3\xa9\n", "latin")
	add("100755", "#!/bin/horse\n", "run")
	add("120000", "horse", "link")
	add("160000", strings.Repeat("1", 40), "horse")
	add("100644", "", "nothing")
	add("100644", strings.Repeat("x", 200_000)+" horse "+strings.Repeat("y", 100_000)+"\nhorse\n", "long line")
	add("100644", strings.Repeat("a horse of course\nb\nc\nd\n", 40), "sub/many")
	var large strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&large, "line %d of a file of some blocks\n", i)
	}
	add("100644", large.String(), "sub/large")
	git.Git("read-tree", "--empty")
	git.Input([]byte(index.String()), "update-index", "--index-info")
	return git.Git("commit-tree", "-m", "texts", git.Git("write-tree"))
}

// patterns mean the same to RE2 and to PCRE.
var patterns = []string{
	"horse", "horse|mule", "^horse", "horse$", `\bpack\b.*\btree\b`, "o.s", "h[a-o]+e", "(horse )+", "nothing of the kind",
	".", "^$", "^", `\d+5 of`, "x horse y",
	`[^a-z \n]`, "(?i)HORSE", "ho(?i:RSE)", "horse.{0,20}course", `line 9\d{3} `, "a{3,}", `\x{e9}|é`, "k", "s$",
	`(tree|blob) \w+ (saddle|k)`, "horse\nmule", "saddle|stable|blob", "hors",
}

// TestGrepIsGits holds searches against git grep.
func TestGrepIsGits(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Binary: true, Files: 60})
	git.Git("update-ref", "refs/heads/texts", texts(git))
	if _, err := git.Try(nil, "grep", "-P", "-e", "x", "main"); err != nil &&
		!strings.HasSuffix(err.Error(), "status 1: ") {
		t.Skipf("git knows no -P: %v", err)
	}
	view, stored := odbtest.Clone(t, git), withTrigrams(t, git)
	random := rand.New(rand.NewPCG(1, 2))
	for _, pattern := range patterns {
		if strings.Contains(pattern, "\n") {
			continue // two patterns to git
		}
		for _, ref := range []string{"main", "texts"} {
			q := query{pattern: pattern, ignoreCase: random.IntN(3) == 0, Options: grep.Options{FilesMax: 1 + random.IntN(100)}}
			if random.IntN(2) == 0 {
				q.Before, q.After = random.IntN(5), random.IntN(5)
			}
			if random.IntN(3) == 0 {
				q.MatchesMax = 1 + random.IntN(4)
			}
			if random.IntN(3) == 0 {
				q.paths = []string{"d1", "file3.txt", "sub/"}
			}
			t.Run(fmt.Sprintf("%s %q", ref, pattern), func(t *testing.T) {
				t.Parallel()
				compareGrep(t, git, ref, q, view, stored)
			})
		}
	}
}

// TestGrepOfRealTrees does the same with the newest tree of the repository in PACKHORSE_REAL_REPO.
func TestGrepOfRealTrees(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	view, stored := odbtest.Clone(t, git), withTrigrams(t, git)
	head := git.Git("rev-list", "--max-count=1", "--branches")
	for i, pattern := range []string{
		"TODO", "static void [a-z]+\\(", "(?i)fixme|xxx", "^#include <sys/", "return -1;$", "\\bint\\b.*=.*0x[0-9a-f]{2,}",
		"[[:upper:]]{12,}", "malloc|calloc|realloc", "struct",
	} {
		q := query{pattern: pattern, ignoreCase: i%2 == 1, Options: grep.Options{FilesMax: 100, Before: i % 3, After: i % 4}}
		t.Logf("%q: %d lines", pattern, strings.Count(compareGrep(t, git, head, q, view, stored), "\n"))
	}
}

// TestGrepPages reads the same search in pages of every size.
func TestGrepPages(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Git("update-ref", "refs/heads/main", texts(git))
	view := odbtest.Clone(t, git)
	root := treeOf(t, git, "main")
	for _, whole := range []query{
		{pattern: "horse"},
		{pattern: "horse", Options: grep.Options{Before: 2, After: 1}},
		{pattern: "horse", Options: grep.Options{After: 3, MatchesMax: 7}},
		{pattern: "course", Options: grep.Options{Before: 5, After: 5}},
	} {
		want := searched(t, view, root, whole)
		for _, bound := range []int{1, 2, 3, 7, 50} {
			page := whole
			page.LinesMax = bound
			if got := searched(t, view, root, page); got != want {
				t.Errorf("%+v: %s", page, firstDifference(got, want))
			}
			page.LinesMax, page.FilesMax = 0, bound
			if got := searched(t, view, root, page); got != want {
				t.Errorf("%+v: %s", page, firstDifference(got, want))
			}
		}
	}
}

// TestGrepLargeFile searches a file that is not held in memory, with context across its blocks.
func TestGrepLargeFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it is slow")
	}
	var content, want strings.Builder
	for i := 1; content.Len() < 34<<20; i++ {
		text := fmt.Sprintf("%07d %s", i, strings.Repeat("-", 5000))
		fmt.Fprintf(&content, "%s\n", text)
		switch i % 1000 {
		case 998, 999, 1:
			if i > 1 {
				fmt.Fprintf(&want, "large-%d-%s\n", i, text)
			}
		case 0:
			fmt.Fprintf(&want, "large:%d:%s\n", i, text)
		}
	}
	want.WriteString("small:1:0001000\n")
	var stream bytes.Buffer
	stream.WriteString("commit refs/heads/main\ncommitter C <c@d> 1700000000 +0000\ndata 0\n")
	fmt.Fprintf(&stream, "M 100644 inline large\ndata %d\n%s\nM 100644 inline small\ndata 8\n0001000\n\ndone\n",
		content.Len(), content.String())
	git := oracle.New(t)
	git.Input(stream.Bytes(), "fast-import", "--quiet", "--done")
	q := query{pattern: `^\d{4}000\b`, Options: grep.Options{Before: 2, After: 1}}
	got := searched(t, odbtest.Clone(t, git), treeOf(t, git, "main"), q)
	wanted := want.String()
	if cut := strings.Count(content.String(), "\n") % 1000; cut >= 998 {
		t.Fatalf("the file ends with %d lines of context", cut)
	}
	if got != wanted {
		t.Error(firstDifference(got, wanted))
	}
}
