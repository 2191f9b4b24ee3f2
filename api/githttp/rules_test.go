package githttp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// pushVariant sends a push to a face of the repository.
func (r *remote) pushVariant(variant, policy string, body []byte) report {
	r.t.Helper()
	x := exchangetest.New(http.MethodPost, "/"+repoName+variant+".git/git-receive-pack", bytes.NewReader(body))
	x.RequestHeaders.Set("Content-Type", "application/x-git-receive-pack-request")
	x.RequestHeaders.Set(policyHeader, policy)
	answer, err := pending{x, r.handle(x)}.finish()
	if err != nil || answer.Status != http.StatusOK {
		r.t.Fatalf("answer %+v, %v", answer, err)
	}
	return readReport(r.t, answer.Body, true)
}

// TestPushRules tries pushes that git accepts and Packhorse refuses.
func TestPushRules(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	main := git.Seed(oracle.History{Seed: 91, Commits: 9})
	old, older := git.Git("rev-parse", "main~2"), git.Git("rev-parse", "main~4")
	git.Git("update-ref", "refs/heads/topic", old)
	git.Git("update-ref", "refs/tags/light", older)
	git.Git("tag", "-a", "-m", "a tag", "annotated", old)
	git.Git("tag", "-a", "-m", "a tag of a blob", "blob", git.Write("blob", []byte("blob")))
	annotated, blob := git.Git("rev-parse", "annotated"), git.Git("rev-parse", "refs/tags/blob")
	tests := map[string]struct {
		variant, policy, command, outcome string
	}{
		"another namespace": {
			command: "{0} {main} refs/namespaces/ephemeral/refs/heads/x", outcome: "ng deny updating a hidden ref",
		},
		"deletion there": {
			command: "{main} {0} refs/namespaces/ephemeral/refs/heads/here", outcome: "ng deny deleting a hidden ref",
		},
		"any namespace": {
			command: "{0} {main} refs/namespaces/x/refs/heads/x", outcome: "ng deny updating a hidden ref",
		},
		"a nested namespace": {
			variant: "+ephemeral",
			command: "{0} {main} refs/namespaces/ephemeral/refs/heads/x",
			outcome: "ng deny updating a hidden ref",
		},
		"replacement":         {command: "{0} {main} refs/replace/" + old, outcome: "ng deny updating a hidden ref"},
		"HEAD":                {command: "{0} {main} HEAD", outcome: "ng funny refname"},
		"one level":           {command: "{0} {main} refs/stash", outcome: "ng funny refname"},
		"a branch like an ID": {command: "{0} {main} refs/heads/" + old, outcome: "ng funny refname"},
		"a tag like an ID": {
			command: "{0} {main} refs/tags/" + strings.ToUpper(old), outcome: "ng funny refname",
		},
		"a long name": {
			command: "{0} {main} refs/heads/" + strings.Repeat("x", 2000), outcome: "ng funny refname",
		},
		"deletion by an unknown value": {command: "{0} {0} refs/heads/topic", outcome: "ng failed to update ref"},
		"default branch": {
			command: "{main} {0} refs/heads/main", outcome: "ng deletion of the current branch prohibited",
		},
		"default branch, ephemeral": {variant: "+ephemeral", command: "{main} {0} refs/heads/main", outcome: "ok"},
		"default branch, import": {
			variant: "+import", command: "{main} {0} refs/heads/main", outcome: "ng deletion of the current branch prohibited",
		},

		"no-push, new": {
			policy: "no-push", command: "{0} {main} refs/heads/new", outcome: "ng denied by policy: no-push on refs/heads/new",
		},
		"no-push, forward": {
			policy:  "no-push",
			command: "{old} {main} refs/heads/topic",
			outcome: "ng denied by policy: no-push on refs/heads/topic",
		},
		"no-push, delete": {
			policy:  "no-push",
			command: "{old} {0} refs/heads/topic",
			outcome: "ng denied by policy: no-push on refs/heads/topic",
		},
		"no-push, absent": {
			policy: "no-push", command: "{0} {0} refs/heads/none", outcome: "ng denied by policy: no-push on refs/heads/none",
		},
		"no-push, ephemeral": {
			policy:  "no-push",
			variant: "+ephemeral",
			command: "{0} {main} refs/heads/new",
			outcome: "ng denied by policy: no-push on refs/namespaces/ephemeral/refs/heads/new",
		},
		"no-force, new":     {policy: "no-force-push", command: "{0} {main} refs/heads/new", outcome: "ok"},
		"no-force, forward": {policy: "no-force-push", command: "{old} {main} refs/heads/topic", outcome: "ok"},
		"no-force, backwards": {
			policy:  "no-force-push",
			command: "{old} {older} refs/heads/topic",
			outcome: "ng denied by policy: no-force-push on refs/heads/topic: not a fast-forward",
		},
		"no-force, delete": {
			policy:  "no-force-push",
			command: "{old} {0} refs/heads/topic",
			outcome: "ng denied by policy: no-force-push on refs/heads/topic: the ref would be deleted",
		},
		"no-force, tag": {policy: "no-force-push", command: "{older} {annotated} refs/tags/light", outcome: "ok"},
		"no-force, tag back": {
			policy:  "no-force-push",
			command: "{annotated} {older} refs/tags/annotated",
			outcome: "ng denied by policy: no-force-push on refs/tags/annotated: not a fast-forward",
		},
		"no-force, tag of blob": {
			policy:  "no-force-push",
			command: "{blob} {main} refs/tags/blob",
			outcome: "ng denied by policy: no-force-push on refs/tags/blob: not a fast-forward",
		},
		"an op nobody knows": {
			policy:  "odd",
			command: "{0} {main} refs/heads/new",
			outcome: "ng denied by policy: no-such-op on refs/heads/new: the op is not known",
		},
		"an import under no-push": {
			policy:  "no-push",
			variant: "+import",
			command: "{0} {main} refs/heads/new",
			outcome: "ng denied by policy: no-push on refs/heads/new",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, githttp.Config{})
			r.push(git, "refs/*:refs/*")
			git.Git("push", "--quiet", r.url("+ephemeral"), "main:refs/heads/here", "main")
			before := [2][]string{r.refs(refs.Main), r.refs(refs.Ephemeral)}
			replace := strings.NewReplacer("{0}", zero, "{main}", main, "{old}", old, "{older}", older, "{annotated}", annotated,
				"{blob}", blob)
			command := replace.Replace(test.command)
			refname := command[82:]
			var pack []byte
			if !strings.HasPrefix(command[41:], zero) {
				pack = packOf(git, "^main")
			}
			got := r.pushVariant(test.variant, test.policy, pushBody(allCapabilities, []string{command}, pack))
			state, reason, _ := strings.Cut(test.outcome, " ")
			if want := strings.TrimSpace(state + " " + refname + " " + reason); len(got.lines) != 2 || got.lines[1] != want {
				t.Errorf("reported %q %q, want %q", got.lines, got.remarks, want)
			}
			after := [2][]string{r.refs(refs.Main), r.refs(refs.Ephemeral)}
			if unchanged := slices.Equal(before[0], after[0]) &&
				slices.Equal(before[1], after[1]); unchanged != (state == "ng") {
				t.Errorf("%s: refs before %q and after %q", test.outcome, before, after)
			}
		})
	}
}

