package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/refs"
)

// restore sends metadata, which is JSON without braces.
func (c *client) restore(metadata string) answer {
	c.t.Helper()
	return c.post(c.door.RestoreCommit, `{"metadata":{`+metadata+`}}`)
}

func TestRestoreCommit(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	first, tip := done[0].Commit, done[2].Commit
	to := func(branch, commit string) string {
		return fmt.Sprintf(`"target_branch":%q,"target_commit_sha":%q,%s`, branch, commit, author)
	}
	got := c.restore(to("main", first.SHA) + `,"expected_head_sha":"` + tip.SHA + `"`).want(http.StatusCreated)
	var restored committed
	got.decode(&restored)
	if restored.Commit.Tree != first.Tree || restored.Commit.Branch != "main" || restored.Commit.PackBytes <= 0 ||
		restored.Commit.BlobCount != nil {
		t.Errorf("commit is %s, want the tree %s", got.Body, first.Tree)
	}
	if r := restored.Result; r.OldSHA != tip.SHA || r.NewSHA != restored.Commit.SHA || !r.Success || r.Status != "ok" {
		t.Errorf("result is %s", got.Body)
	}
	if got.Header.Get("X-Repo-Sequence") == "" {
		t.Error("no X-Repo-Sequence")
	}
	// The tree is that of the tip already; a commit is made all the same, here with a message and a
	// committer.
	var again committed
	c.restore(to("main", first.SHA) + `,"commit_message":"again","committer":{"name":"C","email":"c@example.com"}`).
		want(http.StatusCreated).decode(&again)
	if again.Result.OldSHA != restored.Commit.SHA || again.Commit.Tree != first.Tree {
		t.Errorf("the second is %+v on %s", again, restored.Commit.SHA)
	}
	var page struct {
		Commits []struct {
			SHA, Message string
			Committer    string `json:"committer_email"`
		}
	}
	c.call(c.door.Commits, http.MethodGet, "/?limit=2", nil).want(http.StatusOK).decode(&page)
	if m := page.Commits[0]; m.Message != "again" || m.Committer != "c@example.com" {
		t.Errorf("the newest commit is %+v", m)
	}
	if m := page.Commits[1]; !strings.Contains(m.Message, first.SHA) || m.Committer != "a@example.com" {
		t.Errorf("without a message the commit says %+v, want it to name %s", m, first.SHA)
	}

	c.post(c.door.CreateBranch, `{"target_branch":"spike","base_branch":"dev","target_is_ephemeral":true}`).
		want(http.StatusCreated)
	c.bound("refs/namespaces/*", refs.NoForcePush).restore(to("spike", first.SHA) + `,"ephemeral":true`).
		want(http.StatusCreated).decode(&again)
	if again.Result.OldSHA != done[3].Commit.SHA {
		t.Errorf("the ephemeral branch was at %s, want %s", again.Result.OldSHA, done[3].Commit.SHA)
	}
}

func TestRestoreCommitRefuses(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	good := fmt.Sprintf(`"target_branch":"main","target_commit_sha":%q,%s`, done[0].Commit.SHA, author)
	with := func(changes ...string) string {
		return `{"metadata":{` + strings.NewReplacer(changes...).Replace(good) + `}}`
	}
	tests := map[string]struct {
		body   string
		status int
		says   string
		word   string // result.status
	}{
		"no body":           {``, 400, "JSON object", "invalid"},
		"no metadata":       {`{}`, 400, "metadata", "invalid"},
		"wrong type":        {with(`"main"`, `3`), 400, "target_branch", "invalid"},
		"no target":         {with(`"target_branch":"main",`, ``), 400, "target_branch", "invalid"},
		"target with refs/": {with(`"main"`, `"refs/heads/main"`), 400, "target_branch", "invalid"},
		"bad target":        {with(`"main"`, `"a..b"`), 400, "target_branch", "invalid"},
		"no commit": {
			with(`"target_commit_sha":"`+done[0].Commit.SHA+`",`, ``), 400, "target_commit_sha", "invalid",
		},
		"short commit":        {with(done[0].Commit.SHA, done[0].Commit.SHA[:10]), 400, "target_commit_sha", "invalid"},
		"no author":           {with(`,`+author, ``), 400, "author", "invalid"},
		"no author email":     {with(`"a@example.com"`, `""`), 400, "author", "invalid"},
		"bad expectation":     {with(author, author+`,"expected_head_sha":"x"`), 400, "expected_head_sha", "invalid"},
		"no such branch":      {with(`"main"`, `"nope"`), 404, "nope", "not_found"},
		"no branch from base": {with(`"main"`, `"nope","base_branch":"main"`), 404, "nope", "not_found"},
		"unknown commit":      {with(done[0].Commit.SHA, strings.Repeat("1", 40)), 404, "1111", "not_found"},
		"a tree":              {with(done[0].Commit.SHA, done[0].Commit.Tree), 404, done[0].Commit.Tree, "not_found"},
		"another tip": {
			with(author, author+`,"expected_head_sha":"`+done[0].Commit.SHA+`"`), 409, done[2].Commit.SHA, "precondition_failed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			r := c.post(c.door.RestoreCommit, test.body).refused(test.status, test.says)
			if r.Result == nil || r.Result.Status != test.word || r.Result.Success || r.Result.Message != r.Error {
				t.Errorf("result is %+v, want the status %s and the message %q", r.Result, test.word, r.Error)
			}
		})
	}
	c.as("nope").restore(good).refused(http.StatusNotFound, "nope")
	if r := c.bound("main", refs.NoPush).restore(good).
		refused(http.StatusForbidden, "denied by policy"); r.Result.Status != "forbidden" {
		t.Errorf("result is %+v", r.Result)
	}
	if _, tips := c.tips(""); tips[0] != done[2].Commit.SHA {
		t.Errorf("after refusals main is at %s, want %s", tips[0], done[2].Commit.SHA)
	}
}
