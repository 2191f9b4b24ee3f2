//go:build clients

package clienttest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
	"packhorse/odb/odbtest"
)

var (
	bin     string // the binary under test, built once
	scratch string // folder that tests share
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "packhorse-clients-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		if bin, err = packhorsetest.Build(context.Background(), scratch, "invariants"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return postgrestest.Main(m)
	}())
}

// start runs a server until the test ends, of the binary under test unless options name another.
// Its output is shown when the test fails. Where tests are run over shared stores it is one of the
// servers that share a database and a bucket, which are made for it.
func start(t *testing.T, options packhorsetest.Options) *packhorsetest.Server {
	t.Helper()
	options.Bin = cmp.Or(options.Bin, bin)
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	if odbtest.Shared() {
		files, env := s3test.Start(t).Place(t)
		options.Rows = postgrestest.Database(t)
		options.Env = append(options.Env, env...)
		options.Flags = append(options.Flags, "--keys", options.Rows, "--files", files)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := packhorsetest.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(server.Output())
		}
	})
	return server
}

// token signs a token for a repository; flags are those of packhorse token.
func token(t *testing.T, server *packhorsetest.Server, repo string, flags ...string) string {
	t.Helper()
	token, err := server.Token(t.Context(), repo, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// createRepository makes an empty repository, with a default branch if one is named, and returns
// its URL with credentials to read and write it.
func createRepository(t *testing.T, server *packhorsetest.Server, repo string, branch ...string) string {
	t.Helper()
	settings := "{}"
	if len(branch) > 0 {
		settings = fmt.Sprintf(`{"default_branch": %q}`, branch[0])
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/repos",
		strings.NewReader(settings))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token(t, server, repo, "--scope", "repo:write"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("create %s: %s: %s", repo, response.Status, body)
	}
	return withToken(server.URL, token(t, server, repo)) + "/" + repo + ".git"
}

// withToken puts a token into a URL, as git takes it.
func withToken(url, token string) string {
	return strings.Replace(url, "://", "://t:"+token+"@", 1)
}

// command runs a client in a folder and returns its output; the test fails when the client does.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// try is command for clients that may fail.
func try(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second // for child processes of the client, when it has to be ended
	cmd.Env = append(environment(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Git", "GIT_AUTHOR_EMAIL=git@example.com", "GIT_COMMITTER_NAME=Git",
		"GIT_COMMITTER_EMAIL=git@example.com")
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// environment is the machine's, which package managers need, without variables that would lead git
// outside its folder or any client through a proxy to the server.
func environment() []string {
	kept := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	return append(kept, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
}

// need skips the test when a program is not installed.
func need(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("skipped: %s is not installed", names[0])
	return ""
}

// writerIn returns what writes files of a folder, by paths below it, and makes the folders above.
func writerIn(t *testing.T, dir string) func(path, text string) {
	t.Helper()
	return func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// seed makes a repository with branches, tags, a merge, a link, an executable and some history, and
// returns its folder.
func seed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) { command(t, dir, nil, "git", args...) }
	write := writerIn(t, dir)
	git("init", "-q", "-b", "main")
	for i := range 40 {
		write(fmt.Sprintf("src/part%d/file.txt", i%7), strings.Repeat(fmt.Sprintf("line %d\n", i), 50+i))
		write("README.md", fmt.Sprintf("# seed\n\nversion %d\n", i))
		git("add", ".")
		git("commit", "-q", "-m", fmt.Sprintf("commit %d", i))
	}
	if err := os.Symlink("README.md", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	write("run.sh", "#!/bin/sh\necho run\n")
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	git("add", ".")
	git("commit", "-q", "-m", "modes")
	git("checkout", "-q", "-b", "topic", "HEAD~5")
	write("topic.txt", "topic\n")
	git("add", ".")
	git("commit", "-q", "-m", "topic")
	git("checkout", "-q", "main")
	git("merge", "-q", "--no-ff", "-m", "merge topic", "topic")
	git("tag", "-a", "-m", "version one", "v1")
	git("tag", "light", "HEAD~3")
	return dir
}

// pushAll pushes every branch and tag.
func pushAll(t *testing.T, dir, url string) {
	t.Helper()
	command(t, dir, nil, "git", "push", "-q", url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
}

// tip returns the ID of a ref of a remote.
func tip(t *testing.T, url, ref string, env ...string) string {
	t.Helper()
	id, _, _ := strings.Cut(command(t, t.TempDir(), env, "git", "ls-remote", url, ref), "\t")
	return id
}
