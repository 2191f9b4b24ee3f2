package rest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// newForkClient returns a client whose door takes the names of repositories as tokens that read
// them, and some more.
func newForkClient(t *testing.T) *client {
	t.Helper()
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: enginetest.Open(t), Verify: func(token string) (*auth.Grant, error) {
		grant := &auth.Grant{Org: enginetest.Org, Repo: token, Scopes: auth.GitRead}
		switch token {
		case "expired":
			return nil, &auth.Error{Status: http.StatusUnauthorized, Code: code.TokenExpired, Message: "invalid token: expired"}
		case "writer":
			grant.Repo, grant.Scopes = "r", auth.RepoWrite
		case "stranger":
			grant.Repo, grant.Org = "r", "other"
		case "broken":
			return nil, errors.New("the verifier is broken")
		}
		return grant, nil
	}})
	return c
}

const (
	forkOfR     = `"provider":"code","operation":"fork","owner":"acme","name":"r","auth":{"token":"r"}`
	snapshotOfR = `"provider":"code.storage","operation":"snapshot","name":"r","auth":{"token":"r"}`
	first       = `"initial_commit":{"message":"first",` + author + `}`
)

func TestForkRefuses(t *testing.T) {
	t.Parallel()
	c := newForkClient(t)
	c.create("").want(http.StatusCreated)
	c.commit("main", "a", "b")
	without := func(text, part string) string { return `{"base_repo":{` + strings.Replace(text, part, "", 1) + `}}` }
	with := func(text, part, other string) string {
		return `{"base_repo":{` + strings.Replace(text, part, other, 1) + `}}`
	}
	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"no provider":          {without(forkOfR, `"provider":"code",`), 400, "provider"},
		"upstream":             {with(forkOfR, `"code"`, `"github"`), 400, "base_repo.operation"},
		"no operation":         {without(forkOfR, `"operation":"fork",`), 400, "operation"},
		"strange operation":    {with(forkOfR, `"fork"`, `"spoon"`), 400, "operation"},
		"fork of code.storage": {with(forkOfR, `"code"`, `"code.storage"`), 400, "operation"},
		"no name":              {without(forkOfR, `"name":"r",`), 400, "name"},
		"wrong type":           {with(forkOfR, `"name":"r"`, `"name":1`), 400, "base_repo.name"},
		"given twice":          {with(forkOfR, `"name":"r"`, `"name":"r","name":"r"`), 400, "twice"},
		"no auth":              {without(forkOfR, `,"auth":{"token":"r"}`), 400, "auth.token"},
		"no token":             {with(forkOfR, `"token":"r"`, ``), 400, "auth.token"},
		"expired token":        {with(forkOfR, `"token":"r"`, `"token":"expired"`), 401, "expired"},
		"no scope":             {with(forkOfR, `"token":"r"`, `"token":"writer"`), 403, "git:read"},
		"another organization": {with(forkOfR, `"token":"r"`, `"token":"stranger"`), 403, "organization"},
		"another owner":        {with(forkOfR, `"owner":"acme"`, `"owner":"other"`), 403, "organization"},
		"another repository":   {with(forkOfR, `"token":"r"`, `"token":"s"`), 403, "another repository"},
		"broken verifier":      {with(forkOfR, `"token":"r"`, `"token":"broken"`), 500, "internal"},
		"no such base": {
			with(forkOfR, `"name":"r","auth":{"token":"r"}`, `"name":"s","auth":{"token":"s"}`), 404, `"s"`,
		},
		"no such ref":          {with(forkOfR, `"name":"r"`, `"name":"r","ref":"gone"`), 404, "gone"},
		"no such commit":       {with(forkOfR, `"name":"r"`, `"name":"r","sha":"`+strings.Repeat("1", 40)+`"`), 404, "1111"},
		"no commit":            {with(forkOfR, `"name":"r"`, `"name":"r","sha":"main"`), 400, "sha"},
		"no such default":      {`{"default_branch":"gone","base_repo":{` + forkOfR + `}}`, 404, "gone"},
		"bad default":          {`{"default_branch":"a..b","base_repo":{` + forkOfR + `}}`, 400, "default_branch"},
		"fork with a commit":   {`{"base_repo":{` + forkOfR + `},` + first + `}`, 400, "snapshot"},
		"commit without base":  {`{` + first + `}`, 400, "base_repo"},
		"snapshot without one": {`{"base_repo":{` + snapshotOfR + `}}`, 400, "initial_commit"},
		"no message": {
			`{"base_repo":{` + snapshotOfR + `},"initial_commit":{` + author + `}}`, 400, "initial_commit.message",
		},
		"no author": {`{"base_repo":{` + snapshotOfR + `},"initial_commit":{"message":"m"}}`, 400, "author"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &client{t: t, door: c.door, grant: c.grant}
			target := c.as("new-" + strings.ReplaceAll(name, " ", "-"))
			target.create(test.body).refused(test.status, test.says)
			target.call(target.door.Repository, http.MethodGet, "/", nil).want(http.StatusNotFound)
		})
	}
	c.create(`{"base_repo":{`+forkOfR+`}}`).refused(http.StatusConflict, "exists")
}

