package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// begin commits one file to the branch that target names.
func (c *client) begin(target, message, path string) answer {
	c.t.Helper()
	fields := fmt.Sprintf(`%s,"commit_message":%q,%s,"files":[{"path":%q,"content_id":"1"}]`, target, message, author,
		path)
	return c.commitPack(newPack(fields).chunk("1", path, true))
}

// defaultBranch is the default branch in GET /repo.
func (c *client) defaultBranch() string {
	c.t.Helper()
	var found repository
	c.call(c.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK).decode(&found)
	return found.DefaultBranch
}

func (c *client) patch(body string, headers ...string) answer {
	c.t.Helper()
	return c.call(c.door.ChangeRepository, http.MethodPatch, "/", strings.NewReader(body), headers...)
}

// TestDefaultBranchMoves follows the default branch through the calls that know it.
func TestDefaultBranchMoves(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.begin(`"target_branch":"dev"`, "one", "a.txt").want(http.StatusCreated)
	if got := c.defaultBranch(); got != "dev" {
		t.Errorf("after the first commit, on dev, the default branch is %q", got)
	}
	c.begin(`"target_branch":"next","base_branch":"dev"`, "two", "b.txt").want(http.StatusCreated)

	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{}`:                          {http.StatusBadRequest, "default_branch is required"},
		``:                            {http.StatusBadRequest, "JSON object"},
		`{"default_branch":null}`:     {http.StatusBadRequest, "default_branch"},
		`{"default_branch":""}`:       {http.StatusBadRequest, "default_branch"},
		`{"default_branch":"a..b"}`:   {http.StatusBadRequest, "default_branch"},
		`{"default_branch":7}`:        {http.StatusBadRequest, "default_branch"},
		`{"default_branch":"absent"}`: {http.StatusNotFound, `branch "absent" not found`},
	} {
		c.patch(body).refused(want.status, want.says)
	}
	if got := c.defaultBranch(); got != "dev" {
		t.Errorf("after refusals the default branch is %q", got)
	}

	var moved repository
	done := c.patch(`{"default_branch":"next"}`, "Idempotency-Key", "k").want(http.StatusOK)
	done.decode(&moved)
	sequence := done.Header.Get("X-Repo-Sequence")
	if moved.DefaultBranch != "next" || moved.URL != "r" || sequence != "4" {
		t.Errorf("moved %+v at %s", moved, sequence)
	}
	var page struct {
		Repos []repository
		Paths []string
		Ref   string
	}
	c.call(c.door.Repositories, http.MethodGet, "/", nil).want(http.StatusOK).decode(&page)
	c.call(c.door.Files, http.MethodGet, "/", nil, "X-Min-Sequence", sequence).want(http.StatusOK).decode(&page)
	if page.Repos[0].DefaultBranch != "next" || page.Ref != "next" || len(page.Paths) != 2 {
		t.Errorf("afterwards: %+v", page)
	}
	var log struct{ Commits []struct{ Message string } }
	c.call(c.door.Commits, http.MethodGet, "/", nil).want(http.StatusOK).decode(&log)
	if len(log.Commits) != 2 || log.Commits[0].Message != "two" {
		t.Errorf("commits without a branch: %+v", log)
	}
	remove := func(name string) answer {
		return c.call(c.door.DeleteBranch, http.MethodDelete, "/", strings.NewReader(fmt.Sprintf(`{"name":%q}`, name)))
	}
	remove("next").refused(http.StatusConflict, "default branch")
	remove("dev").want(http.StatusOK)

	// The key replays its answer, whatever has become of the branch.
	again := c.patch(`{"default_branch":"next"}`, "Idempotency-Key", "k").want(http.StatusOK)
	if string(again.Body) != string(done.Body) || again.Header.Get("X-Repo-Sequence") != sequence {
		t.Errorf("replayed %s, first %s", again.Body, done.Body)
	}
}

// TestDefaultBranchOfEmpty chooses one before there is any branch: the first branch does not
// replace it then.
func TestDefaultBranchOfEmpty(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(c *client){
		"asked for": func(c *client) { c.create(`{"default_branch":"trunk"}`).want(http.StatusCreated) },
		"moved": func(c *client) {
			c.create("").want(http.StatusCreated)
			c.patch(`{"default_branch":"trunk"}`).want(http.StatusOK)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t)
			choose(c)
			c.begin(`"target_branch":"dev"`, "one", "a").refused(http.StatusNotFound, `branch "dev" not found`)
			c.begin(`"target_branch":"trunk"`, "one", "a").want(http.StatusCreated)
			if got := c.defaultBranch(); got != "trunk" {
				t.Errorf("the default branch is %q", got)
			}
		})
	}
}
