package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestRestoredMirrors restores a backup, and clones every repository from before and after.
func TestRestoredMirrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	server := start(t, packhorsetest.Options{Dir: dir})
	remote := func(repo string) string {
		token := mustToken(t, server, repo, "git:write")
		return strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/" + repo + ".git"
	}
	histories := map[string]oracle.History{
		"large":  {Seed: 51, Commits: 300, Merges: true, Tags: true}, // is a segment
		"small":  {Seed: 52, Commits: 3},                             // is hot
		"binary": {Seed: 53, Commits: 40, Binary: true},
	}
	for repo, history := range histories {
		create(t, server, repo)
		git := oracle.New(t)
		git.Seed(history)
		git.Git("push", "--quiet", remote(repo), "refs/*:refs/*")
	}
	token := mustToken(t, server, "fork", "repo:write,git:read")
	fork(t, server, token, "large", mustToken(t, server, "large", "git:read"))
	create(t, server, "empty")
	repos := []string{"large", "small", "binary", "fork", "empty"}
	mirrors := func(when string) map[string]string {
		t.Helper()
		found := map[string]string{}
		for _, repo := range repos {
			mirror := oracle.Open(t, filepath.Join(dir, when, repo+".git"))
			mirror.Git("clone", "--quiet", "--mirror", remote(repo), mirror.Dir)
			mirror.Git("fsck", "--full", "--strict", "--no-dangling")
			found[repo] = mirror.Git("for-each-ref") + "\n" + mirror.Git("rev-list", "--all", "--objects", "--no-object-names") +
				"\n" + mirror.Git("symbolic-ref", "HEAD")
		}
		return found
	}
	before := mirrors("before")
	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 {
		t.Fatalf("backup: %+v", got)
	}
	commit(t, server, mustToken(t, server, "small", "git:write"), 9, 1000) // is not in the backup
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if got := packhorse(t, nil, "restore", dest, "--data", data); got.status != 0 {
		t.Fatalf("restore: %+v", got)
	}
	server = start(t, packhorsetest.Options{Dir: dir})
	for repo, after := range mirrors("after") {
		if after != before[repo] {
			t.Errorf("%s is restored as\n%.2000s\nand was\n%.2000s", repo, after, before[repo])
		}
	}
}

func mustToken(t *testing.T, server *packhorsetest.Server, repo, scope string) string {
	t.Helper()
	token, err := server.Token(t.Context(), repo, "--scope", scope)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// fork makes the repository of a token from another one.
func fork(t *testing.T, server *packhorsetest.Server, token, from, fromToken string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/repos",
		strings.NewReader(`{"base_repo":{"provider":"code","operation":"fork","owner":"`+packhorsetest.Org+`","name":"`+from+
			`","auth":{"token":"`+fromToken+`"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("fork: %s, %v", response.Status, err)
	}
}
