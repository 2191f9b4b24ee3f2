package githttp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// pushed is the result of a push of a git client.
type pushed struct {
	report string // its output with --porcelain, but for the address
	failed bool
	stderr string
}

func pushTo(git *oracle.Repository, url string, args ...string) pushed {
	out, err := git.Try(nil, append([]string{"push", "--porcelain", "--no-progress"},
		strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "URL", url))...)...)
	result := pushed{report: strings.ReplaceAll(string(out), url, "URL"), failed: err != nil}
	if exit, ok := errors.AsType[*oracle.ExitError](err); ok {
		result.stderr = exit.Stderr
	}
	return result
}

// TestPushClient lets git push to the remote and to git's own server, and wants the client to print
// the same.
func TestPushClient(t *testing.T) {
	t.Parallel()
	stories := map[string][]string{
		"new and forward": {"URL main~5:refs/heads/new", "URL main~3:refs/heads/new", "URL main:new", "URL main:new"},
		"backwards": {
			"URL main~1:refs/heads/new", "URL main~4:refs/heads/new", "--force URL main~4:refs/heads/new",
			"URL +main~6:refs/heads/new",
		},
		"lease": {
			"URL main~4:refs/heads/new", "--force-with-lease=refs/heads/new:main~9 URL main~5:refs/heads/new",
			"--force-with-lease=refs/heads/new:main~4 URL main~5:refs/heads/new",
		},
		"delete": {
			"URL side:refs/heads/x side:refs/heads/y", "--delete URL x", "--delete URL x", "URL :y main:z",
			"URL :refs/heads/never",
		},
		"default": {"URL main", "URL :main", "--delete URL main side"},
		"many": {
			"URL refs/heads/*:refs/heads/* refs/tags/*:refs/tags/* refs/notes/*:refs/notes/*", "--all URL", "--tags URL",
		},
		"follow tags": {"--follow-tags URL main~8:refs/heads/main", "--follow-tags URL main"},
		"mirror": {
			"--mirror URL", "--mirror URL", "--prune URL refs/heads/main:refs/heads/main refs/tags/v9:refs/tags/*",
		},
		"atomic": {
			"--atomic URL main side", "--atomic URL main~1:refs/heads/main side:refs/heads/new",
			"--atomic URL main:refs/heads/a..b side:refs/heads/new", "--atomic URL :side main:a/b",
		},
		"conflict": {
			"URL main:refs/heads/a/b", "URL main:refs/heads/a main:refs/heads/c", "URL main:refs/heads/a/b/c",
			"URL :a/b main:refs/heads/a",
		},
		"options":  {"-o ci.skip -o message=hello URL main"},
		"quietly":  {"--quiet URL main", "--quiet URL :refs/heads/none side"},
		"whole":    {"--no-thin URL main~9:refs/heads/main", "--no-thin URL main", "--thin URL side"},
		"unsigned": {"--signed=if-asked URL main", "--signed=yes URL side"},
		"odd targets": {
			"URL to-blob to-tree refs/tags/light-blob", "URL light-blob:refs/heads/blob", "URL to-commit:refs/heads/tag",
			"URL main:refs/pull/1/head",
		},
		"funny": {
			"URL main:refs/heads/a..b", "URL main:refs/heads/x.lock main:refs/heads/good", "URL main:HEAD",
			"URL main:refs/onelevel", "URL main:refs/heads/ünï",
		},
		"nothing": {"URL", "URL none", "--dry-run URL main"},
	}
	for name, steps := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newTwins(t, func(*oracle.Repository) {})
			client, backend := oracle.New(t), tw.backend()
			client.Seed(oracle.History{Seed: 81, Commits: 30, Merges: true, Tags: true})
			blob := client.Write("blob", []byte("a blob\n"))
			client.Git("tag", "light-blob", blob)
			client.Git("tag", "-a", "-m", "blob", "to-blob", blob)
			client.Git("tag", "-a", "-m", "tree", "to-tree", "main^{tree}")
			client.Git("tag", "-a", "-m", "commit", "to-commit", "main~2")
			client.Git("notes", "add", "-m", "a note", "main")
			for _, step := range steps {
				got, want := pushTo(client, tw.remote.url(""), step), pushTo(client, backend, step)
				if got.report != want.report || got.failed != want.failed {
					t.Fatalf("git push %s: failed: %t\n%s%s\nto git's server: failed: %t\n%s%s",
						step, got.failed, got.report, got.stderr, want.failed, want.report, want.stderr)
				}
				if got, want := tw.remote.refs(refs.Main), allRefs(tw.git); !slices.Equal(got, want) {
					t.Fatalf("after git push %s: refs\n%s\nand of git's server\n%s", step, strings.Join(got, "\n"),
						strings.Join(want, "\n"))
				}
			}
			if len(tw.remote.refs(refs.Main)) > 0 {
				sameRepository(t, tw.remote.clone(2, "--mirror"), tw.git)
			}
		})
	}
}

// TestPushFromShallow pushes from a clone whose history is cut.
func TestPushFromShallow(t *testing.T) {
	t.Parallel()
	for version := range 3 {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			tw := newTwins(t, func(git *oracle.Repository) { git.Seed(oracle.History{Seed: 82, Commits: 20, Merges: true}) })
			empty := newTwins(t, func(*oracle.Repository) {})
			backend, emptyBackend := tw.backend(), empty.backend()
			client := tw.remote.clone(version, "--depth=3", "--no-single-branch")
			commit := func(parent string) string {
				client.Git("read-tree", parent)
				client.Git("update-index", "--add", "--cacheinfo", "100644,"+client.Write("blob", []byte(parent))+",new file")
				return client.Git("commit-tree", "-m", "on top", "-p", parent, client.Git("write-tree"))
			}
			client.Git("update-ref", "refs/heads/new", commit("main"))
			client.Git("update-ref", "refs/heads/rootless", commit("side"))
			client.Git("update-ref", "refs/heads/whole", client.Git("commit-tree", "-m", "a root", "main^{tree}"))
			for _, step := range []struct {
				step            string
				remote          *twins
				backend, reason string
			}{
				{"URL new", tw, backend, ""},
				{"URL rootless:refs/heads/side", tw, backend, ""},
				{"URL +new:refs/heads/side :refs/heads/new", tw, backend, ""},
				{"URL new", empty, emptyBackend, "shallow update not allowed"},
				{"URL whole", empty, emptyBackend, ""},
				{"URL new :refs/heads/whole", empty, emptyBackend, "shallow update not allowed"},
			} {
				got, want := pushTo(client, step.remote.remote.url(""), step.step), pushTo(client, step.backend, step.step)
				if got.report != want.report || !strings.Contains(got.report, step.reason) {
					t.Errorf("git push %s:\n%s%s\nto git's server\n%s%s", step.step, got.report, got.stderr, want.report, want.stderr)
				}
				if got, want := step.remote.remote.refs(refs.Main), allRefs(step.remote.git); !slices.Equal(got, want) {
					t.Errorf("after git push %s: refs %q and of git's server %q", step.step, got, want)
				}
			}
			// Git forgets that the push is atomic.
			before := empty.remote.refs(refs.Main)
			got := pushTo(client, empty.remote.url(""), "--atomic URL whole:refs/heads/a new")
			if !strings.Contains(got.report, "(atomic push failure)") ||
				!strings.Contains(got.report, "(shallow update not allowed)") ||
				!slices.Equal(empty.remote.refs(refs.Main), before) {
				t.Errorf("an atomic push that is refused:\n%s%s", got.report, got.stderr)
			}
			sameRepository(t, tw.remote.clone(version, "--mirror"), tw.git)
		})
	}
}