// TestEphemeral pushes to the ephemeral namespace and reads it back; neither namespace shows the
// refs of the other.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, version int) { //nolint:thelper // it is the test
		r, git := serve(t, githttp.Config{}), oracle.New(t)
		git.Seed(oracle.History{Seed: 92, Commits: 25, Merges: true, Tags: true})
		r.push(git, "main~5:refs/heads/main", "v9")
		list := func(variant string) string { return git.Git("ls-remote", "--symref", r.url(variant)) }
		if got := list("+ephemeral"); got != "" {
			t.Errorf("the empty namespace shows %q", got)
		}
		git.Git("push", "--quiet", r.url("+ephemeral"), "side:refs/heads/agent/1", "main~1:refs/heads/agent/2", "v19")
		main := list("")
		git.Git("push", "--quiet", r.url("+ephemeral"), "main:refs/heads/main")
		if got := list(""); got != main || strings.Contains(got, "agent") || strings.Contains(got, "namespaces") {
			t.Errorf("the main remote shows %q, and showed %q", got, main)
		}
		clone := cloneFrom(t, r.url("+ephemeral"), version, "--mirror")
		if got, want := allRefs(clone), r.refs(refs.Ephemeral); !slices.Equal(got, want) || len(got) != 4 {
			t.Errorf("cloned %q of %q", got, want)
		}
		if head := clone.Git("symbolic-ref", "HEAD"); head != "refs/heads/main" {
			t.Errorf("HEAD is %s", head)
		}
		clone.Git("fsck", "--full", "--strict", "--no-dangling")
		if version == 2 {
			for _, name := range []string{"refs/namespaces/ephemeral/refs/heads/agent/1", "refs/heads/agent/1", "agent/1"} {
				for _, line := range []string{"want-ref " + name, "deepen-not " + name} {
					answer := readTranscript(t, r.post("git-upload-pack", 2,
						request("command=fetch", delim, "want "+git.Git("rev-parse", "v9"), line, "done", flush)))
					if answer.fatal == "" {
						t.Errorf("the main remote answers %s with %q", line, answer.lines)
					}
				}
			}
		}
		git.Git("push", "--quiet", r.url("+ephemeral"), "--delete", "agent/1", "main")
		if got := r.refs(refs.Ephemeral); len(got) != 2 {
			t.Errorf("after two deletions: %q", got)
		}
	})
}

