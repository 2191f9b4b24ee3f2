package main_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestMaintainedWhileServing runs git push, clone and fetch, and API commits, in loops against a
// server under maintenance in a loop that postpones nothing. All acknowledged writes must exist at
// the end, and git must find no fault.
func TestMaintainedWhileServing(t *testing.T) {
	t.Parallel()
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	dir := t.TempDir()
	server := start(t, packhorsetest.Options{Dir: dir, Flags: []string{"--maintenance-off"}})
	token := create(t, server, "r")
	remote := strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/r.git"
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 5, Commits: 40, Files: 20, Merges: true})
	git.Git("push", "--quiet", remote, "main")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers, others sync.WaitGroup
	others.Go(func() { // maintenance
		for n := 0; ctx.Err() == nil; n++ {
			args := []string{"gc", "--data", filepath.Join(dir, "data"), "--grace", "0s", "--reader-grace", "0s"}
			if n%3 > 0 {
				args = append(args, "--geometric")
			}
			if told, err := exec.CommandContext(ctx, bin, args...).CombinedOutput(); err != nil && ctx.Err() == nil {
				t.Errorf("gc: %v: %s", err, told)
				return
			}
		}
	})
	others.Go(func() { // clones and fetches
		reader := oracle.NewAt(t, filepath.Join(dir, "reader"))
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := reader.Try(nil, "fetch", "--quiet", "--prune", remote, "+refs/heads/*:refs/heads/*"); err != nil &&
				!wentMeanwhile(err.Error()) {
				t.Errorf("fetch: %v", err)
				return
			}
			clone := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "--bare", remote,
				filepath.Join(dir, fmt.Sprint("clone", n)))
			clone.Env = oracle.EnvOutside(dir)
			told, err := clone.CombinedOutput()
			if err != nil && !wentMeanwhile(string(told)) {
				t.Errorf("clone: %v: %s", err, told)
				return
			}
		}
	})
	tips := make([]string, 3)
	writers.Go(func() { // pushes that build on one another
		for n := range rounds {
			tips[0] = commitHere(git, "grows", "main", n)
			if _, err := git.Try(nil, "push", "--quiet", remote, "grows"); err != nil {
				t.Errorf("push: %v", err)
				return
			}
		}
	})
	writers.Go(func() { // the same objects are added, removed, and added again
		again := oracle.NewAt(t, filepath.Join(dir, "again"))
		again.Seed(oracle.History{Seed: 6, Commits: 30, Files: 20})
		tips[1] = again.Git("rev-parse", "main")
		for range rounds / 2 {
			for _, spec := range []string{"main:refs/heads/again", ":refs/heads/again", "main:refs/heads/again"} {
				if _, err := again.Try(nil, "push", "--quiet", "--force", remote, spec); err != nil {
					t.Errorf("push %s: %v", spec, err)
					return
				}
			}
		}
	})
	writers.Go(func() { // commits through the API
		for n := range 5 * rounds {
			tip, err := commitThere(t.Context(), server.URL, token, n)
			if err != nil {
				t.Error(err)
				return
			}
			tips[2] = tip
		}
	})
	writers.Wait()
	stop()
	others.Wait()

	mirror := oracle.NewAt(t, filepath.Join(dir, "mirror"))
	mirror.Git("fetch", "--quiet", remote, "+refs/heads/*:refs/heads/*")
	mirror.Git("fsck", "--full", "--strict")
	for i, branch := range []string{"grows", "again", "api"} {
		if got := mirror.Git("rev-parse", "refs/heads/"+branch); got != tips[i] {
			t.Errorf("%s is at %s, and %s was acknowledged", branch, got, tips[i])
		}
	}
	if told, err := exec.CommandContext(t.Context(), bin, "fsck", "--data", filepath.Join(dir, "data")).
		CombinedOutput(); err != nil {
		t.Errorf("fsck: %v: %s", err, told)
	}
}

// wentMeanwhile reports whether git says that the branch that comes and goes went between the
// listing and the want, which names refs: gitprotocol-v2(5), "want-ref".
func wentMeanwhile(told string) bool {
	return strings.Contains(told, "remote error: unknown ref refs/heads/again\n")
}

// commitHere commits a file to a branch of git's, which begins at base, and returns the commit.
func commitHere(git *oracle.Repository, branch, base string, n int) string {
	from := branch
	if n == 0 {
		from = base
	}
	content := strings.Repeat(fmt.Sprintln("round", n), 20+n)
	git.Input(fmt.Appendf(nil,
		"commit refs/heads/%s\ncommitter C <c@example.com> %d +0000\ndata 5\nround\nfrom refs/heads/%s^0\nM 100644 inline dir/file%d\ndata %d\n%s\n",
		branch, 1_700_000_000+n, from, n%3, len(content), content), "fast-import", "--quiet", "--force")
	return git.Git("rev-parse", "refs/heads/"+branch)
}

// commitThere commits a file through the API, and returns the commit.
func commitThere(ctx context.Context, url, token string, n int) (string, error) {
	content := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprintln("commit", n), 1+n%40)))
	body := fmt.Sprintf(
		`{"metadata":{"target_branch":"api","base_branch":"main","commit_message":"change","author":{"name":"A","email":"a@example.com"},`+
			`"files":[{"path":"api/file%d","content_id":"x"}]}}`+"\n"+`{"blob_chunk":{"content_id":"x","data":"%s","eof":true}}`+
			"\n", n%5, content,
	)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/repos/commit-pack",
		strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		} `json:"commit"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Commit.SHA == "" {
		return "", fmt.Errorf("commit-pack: %s: %s", response.Status, text)
	}
	return answer.Commit.SHA, nil
}
