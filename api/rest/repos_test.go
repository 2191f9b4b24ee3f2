package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

type repository struct {
	RepoID        string `json:"repo_id"`
	URL           string
	RepoName      string `json:"repo_name"`
	DefaultBranch string `json:"default_branch"`
	CreatedAt     string `json:"created_at"`
	Message       string
}

func TestRepositoryLife(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.call(c.door.Repository, http.MethodGet, "/", nil).refused(http.StatusNotFound, `"r"`)

	created := c.create(`{"default_branch":"trunk","unknown":[1]}`).want(http.StatusCreated)
	if got := created.Header.Get("X-Repo-Sequence"); got != "1" {
		t.Errorf("X-Repo-Sequence is %q, want 1", got)
	}
	var made, found repository
	created.decode(&made)
	if made.URL != "r" || made.DefaultBranch != "trunk" || made.RepoID == "" || made.Message == "" {
		t.Errorf("created %+v", made)
	}
	if at, err := time.Parse(time.RFC3339, made.CreatedAt); err != nil || at.Location() != time.UTC {
		t.Errorf("created_at is %q: %v", made.CreatedAt, err)
	}
	c.call(c.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK).decode(&found)
	if found.Message = made.Message; found != made {
		t.Errorf("found %+v, created %+v", found, made)
	}
	c.create("").refused(http.StatusConflict, "exists")

	c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK).decode(&found)
	if found.RepoID != made.RepoID || found.Message == "" {
		t.Errorf("deleted %+v", found)
	}
	c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).refused(http.StatusConflict, "deleted")
	c.as("never").call(c.door.DeleteRepository, http.MethodDelete, "/", nil).refused(http.StatusNotFound, "never")
	c.call(c.door.Repository, http.MethodGet, "/", nil).refused(http.StatusNotFound, `"r"`)

	c.create("").want(http.StatusCreated).decode(&found)
	if found.RepoID == made.RepoID || found.DefaultBranch != "main" {
		t.Errorf("the second of the name is %+v", found)
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"wrong type":        {`{"default_branch":1}`, 400, "default_branch"},
		"given twice":       {`{"default_branch":"a","default_branch":"b"}`, 400, "default_branch"},
		"no object":         {`[]`, 400, "object"},
		"malformed":         {`{"default_branch"`, 400, "JSON"},
		"two values":        {`{} {}`, 400, "JSON"},
		"bad branch":        {`{"default_branch":"a..b"}`, 400, "default_branch"},
		"no fork":           {`{"base_repo":null,"initial_commit":null}`, 201, ""},
		"body beyond limit": {`{"x":"` + strings.Repeat("y", 1<<20) + `"}`, 413, "limit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			got := c.as(strings.ReplaceAll(name, " ", "-")).create(test.body).want(test.status)
			if test.says != "" {
				got.refused(test.status, test.says)
			}
		})
	}
	c.as("bad name").create("").refused(http.StatusBadRequest, "name")
}

func TestRepositoriesPages(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var names []string
	for i := range 7 {
		name := fmt.Sprintf("team/Repo-%d", i)
		c.as(name).create("").want(http.StatusCreated)
		names = append(names, name)
	}
	c.as("team/Repo-3").call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK)
	names = append(names[:3], names[4:]...)

	type page struct {
		Repos   []repository
		Next    *string `json:"next_cursor"`
		HasMore *bool   `json:"has_more"`
	}
	var seen []string
	for target := "/?limit=4"; target != ""; {
		var p page
		c.call(c.door.Repositories, http.MethodGet, target, nil).want(http.StatusOK).decode(&p)
		for _, r := range p.Repos {
			seen = append(seen, r.URL)
		}
		if p.HasMore == nil || *p.HasMore != (p.Next != nil) {
			t.Fatalf("has_more and next_cursor disagree: %+v", p)
		}
		target = ""
		if p.Next != nil {
			target = "/?limit=4&cursor=" + *p.Next
		}
	}
	if strings.Join(seen, " ") != strings.Join(names, " ") {
		t.Errorf("listed %v, want %v", seen, names)
	}
	var p page
	c.call(c.door.Repositories, http.MethodGet, "/?q=repo-5", nil).want(http.StatusOK).decode(&p)
	if len(p.Repos) != 1 || p.Repos[0].URL != "team/Repo-5" {
		t.Errorf("q found %+v", p.Repos)
	}
	if p.Repos == nil || *p.HasMore {
		t.Errorf("page is %+v", p)
	}
	for _, bad := range []string{"limit=0", "limit=-1", "limit=x", "cursor=@@", "cursor=Zm9v"} {
		c.call(c.door.Repositories, http.MethodGet, "/?"+bad, nil).refused(http.StatusBadRequest, bad[:5])
	}
	c.call(c.door.Repositories, http.MethodGet, "/?limit=99999999999999999999", nil).want(http.StatusOK)
}

func TestCreateOnce(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	create := func(body, key string) answer {
		return c.call(c.door.CreateRepository, http.MethodPost, "/", strings.NewReader(body), "Idempotency-Key", key)
	}
	first := create(`{}`, "k").want(http.StatusCreated)
	again := create(`{}`, "k").want(http.StatusCreated)
	if string(first.Body) != string(again.Body) || again.Header.Get("X-Repo-Sequence") != "1" {
		t.Errorf("replayed %s, first was %s", again.Body, first.Body)
	}
	create(`{"default_branch":"x"}`, "k").refused(http.StatusConflict, "key")
	create(`{}`, "other").refused(http.StatusConflict, "exists")
	create(`{}`, "with space").refused(http.StatusBadRequest, "Idempotency-Key")

	remove := func() answer {
		return c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil, "Idempotency-Key", "d")
	}
	first = remove().want(http.StatusOK)
	if again = remove().want(http.StatusOK); string(first.Body) != string(again.Body) {
		t.Errorf("replayed %s, first was %s", again.Body, first.Body)
	}
}
