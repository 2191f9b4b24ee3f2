package githttp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// histories are the cloned histories.
var histories = map[string]func(git *oracle.Repository){
	"one line": func(git *oracle.Repository) { git.Seed(oracle.History{Seed: 1}) },
	"merges and tags": func(git *oracle.Repository) {
		git.Seed(oracle.History{Seed: 2, Merges: true, Tags: true, Binary: true})
	},
	"one commit": func(git *oracle.Repository) { git.Seed(oracle.History{Seed: 3, Commits: 1}) },
	"beyond hot": func(git *oracle.Repository) {
		git.Seed(oracle.History{Seed: 4, Commits: 400, Merges: true, Tags: true})
	},
	"everything odd": seedOddities,
	"no branch": func(git *oracle.Repository) {
		git.Git("update-ref", "refs/tags/only", git.Seed(oracle.History{Seed: 5}))
		git.Git("update-ref", "-d", "refs/heads/main")
	},
	"blobs of 300 KiB": seedLargeBlobs,
}

// seedOddities makes objects that git allows and few histories have.
func seedOddities(git *oracle.Repository) {
	tip := git.Seed(oracle.History{Seed: 6, Merges: true, Tags: true})
	blob := git.Write("blob", []byte("a blob that only a tag names\n"))
	file := git.Write("blob", []byte("a blob in a tree that only tags name\n"))
	tree := strings.TrimSpace(string(git.Input([]byte("100644 blob "+file+"\tfile\n"), "mktree")))
	empty := git.Write("tree", nil)
	roots := make([]string, 0, 9)
	for i := range 9 {
		roots = append(roots, git.Git("commit-tree", "-m", fmt.Sprint("root ", i), empty))
	}
	octopus := []string{"commit-tree", "-m", "octopus", "-p", tip}
	for _, root := range roots {
		octopus = append(octopus, "-p", root)
	}
	git.Git("update-ref", "refs/heads/octopus", git.Git(append(octopus, tip+"^{tree}")...))
	for name, target := range map[string]string{
		"blob": blob, "tree": tree, "commit": roots[0], "octopus": "refs/heads/octopus",
	} {
		git.Git("tag", "-a", "-m", "of "+name, "to-"+name, target)
		git.Git("tag", "-a", "-m", "of the tag of "+name, "to-tag-of-"+name, "to-"+name)
		git.Git("tag", "-a", "-m", "of the tag of the tag of "+name, "to-tag-of-tag-of-"+name, "to-tag-of-"+name)
		git.Git("tag", "light-"+name, target)
	}
	git.Git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",module")
	git.Git("update-index", "--add", "--cacheinfo", "120000,"+git.Write("blob", []byte("module"))+",link")
	git.Git("update-ref", "refs/heads/ünï/cödé", git.Git("commit-tree", "-m", "modes", "-p", tip, git.Git("write-tree")))
	git.Git("update-ref", "refs/heads/no-message",
		git.Write("commit", []byte("tree "+empty+"\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n")))
	git.Git("update-ref", "refs/notes/commits", roots[1])
	git.Git("update-ref", "refs/pull/1/head", roots[2])
	git.Git("update-ref", "refs/pull/1/tree", tree)
	git.Git("update-ref", "refs/heads/HEAD", roots[3])
}

func seedLargeBlobs(git *oracle.Repository) {
	data := noise(300 << 10)
	tip := ""
	for i := range 6 {
		data[i*1000] ^= 0xff
		git.Git("update-index", "--add", "--cacheinfo", "100644,"+git.Write("blob", data)+",noise")
		git.Git("update-index", "--add", "--cacheinfo",
			"100644,"+git.Write("blob", slices.Repeat([]byte("text\n"), 60_000+i))+",text")
		commit := []string{"commit-tree", "-m", fmt.Sprint(i)}
		if tip != "" {
			commit = append(commit, "-p", tip)
		}
		tip = git.Git(append(commit, git.Git("write-tree"))...)
	}
	git.Git("update-ref", "refs/heads/main", tip)
}

// noise is incompressible data.
func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	return data
}

func TestClone(t *testing.T) {
	t.Parallel()
	for name, seed := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			seed(git)
			r := serve(t, githttp.Config{})
			r.push(git, "refs/*:refs/*")
			if got, want := r.refs(refs.Main), allRefs(git); !slices.Equal(got, want) {
				t.Fatalf("after the push the remote has\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			versions(t, func(t *testing.T, version int) { //nolint:thelper // it is the test
				clone := r.clone(version, "--mirror")
				sameRepository(t, clone, git)
				if name != "no branch" || version == 2 { // otherwise nothing says where HEAD would be
					if got, want := clone.Git("symbolic-ref", "HEAD"), "refs/heads/main"; got != want {
						t.Errorf("HEAD is %s, not %s", got, want)
					}
				}
			})
		})
	}
}

// sameRepository compares a clone with its origin.
func sameRepository(t *testing.T, got, want *oracle.Repository) {
	t.Helper()
	if got, want := allRefs(got), allRefs(want); !slices.Equal(got, want) {
		t.Fatalf("refs\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := reached(got), reached(want); !slices.Equal(got, want) {
		t.Errorf("%d objects are reached, not %d", len(got), len(want))
	}
	got.Git("fsck", "--full", "--strict", "--no-dangling")
}

// reached returns the IDs of the objects reachable from the refs of a repository.
func reached(git *oracle.Repository, args ...string) []string {
	out := lines(git.Git(append([]string{"rev-list", "--objects", "--no-object-names", "--all"}, args...)...))
	slices.Sort(out)
	return slices.Compact(out)
}

// An empty repository is cloned with the name of its unborn branch, by clients that support it.
func TestCloneEmpty(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	ctx := t.Context()
	if _, err := r.host.CreateRepository(
		ctx, engine.Actor{Org: "acme"}, engine.CreateRequest{Name: "trunk", DefaultBranch: "trunk"},
	); err != nil {
		t.Fatal(err)
	}
	versions(t, func(t *testing.T, version int) { //nolint:thelper // it is the test
		clone := cloneFrom(t, r.base+"/trunk.git", version)
		want := "refs/heads/trunk"
		if version < 2 {
			want = "refs/heads/master" // the server does not send it, so that the client's own default counts
		}
		if got := clone.Git("symbolic-ref", "HEAD"); got != want {
			t.Errorf("HEAD is %s, not %s", got, want)
		}
		if out := clone.Git("fsck"); out != "" {
			t.Error(out)
		}
	})
}
