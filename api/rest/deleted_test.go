package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestUndeleteLife deletes a repository, lists it, brings it back and purges it.
func TestUndeleteLife(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var made, back repository
	c.create("").want(http.StatusCreated).decode(&made)
	type listed struct {
		Repos []struct {
			repository
			DeletedAt string `json:"deleted_at"`
			PurgeAt   string `json:"purge_at"`
			Stored    *int64 `json:"stored_bytes"`
		}
	}
	list := func(query string) (found listed) {
		t.Helper()
		c.call(c.door.Repositories, http.MethodGet, "/"+query, nil).want(http.StatusOK).decode(&found)
		return found
	}
	undelete := func(body string) answer {
		return c.call(c.door.UndeleteRepository, http.MethodPost, "/", strings.NewReader(body))
	}
	undelete("").refused(http.StatusConflict, "exists")
	var deleted struct {
		RepoID  string `json:"repo_id"`
		PurgeAt string `json:"purge_at"`
	}
	c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK).decode(&deleted)
	found := list("?deleted=true")
	if len(found.Repos) != 1 || found.Repos[0].RepoID != made.RepoID || found.Repos[0].PurgeAt != deleted.PurgeAt ||
		found.Repos[0].DeletedAt == "" || found.Repos[0].Stored == nil || len(list("").Repos) != 0 ||
		len(list("?deleted=true&q=x").Repos) != 0 {
		t.Errorf("listed %+v", found)
	}
	for _, body := range []string{`{"repo_id":"x"}`, `{"repo_id":"00000000-0000-0000-0000-000000000000"}`} {
		undelete(body).refused(http.StatusBadRequest, "repo_id: expected")
	}
	undelete(`{"name":"a//b"}`).refused(http.StatusBadRequest, "name")
	undelete(`{"dry_run":true}`).want(http.StatusOK)
	undelete(`{"dry-run":true}`).refused(http.StatusBadRequest, "dry-run")
	if got := undelete(fmt.Sprintf(`{"repo_id":%q,"name":"again"}`, made.RepoID)).want(http.StatusOK); got.Header.Get(
		"X-Repo-Sequence") != "3" {
		t.Errorf("X-Repo-Sequence is %q", got.Header.Get("X-Repo-Sequence"))
	} else if got.decode(&back); back.RepoID != made.RepoID || back.RepoName != "again" {
		t.Errorf("brought back %+v", back)
	}
	undelete("").refused(http.StatusNotFound, "no repository was called")

	again := c.as("again")
	purge := func(query string) answer {
		return again.call(again.door.DeleteRepository, http.MethodDelete, "/"+query, nil)
	}
	purge("?repo_id="+made.RepoID).refused(http.StatusBadRequest, "purge")
	purge("?purge=yes").refused(http.StatusBadRequest, "purge")
	purge("?purge=true").want(http.StatusOK).decode(&deleted)
	purge("?purge=true").refused(http.StatusGone, "purged")
	again.call(again.door.UndeleteRepository, http.MethodPost, "/", nil).refused(http.StatusGone, "purged")
	if found := list("?deleted=true"); len(found.Repos) != 0 {
		t.Errorf("listed %+v", found)
	}
}
