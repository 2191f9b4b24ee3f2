package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// unsettled creates a repository without a chosen default branch.
func unsettled(t *testing.T, host *engine.Host) *engine.Repository {
	t.Helper()
	if _, err := host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "r"}); err != nil {
		t.Fatal(err)
	}
	return reopen(t, host)
}

func reopen(t *testing.T, host *engine.Host) *engine.Repository {
	t.Helper()
	repo, err := host.Repository(t.Context(), enginetest.Org, "r")
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// oneCommit is a pack with one commit, and its id.
func oneCommit(t *testing.T) (pack []byte, id object.ID) {
	t.Helper()
	git := oracle.New(t)
	text := git.Seed(oracle.History{Seed: 5, Commits: 1})
	id, err := object.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	return git.Input([]byte(text+"\n"), "pack-objects", "-q", "--revs", "--stdout"), id
}

// pushRefs creates refs at a commit and returns the default branch that is missing then.
func pushRefs(
	t *testing.T, repo *engine.Repository, ns refs.Namespace, pack []byte, id object.ID, names ...string,
) string {
	t.Helper()
	request := engine.PushRequest{Namespace: ns, Pack: bytes.NewReader(pack)}
	for _, name := range names {
		request.Commands = append(request.Commands, engine.Command{Name: name, New: id})
	}
	p, err := repo.Receive(t.Context(), acme, request)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	result, err := p.Finish(t.Context(), nil)
	if err != nil || result.Unpack != nil {
		t.Fatal(err, result)
	}
	for _, command := range result.Commands {
		if command.Err != nil {
			t.Fatalf("%s: %v", command.Name, command.Err)
		}
	}
	return result.Dangling
}

// TestFirstBranch pushes to repositories without a chosen default branch.
func TestFirstBranch(t *testing.T) {
	t.Parallel()
	type push struct {
		space    refs.Namespace
		refs     []string
		dangling string
	}
	heads := func(names ...string) (list []string) {
		for _, name := range names {
			list = append(list, "refs/heads/"+name)
		}
		return list
	}
	tests := map[string]struct {
		pushes []push
		want   string
	}{
		"main":         {[]push{{refs: heads("a", "main", "master")}}, "main"},
		"master":       {[]push{{refs: heads("a", "master")}}, "master"},
		"the only one": {[]push{{refs: heads("unstable")}}, "unstable"},
		"beside tags":  {[]push{{refs: append(heads("unstable"), "refs/tags/v1")}}, "unstable"},
		"after tags":   {[]push{{refs: []string{"refs/tags/v1"}}, {refs: heads("x")}}, "x"},
		"several":      {[]push{{refs: heads("a", "b"), dangling: "main"}}, "main"},
		"several, then more": {
			[]push{{refs: heads("a", "b"), dangling: "main"}, {refs: heads("c"), dangling: "main"}}, "main",
		},
		"several, then main":   {[]push{{refs: heads("a", "b"), dangling: "main"}, {refs: heads("main")}}, "main"},
		"several, then master": {[]push{{refs: heads("a", "b"), dangling: "main"}, {refs: heads("master")}}, "master"},
		"the second stays":     {[]push{{refs: heads("dev")}, {refs: heads("main")}}, "dev"},
		"ephemeral":            {[]push{{space: refs.Ephemeral, refs: heads("agent")}, {refs: heads("dev")}}, "dev"},
		"ephemeral only":       {[]push{{space: refs.Ephemeral, refs: heads("agent")}}, "main"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pack, id := oneCommit(t)
			host := enginetest.Open(t)
			repo := unsettled(t, host)
			for i, p := range test.pushes {
				if got := pushRefs(t, repo, p.space, pack, id, p.refs...); got != p.dangling {
					t.Errorf("push %d leaves %q dangling, want %q", i, got, p.dangling)
				}
			}
			if got := reopen(t, host).Item().DefaultBranch; got != test.want {
				t.Errorf("the default branch is %q, want %q", got, test.want)
			}
		})
	}
}

// TestChosenBranchStays pushes another branch than the one that was asked for.
func TestChosenBranchStays(t *testing.T) {
	t.Parallel()
	pack, id := oneCommit(t)
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	if got := pushRefs(t, repo, refs.Main, pack, id, "refs/heads/dev"); got != "main" {
		t.Errorf("the push leaves %q dangling, want main", got)
	}
	if got := reopen(t, host).Item().DefaultBranch; got != "main" {
		t.Errorf("the default branch is %q", got)
	}
}

