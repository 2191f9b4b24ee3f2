package rest

import (
	"net/http"
	"time"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// DeleteRepository answers DELETE /repos/delete.
func (d *Door) DeleteRepository(x exchange.Exchange, grant *auth.Grant) error {
	var request dryRun
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	purge, err := flagOf(x, "purge", false)
	if err != nil {
		return err
	}
	id, err := repositoryID("repo_id", x.Query().Get("repo_id"))
	if err != nil {
		return err
	}
	if !purge && !id.IsZero() {
		return badRequest("repo_id: goes with purge=true")
	}
	by, err := d.actor(x, grant, grant.Repo, "DELETE /repos/delete")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	message := "repository deleted"
	var deleted engine.Deleted
	if purge {
		message = "repository deleted for good"
		sign(&by, body, "purge", id.String())
		deleted, err = d.host.PurgeRepository(x.Context(), by, grant.Repo, id)
	} else {
		sign(&by, body)
		deleted, err = d.host.DeleteRepository(x.Context(), by, grant.Repo)
	}
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, deleted.Sequence, struct {
		RepoID  string `json:"repo_id"`
		PurgeAt string `json:"purge_at,omitempty"`
		Message string `json:"message"`
	}{deleted.ID.String(), timestampOrNone(deleted.Purge), message})
}

// UndeleteRepository answers POST /repos/undelete.
func (d *Door) UndeleteRepository(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		RepoID string `json:"repo_id"`
		Name   string `json:"name"`
		dryRun
	}
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	id, err := repositoryID("repo_id", request.RepoID)
	if err != nil {
		return err
	}
	by, err := d.actor(x, grant, grant.Repo, "POST /repos/undelete")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	sign(&by, body)
	undelete := engine.UndeleteRequest{Name: grant.Repo, ID: id, As: request.Name}
	if config, ok := d.orgConfig(grant.Org); ok {
		undelete.CountMax = config.Limits.Repositories
	}
	back, err := d.host.Undelete(x.Context(), by, undelete)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, back.Sequence, repositoryOf(back.Item))
}

// deletedRepositories answers GET /repos?deleted=true.
func (d *Door) deletedRepositories(x exchange.Exchange, grant *auth.Grant, options engine.ListOptions) error {
	page, err := d.host.DeletedRepositories(x.Context(), grant.Org, options)
	if err != nil {
		return err
	}
	type item struct {
		repositoryJSON
		DeletedAt   string `json:"deleted_at"`
		DeletedBy   string `json:"deleted_by"`
		PurgeAt     string `json:"purge_at"`
		StoredBytes int64  `json:"stored_bytes"`
	}
	list := struct {
		Repos      []item `json:"repos"`
		NextCursor string `json:"next_cursor,omitempty"`
		HasMore    bool   `json:"has_more"`
	}{Repos: []item{}, NextCursor: page.Next, HasMore: page.Next != ""}
	for i := range page.Items {
		gone := &page.Items[i]
		list.Repos = append(list.Repos, item{
			repositoryOf(gone.Item), timestamp(gone.Deleted), gone.Actor, timestamp(gone.Purge), gone.Bytes,
		})
	}
	return answer(x, http.StatusOK, list)
}

// repositoryID reads the id of a repository from a field, "" for none.
func repositoryID(field, text string) (id refs.RepoID, err error) {
	if text == "" {
		return id, nil
	}
	if id, err = refs.ParseRepoID(text); err != nil || id.IsZero() {
		return id, badRequest("%s: expected the id of a repository, got %.60q", field, text)
	}
	return id, nil
}

func timestampOrNone(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return timestamp(at)
}
