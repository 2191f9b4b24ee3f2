package rest_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestRename gives a repository another name, and looks for it by both.
func TestRename(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.as("taken").create("").want(http.StatusCreated)
	c.commit("main", "a", "a")
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{}`:                                     {http.StatusBadRequest, "name or default_branch is required"},
		`{"name":""}`:                            {http.StatusBadRequest, "name"},
		`{"name":7}`:                             {http.StatusBadRequest, "name"},
		`{"name":"a/../b"}`:                      {http.StatusBadRequest, "name"},
		`{"name":"a.git"}`:                       {http.StatusBadRequest, "name"},
		`{"name":"org"}`:                         {http.StatusBadRequest, "reserved"},
		`{"name":"taken"}`:                       {http.StatusConflict, `repository "taken" already exists`},
		`{"name":"x","default_branch":"absent"}`: {http.StatusNotFound, `branch "absent" not found`},
		`{"name":"taken","default_branch":"main"}`: {http.StatusConflict, "already exists"},
	} {
		c.patch(body).refused(want.status, want.says)
	}
	if got := c.defaultBranch(); got != "main" {
		t.Errorf("after refusals the default branch is %q", got)
	}
	var before, after repository
	c.call(c.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK).decode(&before)
	c.patch(`{"name":"r"}`).want(http.StatusOK) // its own name

	const body = `{"name":"own/er"}`
	done := c.patch(body, "Idempotency-Key", "k").want(http.StatusOK)
	done.decode(&after)
	if after.URL != "own/er" || after.RepoName != "own/er" || after.RepoID != before.RepoID {
		t.Errorf("renamed %+v to %+v", before, after)
	}
	c.call(c.door.Repository, http.MethodGet, "/", nil).refused(http.StatusNotFound, `repository "r" not found`)
	c.patch(`{"name":"other"}`).refused(http.StatusNotFound, "not found")
	if got := c.as("own/er").call(c.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK); !strings.Contains(
		string(got.Body), before.RepoID) {
		t.Errorf("by its new name: %s", got.Body)
	}
	again := c.patch(body, "Idempotency-Key", "k").want(http.StatusOK)
	if string(again.Body) != string(done.Body) {
		t.Errorf("replayed %s, first %s", again.Body, done.Body)
	}
	c.patch(`{"name":"own/other"}`, "Idempotency-Key", "k").refused(http.StatusConflict, "idempotency key")

	var page struct{ Repos []repository }
	c.call(c.door.Repositories, http.MethodGet, "/?q=%20own%20", nil).want(http.StatusOK).decode(&page)
	if len(page.Repos) != 1 || page.Repos[0].URL != "own/er" {
		t.Errorf("the listing has %+v", page.Repos)
	}
	c.call(c.door.Repositories, http.MethodGet, "/?q=%20", nil).want(http.StatusOK).decode(&page)
	if len(page.Repos) != 2 {
		t.Errorf("a blank filter leaves %+v", page.Repos)
	}
	c.create("").want(http.StatusCreated) // the old name is free
	c.as("own/er").patch(`{"name":"r"}`).refused(http.StatusConflict, "already exists")
}
