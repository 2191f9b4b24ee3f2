package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestFullGivesUpBlocks serves from a disk that is short of space, on which blocks of the bucket's
// files lie: they go.
func TestFullGivesUpBlocks(t *testing.T) {
	t.Parallel()
	stores, dir := newSharedStores(t), t.TempDir()
	areGone := func(server *packhorsetest.Server) bool { // the blocks
		t.Helper()
		_, text := call(t, http.DefaultClient, "GET", server.URL+"/metrics", "")
		if !strings.Contains(text, "\npackhorse_file_cache_bytes ") {
			t.Fatal("the metrics do not tell of blocks")
		}
		return strings.Contains(text, "\npackhorse_file_cache_bytes 0\n")
	}
	server := start(t, stores.options(dir, 0))
	token := create(t, server, "r")
	git := oracle.New(t)
	git.Seed(oracle.History{Commits: 3})
	large := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	git.Git("update-ref", "refs/tags/large", git.Write("blob", large))
	remote := func() string { return strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/r.git" }
	git.Git("push", "--quiet", remote(), "main", "large")
	if areGone(server) {
		t.Error("there are no blocks")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	options := stores.options(dir, 0)
	options.Flags = append(options.Flags, "--min-free", fmt.Sprint(1<<32, "GiB"))
	server = start(t, options)
	for !areGone(server) {
		time.Sleep(50 * time.Millisecond) // the disk is looked at once a second
	}
	clone := oracle.Open(t, filepath.Join(t.TempDir(), "clone.git"))
	clone.Git("clone", "--quiet", "--mirror", remote(), clone.Dir)
}
