package fuzz

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/engine/patch"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack/object"
)

// patchWorld holds the objects of one repository twice: for git, and in a pool of ours.
type patchWorld struct {
	dir  string // of git's repository, which is not written to
	host *engine.Host
	view *odb.View
}

// patchRepo is the name of the repository of a patchWorld.
const patchRepo = "patches"

// newPatchWorld reads all that the branches of the repository in dir reach.
func newPatchWorld(tb testing.TB, dir string) *patchWorld {
	tb.Helper()
	git := oracle.Open(tb, dir)
	tip := git.Git("rev-list", "--max-count=1", "--branches")
	branches := git.Git("for-each-ref", "--format=%(objectname)", "refs/heads")
	packed := git.Input([]byte(branches+"\n"), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	host := enginetest.Open(tb)
	repo := enginetest.Create(tb, host, patchRepo)
	ctx := context.Background()
	id, err := object.ParseID(tip)
	if err != nil {
		tb.Fatal(err)
	}
	push, err := repo.Receive(ctx, engine.Actor{Org: enginetest.Org, Subject: "test"}, engine.PushRequest{
		Commands: []engine.Command{{Name: "refs/heads/main", New: id}},
		Pack:     bytes.NewReader(packed),
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer push.Close()
	result, err := push.Finish(ctx, func(string) {})
	if err = errors.Join(err, result.Unpack); err != nil {
		tb.Fatal(err)
	}
	view, err := repo.Objects(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = view.Close() })
	return &patchWorld{dir: dir, host: host, view: view}
}

// verdict is what becomes of a patch: the tree that it makes, or why it makes none.
type verdict struct {
	tree    string
	refusal string
	err     error // ours, where it was more than a rejection
}

// ours applies a patch to a tree with package patch and the API's way to write trees.
func (w *patchWorld) ours(tb testing.TB, text []byte, base string) verdict {
	tb.Helper()
	ctx := context.Background()
	root, err := object.ParseID(base)
	if err != nil {
		tb.Fatal(err)
	}
	q := w.view.NewQuarantine(ctx)
	defer q.Close()
	p, err := patch.Parse(ctx, bytes.NewReader(text), int64(len(text)), patch.Limits{})
	if err != nil {
		return verdict{refusal: err.Error(), err: err}
	}
	outcome, err := p.Apply(ctx, q, root)
	if err != nil {
		tb.Fatalf("apply: %v\n%s", err, text)
	}
	if outcome.Rejected != nil {
		return verdict{refusal: outcome.Rejected.String()}
	}
	operations := make([]commit.Operation, len(outcome.Changes))
	for i, c := range outcome.Changes {
		operations[i] = commit.Operation{Path: c.Path, Delete: c.Remove, Mode: c.Mode, Content: c.ID}
	}
	plan, err := commit.NewPlan(operations)
	if err != nil {
		return verdict{refusal: err.Error(), err: err}
	}
	tree, err := plan.Apply(ctx, q, root)
	if err != nil {
		tb.Fatalf("write trees: %v\n%s", err, text)
	}
	return verdict{tree: tree.String()}
}

// gitIndex is an index of git's that patches are applied to, with a place for the objects that they make.
type gitIndex struct {
	world *patchWorld
	dir   string
	base  string // the tree that the index file "base" holds
}

func (w *patchWorld) newIndex(tb testing.TB) *gitIndex {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range []string{"objects/info", "objects/pack"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return &gitIndex{world: w, dir: dir}
}

// run runs git on an index file and returns what it prints, its complaints, and whether it was content.
func (x *gitIndex) run(tb testing.TB, index string, stdin []byte, args ...string) (stdout, stderr string, ok bool) {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(oracle.Env(x.world.dir),
		"GIT_INDEX_FILE="+filepath.Join(x.dir, index),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(x.dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+filepath.Join(x.world.dir, "objects"))
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

// theirs applies a patch to a tree with git.
func (x *gitIndex) theirs(tb testing.TB, text []byte, base string) (v verdict, stderr string) {
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
		return verdict{refusal: cmp.Or(stderr, "refused")}, stderr
	}
	tree, complaint, ok := x.run(tb, "index", nil, "write-tree", "--missing-ok")
	if !ok {
		tb.Fatalf("git write-tree: %s", complaint)
	}
	return verdict{tree: tree}, stderr
}

// deliberate names the difference from git that package patch documents, "" if two verdicts differ for no such reason.
func deliberate(ours, theirs verdict, stderr string) string {
	switch {
	case ours.tree != "" || theirs.tree == "":
		return ""
	case errors.Is(ours.err, patch.ErrMalformed) && (strings.Contains(stderr, "corrupt binary patch") || strings.Contains(stderr, "unrecognized binary patch")):
		return "git drops what follows an unreadable binary part"
	case errors.Is(ours.err, commit.ErrInvalid):
		return "a path that git fsck refuses"
	case strings.Contains(ours.refusal, "is the mode of a folder"):
		return "a file with the mode of a folder"
	}
	return ""
}

// apply applies a patch to a tree in one of our ways.
type apply func(tb testing.TB, text []byte, base string) verdict

// compare applies a patch both ways and reports a difference, "" if there is none; accepted tells git's verdict.
func (x *gitIndex) compare(tb testing.TB, apply apply, text []byte, base string) (difference, reason string, accepted bool) {
	tb.Helper()
	ours := apply(tb, text, base)
	theirs, stderr := x.theirs(tb, text, base)
	if ours.tree == theirs.tree {
		return "", "", theirs.tree != ""
	}
	if reason := deliberate(ours, theirs, stderr); reason != "" {
		return "", reason, true
	}
	return fmt.Sprintf("ours: %s %s\ngit: %s %s\nstderr: %s\nbase %s", ours.tree, ours.refusal, theirs.tree, theirs.refusal, stderr, base), "", theirs.tree != ""
}
