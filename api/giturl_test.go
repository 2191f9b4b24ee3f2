package api_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/githttp"
	"packhorse/engine/enginetest"
)

// gitRemotes is a server with the repository "web/site", and a function that gives the URL of a
// path there.
func gitRemotes(t *testing.T, repo string) (f *fixture, url func(path string) string) {
	t.Helper()
	host := enginetest.Open(t)
	enginetest.Create(t, host, "web/site")
	door := githttp.New(githttp.Config{Host: host})
	f = serve(t, nil, func(c *api.Config) { c.Git = api.Git{Serve: door.Serve, Refuse: githttp.Refuse} })
	password := strings.TrimPrefix(token(repo, "git:write"), "Bearer ")
	return f, func(path string) string { return fmt.Sprintf("http://t:%s@%s/%s", password, f.address, path) }
}

// commitIn makes a repository with one commit in dir.
func commitIn(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "init", "-q", "-b", "main")
	must(os.WriteFile(filepath.Join(dir, "file"), []byte("text\n"), 0o600))
	run(t, dir, "git", "add", ".")
	run(t, dir, "git", "commit", "-q", "-m", "first")
}

// TestURLWithoutSuffix pushes, clones and fetches by URLs that do not end in .git.
func TestURLWithoutSuffix(t *testing.T) {
	t.Parallel()
	_, url := gitRemotes(t, "web/site")
	dir := t.TempDir()
	commitIn(t, dir)
	tip := run(t, dir, "git", "rev-parse", "HEAD")
	run(t, dir, "git", "push", "-q", url("web/site"), "main")
	run(t, dir, "git", "push", "-q", url("web/site+ephemeral"), "main:draft")
	for version := range 3 {
		clone := filepath.Join(dir, fmt.Sprint("clone", version))
		run(t, dir, "git", "-c", fmt.Sprint("protocol.version=", version), "clone", "-q", url("web/site"), clone)
		if got := run(t, clone, "git", "rev-parse", "HEAD"); got != tip {
			t.Errorf("version %d: the clone is at %q, want %q", version, got, tip)
		}
		if got := run(t, clone, "git", "fetch", url("web/site/")); strings.Contains(got, "fatal") {
			t.Errorf("version %d: fetch: %s", version, got)
		}
	}
	if got := run(t, dir, "git", "ls-remote", url("web/site+ephemeral"), "draft"); !strings.HasPrefix(got,
		strings.TrimSpace(tip)) {
		t.Errorf("the ephemeral remote has %q", got)
	}
}

// TestPushToNothing pushes to a repository that is not there.
func TestPushToNothing(t *testing.T) {
	t.Parallel()
	f, url := gitRemotes(t, "new")
	dir := t.TempDir()
	commitIn(t, dir)
	got := run(t, dir, "git", "push", url("new.git"), "main")
	for _, line := range []string{
		`remote: repository "new" not found: create it with a token that has the scope repo:write:`,
		`remote:   curl -X POST -H "Authorization: Bearer $TOKEN" http://` + f.address + "/api/v1/repos",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("push: %s", got)
		}
	}
	if got := run(t, dir, "git", "ls-remote", url("new.git")); !strings.Contains(got, `repository "new" not found`) ||
		strings.Contains(got, "create") {
		t.Errorf("ls-remote: %s", got)
	}
}

// TestLFS asks as clients of git LFS do.
func TestLFS(t *testing.T) {
	t.Parallel()
	f, _ := gitRemotes(t, "web/site")
	for _, call := range []string{
		"POST /web/site.git/info/lfs/objects/batch", "POST /web/site/info/lfs/objects/batch",
		"POST /web/site.git/info/lfs/locks/verify",
		"GET /web/site.git/info/lfs/locks", "POST /none.git/info/lfs/objects/batch",
	} {
		c := f.dial(t)
		c.send(call + " HTTP/1.1\nHost: x\nContent-Type: application/vnd.git-lfs+json\nContent-Length: 2\n\n{}")
		method, _, _ := strings.Cut(call, " ")
		a := c.receive(method)
		if a.StatusCode != http.StatusNotImplemented || a.Header.Get("Content-Type") != "application/vnd.git-lfs+json" ||
			!strings.Contains(a.body, `{"message": "Packhorse stores large files in git itself; `) {
			t.Errorf("%s: status %d, %s: %s", call, a.StatusCode, a.Header.Get("Content-Type"), a.body)
		}
	}
}
