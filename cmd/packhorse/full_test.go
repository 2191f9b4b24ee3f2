package main_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestServeFull serves from a disk that is short of space: git and programs read, and get the
// reason why they cannot write.
func TestServeFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, packhorsetest.Options{Dir: dir})
	token := create(t, server, "r")
	git := oracle.New(t)
	git.Seed(oracle.History{Commits: 3})
	remote := func() string { return strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/r.git" }
	git.Git("push", "--quiet", remote(), "main")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	server = start(t, packhorsetest.Options{Dir: dir, Flags: []string{"--min-free", fmt.Sprint(1<<32, "GiB")}})
	const why = "writes are paused: "
	if status, text := call(t, http.DefaultClient, "GET", server.URL+"/readyz", ""); status != http.StatusOK ||
		!strings.Contains(text, why) {
		t.Errorf("readyz: %d %q", status, text)
	}
	if _, text := call(t, http.DefaultClient, "GET", server.URL+"/metrics", ""); !strings.Contains(text,
		"\npackhorse_writes_refused 1\n") {
		t.Error("the metrics do not tell")
	}
	if status, text := call(
		t, http.DefaultClient, "DELETE", server.URL+"/api/v1/repos/delete", token,
	); status != http.StatusServiceUnavailable {
		t.Errorf("delete: %d %s", status, text)
	}
	if _, err := git.Try(nil, "push", "--quiet", remote(), "main:refs/heads/other"); err == nil ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("push: %v", err)
	}
	clone := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "--depth", "1", remote(),
		filepath.Join(dir, "clone"))
	clone.Env = oracle.EnvOutside(dir)
	if told, err := clone.CombinedOutput(); err != nil {
		t.Errorf("clone: %v: %s", err, told)
	}
}