// TestImport pushes a history to the import face, which cannot be read.
func TestImport(t *testing.T) {
	t.Parallel()
	r, git := serve(t, githttp.Config{}), oracle.New(t)
	git.Seed(oracle.History{Seed: 93, Commits: 25, Tags: true})
	git.Git("push", "--quiet", r.url("+import"), "refs/*:refs/*")
	if got, want := r.refs(refs.Main), allRefs(git); !slices.Equal(got, want) {
		t.Errorf("imported %q of %q", got, want)
	}
	for version := range 3 {
		_, err := git.Try(nil, "-c", fmt.Sprintf("protocol.version=%d", version), "ls-remote", r.url("+import"))
		if err == nil || !strings.Contains(err.Error(), "the import remote is for pushing only") ||
			!strings.Contains(err.Error(), "403") {
			t.Errorf("version %d: the import remote can be read: %v", version, err)
		}
	}
	x := r.exchangeWith("+import", "git-upload-pack", 2, bytes.NewReader(request("command=ls-refs", flush)))
	if answer, err := x.finish(); err != nil || answer.Status != http.StatusForbidden {
		t.Errorf("answer %+v, %v", answer, err)
	}
}

// TestRace lets pushes race for one ref from the same old value: one wins, the others get the
// reason. Pushes to other refs all win.
func TestRace(t *testing.T) {
	t.Parallel()
	const rounds, writers = 6, 8
	r, git := serve(t, githttp.Config{}), oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 94, Commits: 5})
	r.push(git, "main")
	for round := range rounds {
		var commits [writers]string
		var reports [2][writers]report
		var running sync.WaitGroup
		for i := range writers {
			commits[i] = git.Git("commit-tree", "-m", fmt.Sprint(round, i), "-p", tip, tip+"^{tree}")
			pack := packOf(git, commits[i], "^"+tip)
			for kind, command := range []string{tip + " " + commits[i] + " refs/heads/main", zero + " " + commits[i] +
				fmt.Sprintf(" refs/heads/own/%d/%d", round, i)} {
				running.Go(func() { reports[kind][i] = r.pushVariant("", "", pushBody(allCapabilities, []string{command}, pack)) })
			}
		}
		running.Wait()
		winner := ""
		for i, got := range reports[0] {
			switch {
			case slices.Equal(got.lines, []string{"unpack ok", "ok refs/heads/main"}) && winner == "":
				winner = commits[i]
			case !slices.Equal(got.lines, []string{"unpack ok", "ng refs/heads/main failed to update ref"}):
				t.Errorf("round %d: writer %d hears %q %q", round, i, got.lines, got.remarks)
			case len(got.remarks) != 1 || !strings.HasSuffix(got.remarks[0], "but expected "+tip):
				t.Errorf("round %d: writer %d is told %q", round, i, got.remarks)
			}
		}
		for i, got := range reports[1] {
			if got.lines[1] != fmt.Sprintf("ok refs/heads/own/%d/%d", round, i) {
				t.Errorf("round %d: writer %d of its own ref hears %q", round, i, got.lines)
			}
		}
		if winner == "" || !slices.Contains(r.refs(refs.Main), winner+" refs/heads/main") {
			t.Fatalf("round %d: %q won, the refs are %q", round, winner, r.refs(refs.Main))
		}
		tip = winner
	}
}
