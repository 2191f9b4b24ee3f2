// Package patchtest holds ways to apply patches against git apply --cached, on patches of histories
// and on mutated ones.
//
// A way is an [Apply]. Start at [Histories] and [Mutations].
package patchtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine/commit"
	"packhorse/engine/patch"
	"packhorse/fuzz/oracle"
)

// Verdict is what becomes of a patch: the tree that it makes, or why it makes none.
type Verdict struct {
	Tree    string
	Refusal string
	Err     error // ours, where it was more than a rejection
}

// Apply applies a patch to a tree in one of our ways.
type Apply func(tb testing.TB, text []byte, base string) Verdict

// Index is an index of git's that patches are applied to, with a place for the objects that they
// make.
type Index struct {
	git  *oracle.Repository // which is not written to
	dir  string
	base string // the tree that the index file "base" holds
}

// NewIndex makes an index for the objects of a repository.
func NewIndex(tb testing.TB, git *oracle.Repository) *Index {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range []string{"objects/info", "objects/pack"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return &Index{git: git, dir: dir}
}

// IsCanonical reports whether git would write a tree and the folders in it as they are stored.
// Trees of old tools have modes with zeros in front, for example.
func (x *Index) IsCanonical(tb testing.TB, root string) bool {
	tb.Helper()
	git := func(stdin []byte, args ...string) string {
		out, stderr, ok := x.run(tb, "base", stdin, args...)
		if !ok {
			tb.Fatalf("git %s: %s", strings.Join(args, " "), stderr)
		}
		return out
	}
	for tree := range strings.FieldsSeq(root + "\n" + git(nil, "ls-tree", "-r", "-d", "--object-only", root)) {
		if git([]byte(git(nil, "ls-tree", tree)), "mktree", "--missing") != tree {
			return false
		}
	}
	return true
}

// run runs git on an index file and returns its output, its messages, and whether it succeeded.
func (x *Index) run(tb testing.TB, index string, stdin []byte, args ...string) (stdout, stderr string, ok bool) {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(oracle.Env(x.git.Dir),
		"GIT_INDEX_FILE="+filepath.Join(x.dir, index),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(x.dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+filepath.Join(x.git.Dir, "objects"))
	cmd.Stdin = bytes.NewReader(stdin)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return strings.TrimSpace(out.String()), complaints.String(), err == nil
}

// Apply applies a patch to a tree with git, and returns git's messages, too.
func (x *Index) Apply(tb testing.TB, text []byte, base string) (v Verdict, stderr string) {
	tb.Helper()
	if x.base != base {
		if _, stderr, ok := x.run(tb, "base", nil, "read-tree", base); !ok {
			tb.Fatalf("git read-tree %s: %s", base, stderr)
		}
		x.base = base
	}
	saved, err := os.ReadFile(filepath.Join(x.dir, "base"))
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "index"), saved, 0o600); err != nil {
		tb.Fatal(err)
	}
	_ = os.Remove(filepath.Join(x.dir, "index.lock")) // git leaves it when it dies of a patch
	_, stderr, ok := x.run(tb, "index", text, "apply", "--cached", "--binary", "-")
	if !ok {
		return Verdict{Refusal: cmp.Or(stderr, "refused")}, stderr
	}
	tree, complaint, ok := x.run(tb, "index", nil, "write-tree", "--missing-ok")
	if !ok {
		tb.Fatalf("git write-tree: %s", complaint)
	}
	return Verdict{Tree: tree}, stderr
}

// deliberate names the difference from git that package patch documents, "" if two verdicts differ
// for no such reason.
func deliberate(ours, theirs Verdict, stderr string) string {
	switch {
	case ours.Tree != "" || theirs.Tree == "":
		return ""
	case errors.Is(ours.Err, patch.ErrMalformed) &&
		(strings.Contains(stderr, "corrupt binary patch") || strings.Contains(stderr, "unrecognized binary patch")):
		return "git drops what follows an unreadable binary part"
	case errors.Is(ours.Err, commit.ErrInvalid):
		return "a path that git fsck refuses"
	case strings.Contains(ours.Refusal, "is the mode of a folder"):
		return "a file with the mode of a folder"
	}
	return ""
}

// compare applies a patch both ways and reports a difference, "" if there is none; accepted is
// git's verdict.
func (x *Index) compare(
	tb testing.TB, apply Apply, text []byte, base string,
) (difference, reason string, accepted bool) {
	tb.Helper()
	ours := apply(tb, text, base)
	theirs, stderr := x.Apply(tb, text, base)
	if ours.Tree == theirs.Tree {
		return "", "", theirs.Tree != ""
	}
	if reason := deliberate(ours, theirs, stderr); reason != "" {
		return "", reason, true
	}
	return fmt.Sprintf("ours: %s %s\ngit: %s %s\nstderr: %s\nbase %s", ours.Tree, ours.Refusal, theirs.Tree,
		theirs.Refusal, stderr, base), "", theirs.Tree != ""
}
