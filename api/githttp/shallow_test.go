package githttp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
)

// rivals are two clones that go through the same story: one of the remote, one of git's repository.
type rivals struct {
	t          *testing.T
	ours, gits *oracle.Repository
}

// newRivals makes empty clones that speak a version of the protocol.
func newRivals(t *testing.T, tw *twins, version int) *rivals {
	t.Helper()
	r := &rivals{t: t, ours: oracle.New(t), gits: oracle.New(t)}
	t.Cleanup(func() { r.ours.Git("fsck", "--full", "--strict", "--no-dangling") })
	for git, url := range map[*oracle.Repository]string{r.ours: tw.remote.url(""), r.gits: tw.backend()} {
		git.Git("remote", "add", "origin", url)
		git.Git("config", "protocol.version", fmt.Sprint(version))
		git.Git("config", "fetch.fsckObjects", "true")
		git.Git("config", "maintenance.auto", "false")
	}
	return r
}

// do lets both do the same, and wants them to end up with the same.
func (r *rivals) do(args ...string) {
	r.t.Helper()
	_, err := r.ours.Try(nil, args...)
	_, wantErr := r.gits.Try(nil, args...)
	if (err == nil) != (wantErr == nil) {
		r.t.Fatalf("git %s: %v, with git's server: %v", strings.Join(args, " "), err, wantErr)
	}
	if got, want := allRefs(r.ours), allRefs(r.gits); !slices.Equal(got, want) {
		r.t.Fatalf("after git %s: refs\n%s\nand with git's server\n%s", strings.Join(args, " "), strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	if got, want := boundary(r.t, r.ours), boundary(r.t, r.gits); !slices.Equal(got, want) {
		r.t.Fatalf("after git %s: shallow at %q, with git's server at %q", strings.Join(args, " "), got, want)
	}
	if got, want := reached(r.ours, "--missing=print"), reached(r.gits, "--missing=print"); !slices.Equal(got, want) {
		r.t.Fatalf("after git %s: %d objects reached, with git's server %d", strings.Join(args, " "), len(got), len(want))
	}
}

// boundary returns the shallow commits of a clone.
func boundary(t *testing.T, git *oracle.Repository) []string {
	t.Helper()
	out, err := os.ReadFile(filepath.Join(git.Dir, "shallow"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	ids := lines(string(out))
	slices.Sort(ids)
	return ids
}

const everything = "+refs/*:refs/*"

// TestShallow takes clones from boundary to boundary.
func TestShallow(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, func(git *oracle.Repository) {
		git.Seed(oracle.History{Seed: 61, Commits: 40, Merges: true, Tags: true})
	})
	// Git 2.39 sends the boundary behind the wanted refs, where its own client does not expect it.
	tw.git.Git("config", "uploadpack.allowRefInWant", "false")
	since := func(commit int) string { return fmt.Sprintf("--shallow-since=%d +0000", 1_600_000_000+commit*3600) }
	stories := map[string][][]string{
		"deeper and deeper": {
			{"--depth=1"}, {"--depth=3"}, {"--deepen=2"}, {"--deepen=5"}, {"--depth=12"}, {"--unshallow"},
		},
		"to and fro":  {{"--depth=9"}, {"--depth=2"}, {"--depth=5"}, {"--depth=1"}, {"--depth=2147483647"}},
		"all at once": {{"--depth=2"}, {"--unshallow"}},
		"by time":     {{since(30)}, {since(20)}, {since(35)}, {since(0)}},
		"without a tag": {
			{"--shallow-exclude=v29"}, {"--shallow-exclude=v9"}, {"--shallow-exclude=refs/tags/v19"}, {"--unshallow"},
		},
		"every way": {
			{"--depth=3"}, {since(15)}, {"--shallow-exclude=v9"}, {"--deepen=3"}, {"--depth=4"}, {"--deepen=1"}, {"--unshallow"},
		},
		"whole, then shallow": {{}, {"--depth=3"}, {"--unshallow"}},
		"nothing to send":     {{since(100)}},
		"ambiguous":           {{"--shallow-exclude=none"}},
		"one branch, then all": {
			{"--depth=1", "refs/heads/side:refs/heads/side"},
			{"--depth=2"},
			{"--deepen=4", "refs/heads/side:refs/heads/side"},
			{},
		},
		"shallow and nothing": {{"--depth=2"}, {}, {"--depth=2"}},
		"tags that come along": {
			{"--depth=4", "refs/heads/main:refs/heads/main"}, {"--deepen=8", "refs/heads/main:refs/heads/main"},
		},
		"a file of shallow refs": {{"--depth=1", "--update-shallow"}, {"--deepen=1", "--update-shallow"}},
	}
	for name, steps := range stories {
		for _, version := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/v%d", name, version), func(t *testing.T) {
				t.Parallel()
				r := newRivals(t, tw, version)
				for _, step := range steps {
					args := append([]string{"fetch", "--quiet"}, options(step)...)
					r.do(append(append(args, "origin"), refspecs(step, everything)...)...)
				}
			})
		}
	}
}

