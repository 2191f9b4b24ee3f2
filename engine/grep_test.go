package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/grep"
	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// searched tells all pages of a search as git grep does: "path:number:text" for a match, "path-number-text" for context.
func searched(t *testing.T, repo *engine.Repository, request engine.GrepRequest) string {
	t.Helper()
	var out strings.Builder
	for range 10_000 {
		page, err := repo.Grep(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Files) > request.FilesMax && request.FilesMax > 0 {
			t.Fatalf("%d files, at most %d", len(page.Files), request.FilesMax)
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
		if count > request.LinesMax && request.LinesMax > 0 {
			t.Fatalf("%d lines, at most %d", count, request.LinesMax)
		}
		if page.Next == "" {
			return out.String()
		}
		request.Cursor = page.Next
	}
	t.Fatal("the pages do not end")
	return ""
}

// gitGrep asks git for the same lines.
func gitGrep(git *oracle.Repository, ref string, request *engine.GrepRequest, more ...string) string {
	args := []string{
		"-c", "core.quotePath=false", "grep", "-P", "-I", "-n", "--no-color", fmt.Sprintf("-B%d", request.Before), fmt.Sprintf("-A%d", request.After),
	}
	if request.IgnoreCase {
		args = append(args, "-i")
	}
	if request.MatchesMax > 0 {
		args = append(args, fmt.Sprintf("-m%d", request.MatchesMax))
	}
	args = append(args, more...)
	args = append(append(args, "-e", request.Pattern, ref, "--"), request.Files.Paths...)
	printed, _ := git.Try(nil, args...) // fails if nothing matches
	var out strings.Builder
	for line := range strings.Lines(string(printed)) {
		if line != "--\n" { // it stands between lines that do not follow each other
			out.WriteString(strings.TrimPrefix(line, ref+":"))
		}
	}
	return out.String()
}

// firstDifference tells the first line in which two listings differ.
func firstDifference(got, want string) string {
	ours, theirs := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(ours), len(theirs)) {
		if ours[i] != theirs[i] {
			return fmt.Sprintf("line %d: got %.200q, want %.200q", i, ours[i], theirs[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(ours), len(theirs))
}

// texts is a tree of files that are hard to tell lines of.
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
	"horse", "horse|mule", "^horse", "horse$", `\bpack\b.*\btree\b`, "o.s", "h[a-o]+e", "(horse )+", "nothing of the kind", ".", "^$", "^", `\d+5 of`, "x horse y",
	`[^a-z \n]`, "(?i)HORSE", "ho(?i:RSE)", "horse.{0,20}course", `line 9\d{3} `, "a{3,}", `\x{e9}|é`, "k", "s$", `(tree|blob) \w+ (saddle|k)`, "horse\nmule",
}

// TestGrepIsGits holds searches against git grep.
func TestGrepIsGits(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Binary: true, Files: 60})
	git.Git("update-ref", "refs/heads/texts", texts(git))
	if _, err := git.Try(nil, "grep", "-P", "-e", "x", "main"); err != nil && !strings.HasSuffix(err.Error(), "status 1: ") {
		t.Skipf("git knows no -P: %v", err)
	}
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	random := rand.New(rand.NewPCG(1, 2))
	for _, pattern := range patterns {
		if strings.Contains(pattern, "\n") {
			continue // two patterns to git
		}
		for _, ref := range []string{"main", "texts"} {
			request := engine.GrepRequest{Ref: ref, Pattern: pattern, IgnoreCase: random.IntN(3) == 0, FilesMax: 1 + random.IntN(100)}
			if random.IntN(2) == 0 {
				request.Before, request.After = random.IntN(5), random.IntN(5)
			}
			if random.IntN(3) == 0 {
				request.MatchesMax = 1 + random.IntN(4)
			}
			if random.IntN(3) == 0 {
				request.Files.Paths = []string{"d1", "file3.txt", "sub/"}
			}
			t.Run(fmt.Sprintf("%s %q", ref, pattern), func(t *testing.T) {
				t.Parallel()
				got, want := searched(t, repo, request), gitGrep(git, ref, &request)
				if got != want {
					t.Errorf("%+v\n%s", request, firstDifference(got, want))
				}
			})
		}
	}
}

// TestGrepOfRealTrees does the same with the newest tree of the repository in PACKHORSE_REAL_REPO.
func TestGrepOfRealTrees(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	head := git.Git("rev-parse", "HEAD")
	for i, pattern := range []string{
		"TODO", "static void [a-z]+\\(", "(?i)fixme|xxx", "^#include <sys/", "return -1;$", "\\bint\\b.*=.*0x[0-9a-f]{2,}", "[[:upper:]]{12,}", "malloc|calloc|realloc", "struct",
	} {
		request := engine.GrepRequest{Ref: head, Pattern: pattern, FilesMax: 100, Before: i % 3, After: i % 4, IgnoreCase: i%2 == 1}
		got, want := searched(t, repo, request), gitGrep(git, head, &request)
		if got != want {
			t.Errorf("%q: %s", pattern, firstDifference(got, want))
		}
		t.Logf("%q: %d lines", pattern, strings.Count(got, "\n"))
	}
}

