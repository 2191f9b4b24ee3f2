package main_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// testExport exports what was imported.
func testExport(t *testing.T, server *packhorsetest.Server) {
	t.Helper()
	repo := oracle.NewAt(t, filepath.Join(t.TempDir(), "site.git"))
	repo.Seed(oracle.History{Seed: 9, Commits: 60, Merges: true, Tags: true, Binary: true})
	repo.Git("tag", "-a", "-m", "a tag", "annotated", "main")
	repo.Git("notes", "add", "-m", "a note", "main")
	if got := imported(t, server, repo.Dir); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	export := func(name, dir string) result {
		return packhorse(t, nil, append(append([]string{"export"}, apiArgs(server, server.URL)...), name, dir)...)
	}
	dir := filepath.Join(t.TempDir(), "out.git")
	if got := export("site", dir); got.status != 0 || !strings.HasPrefix(got.out, "exported site to ") {
		t.Fatalf("%+v", got)
	}
	out := oracle.Open(t, dir)
	out.Git("fsck", "--strict", "--full")
	if got, want := contentOf(out), contentOf(repo); got != want {
		t.Errorf("exported\n%s\nwant\n%s", got, want)
	}
	if got := export("site", dir); got.status != 2 || !strings.Contains(got.errOut, dir+" exists: expected a folder that does not") {
		t.Errorf("over a folder that exists: %+v", got)
	}
	if got := export("absent", dir+"2"); got.status != 1 || !strings.Contains(got.errOut, `repository "absent" not found`) {
		t.Errorf("a repository that does not exist: %+v", got)
	}
}

// TestRepos also exports: a server of its own costs more than that.
func TestRepos(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	for _, name := range []string{"web/site", "other"} {
		create(t, server, name)
	}
	testExport(t, server)
	repos := func(call string, args ...string) result {
		return packhorse(t, nil, append(append([]string{"repos", call}, apiArgs(server, server.URL)...), args...)...)
	}
	if got := repos("list", "B/SITE"); got.status != 0 || strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, `"repo_name":"web/site"`) {
		t.Errorf("list: %+v", got)
	}
	if got := repos("rename", "web/site", "web/home"); got.status != 0 || got.out != "renamed web/site to web/home\n" {
		t.Errorf("rename: %+v", got)
	}
	if got := repos("set-default", "web/home", "trunk"); got.status != 0 || got.out != "the default branch of web/home is trunk\n" {
		t.Errorf("set-default: %+v", got)
	}
	if got := repos("show", "web/home"); !strings.Contains(got.out, `"default_branch":"trunk"`) {
		t.Errorf("show after set-default: %+v", got)
	}
	if got := repos("set-default", "web/home", "a..b"); got.status != 1 || !strings.Contains(got.errOut, "400") {
		t.Errorf("set-default to no name: %+v", got)
	}
	if got := repos("rename", "web/home", "other"); got.status != 1 || !strings.Contains(got.errOut, "409") {
		t.Errorf("rename to a name that is taken: %+v", got)
	}
	var shown struct {
		ID   string `json:"repo_id"`
		Name string `json:"repo_name"`
		Refs *int
	}
	if got := repos("show", "web/home"); json.Unmarshal([]byte(got.out), &shown) != nil || shown.Name != "web/home" || shown.Refs == nil {
		t.Errorf("show: %+v", got)
	}
	if got := repos("delete", "web/home"); got.status != 0 || !strings.HasPrefix(got.out, "deleted web/home, which was "+shown.ID+"; undelete brings it back until ") {
		t.Errorf("delete: %+v", got)
	}
	if got := repos("show", "web/home"); got.status != 1 || !strings.Contains(got.errOut, "404") {
		t.Errorf("show what was deleted: %+v", got)
	}
	if got := repos("list", "--deleted"); got.status != 0 || strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, shown.ID) {
		t.Errorf("list --deleted: %+v", got)
	}
	if got := repos("undelete", "web/home", "--id", shown.ID, "--as", "again"); got.out != shown.ID+" is back, as again\n" {
		t.Errorf("undelete: %+v", got)
	}
	if got := repos("show", "again"); got.status != 0 || !strings.Contains(got.out, shown.ID) {
		t.Errorf("show what is back: %+v", got)
	}
}
