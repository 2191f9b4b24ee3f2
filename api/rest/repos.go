package rest

import (
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// CreateRepository answers POST /repos.
func (d *Door) CreateRepository(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		DefaultBranch string             `json:"default_branch"`
		BaseRepo      *baseRepoJSON      `json:"base_repo"`
		InitialCommit *initialCommitJSON `json:"initial_commit"`
		dryRun
	}
	body, err := readJSON(x, &request, true)
	if err != nil {
		return err
	}
	by, err := d.actor(x, grant, grant.Repo, "POST /repos")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
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
	status, told := http.StatusCreated, struct {
		repositoryJSON
		Message string `json:"message"`
	}{repositoryOf(created.Item), "repository created"}
	if by.DryRun { // an ID is drawn when the repository is created
		status, told.RepoID, told.CreatedAt = http.StatusOK, "", ""
	}
	return answerWrite(x, &by, status, created.Sequence, told)
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
		Name          *string `json:"name"`
		DefaultBranch *string `json:"default_branch"`
		dryRun
	}
	body, err := readJSON(x, &request, false)
	if err != nil {
		return err
	}
	switch {
	case request.Name == nil && request.DefaultBranch == nil:
		return badRequest("name or default_branch is required")
	case request.Name != nil && *request.Name == "":
		return badRequest("name: expected the name of a repository; %s", refs.RepositoryNames)
	case request.DefaultBranch != nil && *request.DefaultBranch == "":
		return badRequest("default_branch: expected the name of a branch")
	}
	settings := engine.Settings{Name: either(request.Name, nil), DefaultBranch: either(request.DefaultBranch, nil)}
	by, err := d.actor(x, grant, grant.Repo, "PATCH /repo")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	sign(&by, body)
	changed, err := d.changeSettings(x, grant, by, settings)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, changed.Sequence, repositoryOf(changed.Item))
}

func (d *Door) changeSettings(
	x exchange.Exchange, grant *auth.Grant, by engine.Actor, to engine.Settings,
) (engine.ChangedSettings, error) {
	repo, err := d.open(x, grant)
	if err != nil {
		return d.host.ReplaySettings(x.Context(), by, err)
	}
	return repo.ChangeSettings(x.Context(), by, to)
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
	deleted, err := flagOf(x, "deleted", false)
	if err != nil {
		return err
	}
	query := x.Query()
	options := engine.ListOptions{
		Query:  strings.TrimSpace(query.Get("q")),
		Cursor: query.Get("cursor"),
		Limit:  limit,
	}
	if deleted {
		return d.deletedRepositories(x, grant, options)
	}
	page, err := d.host.Repositories(x.Context(), grant.Org, options)
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
