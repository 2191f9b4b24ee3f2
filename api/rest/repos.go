package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// CreateRepository answers POST /repos.
func (d *Door) CreateRepository(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		DefaultBranch string             `json:"default_branch"`
		BaseRepo      *baseRepoJSON      `json:"base_repo"`
		InitialCommit *initialCommitJSON `json:"initial_commit"`
	}
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	by, err := d.actor(x, grant, grant.Repo, "POST /repos")
	if err != nil {
		return err
	}
	sign(&by, body)
	create := engine.CreateRequest{Name: grant.Repo, DefaultBranch: request.DefaultBranch}
	if err := d.base(&by, &create, request.BaseRepo, request.InitialCommit); err != nil {
		return err
	}
	if config, ok := d.orgConfig(grant.Org); ok {
		create.CountMax = config.Limits.Repositories
	}
	created, err := d.host.CreateRepository(x.Context(), by, create)
	if err != nil {
		return err
	}
	return answerWrite(x, http.StatusCreated, created.Sequence, struct {
		repositoryJSON
		Message string `json:"message"`
	}{repositoryOf(created.Item), "repository created"})
}

// Repository answers GET /repo.
func (d *Door) Repository(x exchange.Exchange, grant *auth.Grant) error {
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	item, err := repo.Describe(x.Context())
	if err != nil {
		return err
	}
	told := struct {
		repositoryJSON
		Sync *syncJSON `json:"sync,omitempty"`
	}{repositoryJSON: repositoryOf(item)}
	if state, ok := repo.Sync(); ok {
		told.Sync = &syncJSON{State: string(state.Phase), LastError: state.LastError}
		if !state.LastSuccess.IsZero() {
			told.Sync.LastSuccess = timestamp(state.LastSuccess)
		}
	}
	return answer(x, http.StatusOK, told)
}

// ChangeRepository answers PATCH /repo.
func (d *Door) ChangeRepository(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		DefaultBranch *string `json:"default_branch"`
	}
	repo, by, err := d.writeJSON(x, grant, "PATCH /repo", &request)
	if err != nil {
		return err
	}
	if request.DefaultBranch == nil {
		return badRequest("default_branch is required")
	}
	moved, err := repo.MoveDefaultBranch(x.Context(), by, *request.DefaultBranch)
	if err != nil {
		return err
	}
	return answerWrite(x, http.StatusOK, moved.Sequence, repositoryOf(moved.Item))
}

// syncJSON is the state of a repository's syncs with its upstream: docs/api.md, "Upstreams".
type syncJSON struct {
	State       string `json:"state"`
	LastSuccess string `json:"last_success,omitempty"`
	LastError   string `json:"last_error,omitempty"`
}

// Repositories answers GET /repos.
func (d *Door) Repositories(x exchange.Exchange, grant *auth.Grant) error {
	limit, err := limitOf(x, limitDefault, limitMax)
	if err != nil {
		return err
	}
	query := x.Query()
	page, err := d.host.Repositories(x.Context(), grant.Org, engine.ListOptions{
		Query:  query.Get("q"),
		Cursor: query.Get("cursor"),
		Limit:  limit,
	})
	if err != nil {
		return err
	}
	list := struct {
		Repos      []repositoryJSON `json:"repos"`
		NextCursor string           `json:"next_cursor,omitempty"`
		HasMore    bool             `json:"has_more"`
	}{Repos: []repositoryJSON{}, NextCursor: page.Next, HasMore: page.Next != ""}
	for _, item := range page.Items {
		list.Repos = append(list.Repos, repositoryOf(item))
	}
	return answer(x, http.StatusOK, list)
}

// DeleteRepository answers DELETE /repos/delete.
func (d *Door) DeleteRepository(x exchange.Exchange, grant *auth.Grant) error {
	body, err := readJSON(x, &struct{}{}, true)
	if err != nil {
		return err
	}
	by, err := d.actor(x, grant, grant.Repo, "DELETE /repos/delete")
	if err != nil {
		return err
	}
	sign(&by, body)
	deleted, err := d.host.DeleteRepository(x.Context(), by, grant.Repo)
	if err != nil {
		return err
	}
	return answerWrite(x, http.StatusOK, deleted.Sequence, struct {
		RepoID  string `json:"repo_id"`
		Message string `json:"message"`
	}{deleted.ID.String(), "repository deleted"})
}