func TestForkAndSnapshot(t *testing.T) {
	t.Parallel()
	c := newForkClient(t)
	c.create(`{"default_branch":"main"}`).want(http.StatusCreated)
	old := c.commit("main", "a", "one")
	tip := c.commit("main", "a", "two")
	side := c.commit("zeta", "b", "three")
	c.commit("alpha", "c", "four")

	type branches struct {
		Branches []struct {
			Name string
			Head string `json:"head_sha"`
		}
	}
	list := func(c *client) string {
		t.Helper()
		var found branches
		c.call(c.door.Branches, http.MethodGet, "/", nil).want(http.StatusOK).decode(&found)
		var text []string
		for _, b := range found.Branches {
			text = append(text, b.Name+" "+b.Head)
		}
		return strings.Join(text, "\n")
	}
	body := func(more string) string { return `{"base_repo":{` + forkOfR + more + `}}` }
	tests := map[string]struct {
		body, want, branch string
	}{
		"whole":        {body(""), list(c), "main"},
		"by branch":    {body(`,"ref":"zeta"`), "zeta " + side.Commit.SHA, "zeta"},
		"by sha":       {body(`,"ref":"zeta","sha":"` + old.Commit.SHA + `"`), "main " + old.Commit.SHA, "main"},
		"by short sha": {body(`,"sha":"` + old.Commit.SHA[:9] + `"`), "main " + old.Commit.SHA, "main"},
		"under a new name": {
			`{"default_branch":"trunk","base_repo":{` + forkOfR + `,"ref":"main"}}`, "trunk " + tip.Commit.SHA, "trunk",
		},
		"another as default": {`{"default_branch":"alpha","base_repo":{` + forkOfR + `}}`, list(c), "alpha"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := (&client{t: t, door: c.door, grant: c.grant}).as("fork-" + strings.ReplaceAll(name, " ", "-"))
			created := f.create(test.body).want(http.StatusCreated)
			if got := created.Header.Get("X-Repo-Sequence"); got != "1" {
				t.Errorf("X-Repo-Sequence is %q", got)
			}
			var item repository
			created.decode(&item)
			if got := list(f); got != test.want || item.DefaultBranch != test.branch {
				t.Errorf("default branch %q, branches\n%s\nwant %q\n%s", item.DefaultBranch, got, test.branch, test.want)
			}
			f.call(f.door.File, http.MethodGet, "/?path=a&ref="+old.Commit.SHA, nil).want(http.StatusOK)
			if strings.HasPrefix(name, "by ") && strings.Contains(name, "sha") {
				f.call(f.door.File, http.MethodGet, "/?path=a&ref="+tip.Commit.SHA, nil).refused(http.StatusNotFound,
					tip.Commit.SHA)
				f.call(f.door.File, http.MethodGet, "/?path=a&ref="+tip.Commit.SHA[:12], nil).want(http.StatusNotFound)
				f.call(f.door.Commits, http.MethodGet, "/?branch="+tip.Commit.SHA, nil).want(http.StatusNotFound)
			}
		})
	}

	s := c.as("snapshot")
	request := `{"base_repo":{` + snapshotOfR + `,"ref":"zeta"},` + first + `}`
	again := s.call(s.door.CreateRepository, http.MethodPost, "/", strings.NewReader(request), "Idempotency-Key", "k").
		want(http.StatusCreated)
	replay := s.call(s.door.CreateRepository, http.MethodPost, "/", strings.NewReader(request), "Idempotency-Key", "k").
		want(http.StatusCreated)
	if string(again.Body) != string(replay.Body) {
		t.Errorf("replayed as %s, was %s", replay.Body, again.Body)
	}
	var commits struct {
		Commits []struct {
			SHA     string
			Parents []string `json:"parent_shas"`
			Message string
		}
	}
	s.call(s.door.Commits, http.MethodGet, "/", nil).want(http.StatusOK).decode(&commits)
	if len(commits.Commits) != 1 || len(commits.Commits[0].Parents) != 0 ||
		!strings.HasPrefix(commits.Commits[0].Message, "first") {
		t.Fatalf("the snapshot has commits %+v", commits)
	}
	if got := list(s); got != "zeta "+commits.Commits[0].SHA {
		t.Errorf("the snapshot has branches %s", got)
	}
	for path, content := range map[string]string{"a": "two", "b": "three"} {
		if got := s.call(s.door.File, http.MethodGet, "/?path="+path, nil).want(http.StatusOK); string(got.Body) != content {
			t.Errorf("%s is %q", path, got.Body)
		}
	}
	s.call(s.door.File, http.MethodGet, "/?path=a&ref="+tip.Commit.SHA, nil).refused(http.StatusNotFound, tip.Commit.SHA)
	s.commit("zeta", "d", "five")
	c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK)
	s.call(s.door.File, http.MethodGet, "/?path=b", nil).want(http.StatusOK)
	c.as("late").create(`{"base_repo":{`+forkOfR+`}}`).refused(http.StatusNotFound, `"r"`)
}