// TestFirstBranchByCalls creates the first branch in other ways than by a push.
func TestFirstBranchByCalls(t *testing.T) {
	t.Parallel()
	draft := engine.CommitTarget{Branch: "draft", Namespace: refs.Ephemeral}
	file := change{path: "a", content: "1"}
	for name, create := range map[string]func(t *testing.T, repo *engine.Repository, pack []byte, id object.ID) error{
		"a commit": func(_ *testing.T, repo *engine.Repository, _ []byte, _ object.ID) error {
			_, err := upload(repo, acme, engine.CommitTarget{Branch: "dev"}, file)
			return err
		},
		"a commit on an ephemeral branch": func(t *testing.T, repo *engine.Repository, pack []byte, id object.ID) error {
			t.Helper()
			pushRefs(t, repo, refs.Ephemeral, pack, id, "refs/heads/draft")
			_, err := upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: draft.Branch, BaseNamespace: draft.Namespace},
				file)
			return err
		},
		"a promotion": func(t *testing.T, repo *engine.Repository, pack []byte, id object.ID) error {
			t.Helper()
			pushRefs(t, repo, refs.Ephemeral, pack, id, "refs/heads/draft")
			_, err := repo.CreateBranch(t.Context(), acme, engine.CreateBranchRequest{
				Branch: "dev", Base: engine.CommitName{Text: draft.Branch, Kind: engine.BranchName, Namespace: draft.Namespace},
			})
			return err
		},
		"an import": func(t *testing.T, repo *engine.Repository, pack []byte, id object.ID) error {
			t.Helper()
			p, err := repo.Receive(t.Context(), acme, engine.PushRequest{
				Import: true, Commands: []engine.Command{{Name: "refs/heads/dev", New: id}}, Pack: bytes.NewReader(pack),
			})
			if err != nil {
				return err
			}
			defer p.Close()
			_, err = p.Finish(t.Context(), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pack, id := oneCommit(t)
			host := enginetest.Open(t)
			if err := create(t, unsettled(t, host), pack, id); err != nil {
				t.Fatal(err)
			}
			if got := reopen(t, host).Item().DefaultBranch; got != "dev" {
				t.Errorf("the default branch is %q", got)
			}
		})
	}
}

// TestFirstBranchRace has many pushes be the first one, while others look: whenever there is a
// branch, HEAD leads to one.
func TestFirstBranchRace(t *testing.T) {
	t.Parallel()
	pack, id := oneCommit(t)
	for range 8 {
		host := enginetest.Open(t)
		repo := unsettled(t, host)
		ctx, cancel := context.WithCancel(t.Context())
		var pushing, looking sync.WaitGroup
		for range 2 {
			looking.Go(func() {
				for ctx.Err() == nil {
					checkHead(t, repo) // opened before any push
					checkHead(t, reopen(t, host))
				}
			})
		}
		for i := range 6 {
			pushing.Go(func() { pushRefs(t, repo, refs.Main, pack, id, fmt.Sprint("refs/heads/b", i)) })
		}
		pushing.Wait()
		cancel()
		looking.Wait()
		checkHead(t, repo)
		if got := reopen(t, host).Item().DefaultBranch; got == "main" {
			t.Error("no push was the first one")
		}
	}
}

// checkHead looks that HEAD leads to a branch if there is any.
func checkHead(t *testing.T, repo *engine.Repository) {
	t.Helper()
	a, err := repo.Advertise(context.WithoutCancel(t.Context()), refs.Main)
	if err != nil {
		t.Error(err)
		return
	}
	defer a.Close()
	if a.Count() > 0 && a.HeadID().IsZero() {
		t.Errorf("HEAD names %s among %d refs", a.HeadName(), a.Count())
	}
}

// TestDefaultBranchMoveRace moves the default branch back and forth while branches are deleted: one
// that it names stays.
func TestDefaultBranchMoveRace(t *testing.T) {
	t.Parallel()
	pack, id := oneCommit(t)
	host := enginetest.Open(t)
	repo := unsettled(t, host)
	pushRefs(t, repo, refs.Main, pack, id, "refs/heads/main", "refs/heads/a", "refs/heads/b")
	var working sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		working.Go(func() {
			for range 20 {
				if _, err := repo.ChangeSettings(
					t.Context(), acme, engine.Settings{DefaultBranch: name},
				); err != nil && !errors.Is(err, engine.ErrNotFound) {
					t.Error(err)
				}
				checkHead(t, reopen(t, host))
			}
		})
		working.Go(func() {
			for range 20 {
				_, err := repo.DeleteBranch(t.Context(), acme, refs.Main, name)
				if err != nil && !errors.Is(err, engine.ErrDefaultBranch) && !errors.Is(err, engine.ErrNotFound) {
					t.Error(err)
				}
				_, err = repo.CreateBranch(t.Context(), acme, engine.CreateBranchRequest{Branch: name, Base: branchNamed("main")})
				if err != nil && !errors.Is(err, engine.ErrExists) {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	checkHead(t, reopen(t, host))
}

// TestDefaultBranchSurvives opens the stores again after a move and after an adoption.
func TestDefaultBranchSurvives(t *testing.T) {
	t.Parallel()
	pack, id := oneCommit(t)
	fs := vfs.NewCrashableMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	t.Cleanup(shut)
	repo := unsettled(t, host)
	pushRefs(t, repo, refs.Main, pack, id, "refs/heads/dev")
	again, shut := enginetest.OpenOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), engine.Config{})
	t.Cleanup(shut)
	if got := reopen(t, again).Item().DefaultBranch; got != "dev" {
		t.Errorf("after a crash the default branch is %q", got)
	}
}