func options(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return !strings.HasPrefix(word, "-") })
}

// refspecs returns the words that are no options, or none if there are none.
func refspecs(words []string, none string) []string {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return strings.HasPrefix(word, "-") })
	if len(words) == 0 {
		return []string{none}
	}
	return words
}

// TestPartial clones with filters and fetches the missing objects, one by one and in bulk.
func TestPartial(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, func(git *oracle.Repository) {
		git.Seed(oracle.History{Seed: 62, Commits: 20, Merges: true, Tags: true})
	})
	for _, filter := range []string{
		"blob:none", "blob:limit=1k", "tree:0", "tree:2", "object:type=commit", "combine:tree:3+blob:limit=1k",
	} {
		for _, version := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/v%d", filter, version), func(t *testing.T) {
				t.Parallel()
				r := newRivals(t, tw, version)
				r.do("fetch", "--quiet", "--filter="+filter, "origin", everything)
				if version < 2 {
					return // a promisor remote is asked for objects in version 2 only
				}
				for _, step := range [][]string{
					{"ls-tree", "-r", "refs/heads/main~3"},
					{"diff", "--stat", "refs/heads/main~6", "refs/heads/main"},
					{"fetch", "--quiet", "--refetch", "--filter=blob:none", "origin", everything},
					{"archive", "--format=tar", "-o", os.DevNull, "refs/tags/v19"},
				} {
					r.do(step...)
				}
				all := r.ours.Git("rev-list", "--objects", "--all", "--no-object-names") // fetches missing objects
				if want := r.gits.Git("rev-list", "--objects", "--all", "--no-object-names"); all != want {
					t.Error("the objects differ in the end")
				}
			})
		}
	}
}

// TestIncremental fetches while the remote grows, is rewound and loses refs.
func TestIncremental(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, version int) { //nolint:thelper // it is the test
		if testing.Short() && version != 2 {
			t.Skip("one version is enough")
		}
		tw := newTwins(t, func(git *oracle.Repository) {
			git.Seed(oracle.History{Seed: 63, Commits: 80, Merges: true, Tags: true})
		})
		tip := tw.git.Git("rev-parse", "main")
		set := func(ref, to string) {
			tw.git.Git("update-ref", ref, to)
			tw.remote.push(tw.git, "+"+ref+":"+ref)
		}
		r := newRivals(t, tw, version)
		for _, back := range []int{60, 59, 30, 12, 40, 0} {
			set("refs/heads/main", fmt.Sprintf("%s~%d", tip, min(back, 45)))
			r.do("fetch", "--quiet", "--prune", "origin", everything)
		}
		set("refs/heads/again", tip+"~7")
		r.do("fetch", "--quiet", "origin", "+refs/heads/*:refs/remotes/origin/*")
		tw.git.Git("update-ref", "-d", "refs/heads/side")
		tw.remote.push(tw.git, ":refs/heads/side")
		r.do("fetch", "--quiet", "--prune", "origin", "+refs/heads/*:refs/remotes/origin/*")
		r.do("fetch", "--quiet", "--tags", "origin")
		r.do("fetch", "--quiet", "origin", tip+"~3:refs/heads/by-name")
		r.do("fetch", "--quiet", "origin", tw.git.Git("rev-parse", tip+"~3")+":refs/heads/by-id")
		r.do("fetch", "--quiet", "origin", strings.Repeat("1", 40)+":refs/heads/unknown")
	})
}
