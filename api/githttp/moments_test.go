package githttp_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
)

// bare is all that a bare clone has: refs, HEAD and objects.
func bare(git *oracle.Repository) string {
	return git.Git("for-each-ref") + "\n" + git.Git("symbolic-ref", "HEAD") + "\n" + sorted(git.Git("rev-list", "--objects", "--all", "--no-object-names"))
}

func sorted(lines string) string {
	list := strings.Split(lines, "\n")
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// cloneBare clones a remote into a bare repository with all refs.
func cloneBare(t *testing.T, url string, options ...string) *oracle.Repository {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone.git")
	git := oracle.New(t)
	git.Git(append(append([]string{"clone", "-q", "--mirror"}, options...), url, dir)...)
	return oracle.Open(t, dir)
}

// TestMomentRemotes clones the moments of a story, and compares them with clones that were made
// then, before and after maintenance, and in a fork.
func TestMomentRemotes(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Commits: 20, Merges: true, Tags: true})
	push := func(args ...string) func() {
		return func() { git.Git(append([]string{"push", "-q", r.url("")}, args...)...) }
	}
	steps := []func(){
		push("main", "--tags"),
		push("main~3:refs/heads/dev", "main~1:refs/notes/odd"),
		func() {
			git.Git("update-ref", "refs/heads/main", git.Git("commit-tree", "-m", "another tip", "-p", "main~1", "main~2^{tree}"))
			push("-f", "main")()
		},
		push("-f", "main~5:dev"),
		func() { push("--delete", strings.Fields(git.Git("tag", "-l"))[0])() },
		push("--delete", "dev"),
		func() {
			push("main~2:refs/heads/other")()
			if _, err := r.repo.ChangeSettings(t.Context(), engine.Actor{Org: enginetest.Org},
				engine.Settings{DefaultBranch: "other"}); err != nil {
				t.Fatal(err)
			}
			push("--delete", "main")()
		},
	}
	type state struct {
		seq           uint64
		copied, shown string
	}
	var states []state
	for _, step := range steps {
		step()
		seq, err := r.repo.Sequence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, state{seq, bare(cloneBare(t, r.url(""))), git.Git("ls-remote", "--symref", r.url(""))})
	}
	check := func(remote func(seq uint64) string, states []state) {
		t.Helper()
		for i, s := range states {
			url := remote(s.seq)
			if got := bare(cloneBare(t, url)); got != s.copied {
				t.Fatalf("a clone of moment %d:\n%s\nwas\n%s", i, got, s.copied)
			}
			protocol := fmt.Sprint("protocol.version=", i%3)
			if got := git.Git("-c", protocol, "ls-remote", "--symref", url); sorted(got) != sorted(s.shown) {
				t.Errorf("refs of moment %d by %s:\n%s\nwere\n%s", i, protocol, got, s.shown)
			}
		}
	}
	at := func(seq uint64) string { return r.url(fmt.Sprint("+at.", seq)) }
	check(at, states)

	for version := range 3 { // the first one had history that no ref leads to any more
		protocol := fmt.Sprint("protocol.version=", version)
		clone := cloneBare(t, at(states[0].seq), "-c", protocol)
		if got := bare(clone); got != states[0].copied {
			t.Errorf("a clone in version %d:\n%s", version, got)
		}
		clone.Git("-c", protocol, "fetch", "-q", "--prune", at(states[3].seq), "+refs/*:refs/*")
		if got, want := sorted(clone.Git("for-each-ref")), sorted(strings.Split(states[3].copied, "\nrefs/heads/")[0]); got != want {
			t.Errorf("a fetch of another moment in version %d:\n%s\nwant\n%s", version, got, want)
		}
	}
	for _, options := range [][]string{{"--depth=2", "--no-single-branch"}, {"--filter=blob:none"}} {
		clone := cloneBare(t, at(states[2].seq), options...)
		if got, want := clone.Git("for-each-ref"), strings.Split(states[2].copied, "\nrefs/heads/")[0]; got != want {
			t.Errorf("clone %v:\n%s\nwant\n%s", options, got, want)
		}
	}

	fork, err := r.host.CreateRepository(t.Context(), engine.Actor{Org: enginetest.Org},
		engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: repoName}})
	if err != nil {
		t.Fatal(err)
	}
	forkURL := func(variant string) string { return r.base + "/fork" + variant + ".git" }
	forked := []state{{fork.Sequence, bare(cloneBare(t, forkURL(""))), git.Git("ls-remote", "--symref", forkURL(""))}}
	git.Git("push", "-q", "-f", forkURL(""), "main:refs/heads/other", "main~4:refs/heads/new")
	forked = append(forked,
		state{fork.Sequence + 1, bare(cloneBare(t, forkURL(""))), git.Git("ls-remote", "--symref", forkURL(""))})
	git.Git("push", "-q", forkURL(""), "--delete", "new")
	forkAt := func(seq uint64) string { return forkURL(fmt.Sprint("+at.", seq)) }
	check(forkAt, forked)

	maintain := func(options engine.MaintainOptions) {
		t.Helper()
		for done, err := range r.host.Maintain(t.Context(), options) {
			if err != nil || done.Err != nil {
				t.Fatal(err, done.Err)
			}
		}
	}
	maintain(engine.MaintainOptions{ReaderGrace: -1, All: true})
	check(at, states)
	check(forkAt, forked)

	maintain(engine.MaintainOptions{Grace: -1, ReaderGrace: -1, All: true})
	check(at, states[len(states)-1:])
	for _, s := range states[:len(states)-1] {
		refused(t, git, "not kept any more", "ls-remote", at(s.seq))
	}
}

// TestBadMomentRemotes asks git to work with moments that cannot be served.
func TestBadMomentRemotes(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 12, Commits: 2})
	git.Git("push", "-q", r.url(""), "main")
	version := 0
	for moment, says := range map[string]string{
		"0": "before the repository was created", "3": "the journal is at seq:2", "99999999999999999999": "the journal is at seq:2",
		"": "expected a position in the journal", "-1": "expected a position", "x": "expected a position",
		"2.git": "expected a position", "2+at.2": "expected a position",
	} {
		url := r.url("+at." + moment)
		refused(t, git, says, "-c", fmt.Sprint("protocol.version=", version), "ls-remote", url)
		version = (version + 1) % 3
	}
	refused(t, git, "is read-only", "push", r.url("+at.2"), "main:new")
	refused(t, git, "not found", "ls-remote", r.base+"/none+at.2.git")
}

// refused runs a git command that has to fail with a text.
func refused(t *testing.T, git *oracle.Repository, says string, args ...string) {
	t.Helper()
	if _, err := git.Try(nil, args...); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("git %v: %v: want it to say %q", args, err, says)
	}
}