// TestGrepPages reads the same search in pages of every size.
func TestGrepPages(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Git("update-ref", "refs/heads/main", texts(git))
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	for _, whole := range []engine.GrepRequest{
		{Pattern: "horse"}, {Pattern: "horse", Before: 2, After: 1}, {Pattern: "horse", After: 3, MatchesMax: 7}, {Pattern: "course", Before: 5, After: 5},
	} {
		want := searched(t, repo, whole)
		for _, bound := range []int{1, 2, 3, 7, 50} {
			page := whole
			page.LinesMax = bound
			if got := searched(t, repo, page); got != want {
				t.Errorf("%+v: %s", page, firstDifference(got, want))
			}
			page.LinesMax, page.FilesMax = 0, bound
			if got := searched(t, repo, page); got != want {
				t.Errorf("%+v: %s", page, firstDifference(got, want))
			}
		}
	}
}

// A search goes on in the commit that it began with, and its cursor is of no other search.
func TestGrepCursor(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	if _, err := upload(repo, acme, main, change{path: "a", content: "x\n"}, change{path: "b", content: "x\n"}); err != nil {
		t.Fatal(err)
	}
	request := engine.GrepRequest{Pattern: "x", FilesMax: 1}
	first, err := repo.Grep(t.Context(), request)
	if err != nil || first.Next == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := upload(repo, acme, main, change{path: "b", content: "gone\n"}, change{path: "c", content: "x\n"}); err != nil {
		t.Fatal(err)
	}
	request.Cursor = first.Next
	second, err := repo.Grep(t.Context(), request)
	if err != nil || second.Next != "" || len(second.Files) != 1 || second.Files[0].Path != "b" || second.Revision.Commit != first.Revision.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	for name, other := range map[string]engine.GrepRequest{
		"pattern":   {Pattern: "y", Cursor: first.Next},
		"case":      {Pattern: "x", IgnoreCase: true, Cursor: first.Next},
		"files":     {Pattern: "x", Files: pathspec.Spec{Paths: []string{"b"}}, Cursor: first.Next},
		"context":   {Pattern: "x", After: 1, Cursor: first.Next},
		"nonsense":  {Pattern: "x", Cursor: "nonsense"},
		"truncated": {Pattern: "x", Cursor: first.Next[:30]},
	} {
		if _, err := repo.Grep(t.Context(), other); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// TestGrepLargeFile searches a file that is not held in memory, with context across its blocks.
func TestGrepLargeFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it is slow")
	}
	repo := enginetest.Create(t, enginetest.Open(t), "r")
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
	// Compressed on its own, so that it is no delta.
	if _, err := upload(repo, acme, main, change{path: "large", content: content.String()}, change{path: "small", content: "0001000\n"}); err != nil {
		t.Fatal(err)
	}
	got := searched(t, repo, engine.GrepRequest{Pattern: `^\d{4}000\b`, Before: 2, After: 1})
	wanted := want.String()
	if cut := strings.Count(content.String(), "\n") % 1000; cut >= 998 {
		t.Fatalf("the file ends with %d lines of context", cut)
	}
	if got != wanted {
		t.Error(firstDifference(got, wanted))
	}
}

func TestGrepRefuses(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	if _, err := upload(repo, acme, main, change{path: "a", content: strings.Repeat("ab", 1<<20)}, change{path: "l", content: "a", mode: object.ModeSymlink}); err != nil {
		t.Fatal(err)
	}
	for pattern, kind := range map[string]error{
		"(": grep.ErrPattern, `\1`: grep.ErrPattern, "(?<=a)b": grep.ErrPattern, "a{1001}": grep.ErrPattern, "((a{100}){10}b?){9}": grep.ErrPattern,
		strings.Repeat("a", 5000): grep.ErrPattern, "[a-z]{1000}|[0-9]{1000}": nil,
	} {
		if _, err := repo.Grep(t.Context(), engine.GrepRequest{Pattern: pattern}); !errors.Is(err, kind) {
			t.Errorf("%.40q: %v", pattern, err)
		}
	}
	if _, err := repo.Grep(t.Context(), engine.GrepRequest{Pattern: "a", Ref: "nope"}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no such ref: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := repo.Grep(ended, engine.GrepRequest{Pattern: "b.*c"}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}
