package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Repository describes a repository.
type Repository struct {
	RepoID        string    `json:"repo_id" schema:"RepositoryID"`
	RepoName      string    `json:"repo_name" jsonschema:"the name, which tokens carry in repo"`
	URL           string    `json:"url" schema:"older=repo_name"`
	DefaultBranch string    `json:"default_branch" jsonschema:"the branch that HEAD points to"`
	CreatedAt     string    `json:"created_at" schema:"Time"`
	BaseRepo      *Upstream `json:"base_repo,omitempty" jsonschema:"the upstream, if there is one"`
}

// Upstream names a repository of another host.
type Upstream struct {
	Provider string `json:"provider"`
	Owner    string `json:"owner"`
	Name     string `json:"name"`
}

// CreatedRepository is the answer to the creation of a repository.
type CreatedRepository struct {
	Repository
	Message string `json:"message"`
}

// RehearsedRepository is a dry run of the creation of a repository. Its id is drawn by the creation
// itself.
type RehearsedRepository struct {
	RepoName      string    `json:"repo_name"`
	URL           string    `json:"url" schema:"older=repo_name"`
	DefaultBranch string    `json:"default_branch" jsonschema:"the branch that HEAD would point to"`
	BaseRepo      *Upstream `json:"base_repo,omitempty" jsonschema:"the upstream, if there is one"`
	Message       string    `json:"message"`
	DryRun        bool      `json:"dry_run"`
}

// ChangedRepository is the answer to a change.
type ChangedRepository struct {
	Repository
	Rehearsed
}

// SyncedRepository is a repository with the state of its syncs.
type SyncedRepository struct {
	Repository
	Sync *Sync `json:"sync,omitempty" jsonschema:"of a repository with an upstream"`
}

// Sync is the state of a repository's syncs with its upstream.
type Sync struct {
	State       string `json:"state" schema:"enum=syncing|synced|failed|detaching"`
	LastSuccess string `json:"last_success,omitempty" schema:"Time" jsonschema:"when the last sync succeeded"`
	LastError   string `json:"last_error,omitempty" jsonschema:"why the last sync failed; it will be tried again"`
}

// RepositoryList is a page of repositories.
type RepositoryList struct {
	Repos []ListedRepository `json:"repos"`
	Page
}

// ListedRepository is a repository in a page. The fields of a deletion are those of a deleted one.
type ListedRepository struct {
	Repository
	DeletedAt   string `json:"deleted_at,omitempty" schema:"Time" jsonschema:"with deleted=true: when it was deleted"`
	DeletedBy   string `json:"deleted_by,omitempty" jsonschema:"with deleted=true: the sub of the token that deleted it"`
	PurgeAt     string `json:"purge_at,omitempty" schema:"Time" jsonschema:"with deleted=true: until then it can be brought back"`
	StoredBytes int64  `json:"stored_bytes,omitempty" jsonschema:"with deleted=true: what it stored when it was deleted"`
}

// DeletedRepository is the answer to a deletion.
type DeletedRepository struct {
	RepoID  string `json:"repo_id" schema:"RepositoryID"`
	PurgeAt string `json:"purge_at,omitempty" schema:"Time" jsonschema:"until then it can be brought back; not with purge=true"`
	Message string `json:"message"`
	Rehearsed
}

// UndeleteRepository is the body of a return.
type UndeleteRepository struct {
	RepoID string `json:"repo_id" schema:"RepositoryID" jsonschema:"which deleted repository of the name; without it the last one, if the name is free"`
	Name   string `json:"name" jsonschema:"its new name; without it the one that it had"`
	Rehearsal
}

// UndeletedRepository is the answer to a return.
type UndeletedRepository struct {
	Repository
	Rehearsed
}

// CreateRepository is the body of a creation.
type CreateRepository struct {
	DefaultBranch string         `json:"default_branch" jsonschema:"without it main, until the first push or commit decides"`
	BaseRepo      *BaseRepo      `json:"base_repo" jsonschema:"what the repository is made from: a fork, a snapshot, or an upstream"`
	InitialCommit *InitialCommit `json:"initial_commit" jsonschema:"of a snapshot, which needs it; of nothing else"`
	Rehearsal
}

// BaseRepo is the origin of a new repository.
type BaseRepo struct {
	Provider      string    `json:"provider" schema:"required,enum=code|code.storage|github|gitlab|bitbucket|gitea|forgejo|codeberg|sr.ht" jsonschema:"code for a fork; code or code.storage for a snapshot; another host for an upstream"`
	Operation     string    `json:"operation" schema:"enum=fork|snapshot" jsonschema:"for a base on this server"`
	Owner         string    `json:"owner" jsonschema:"the organization of a base on this server; the owner of an upstream, which needs it"`
	Name          string    `json:"name" schema:"required"`
	Ref           string    `json:"ref" jsonschema:"a revision: the fork gets one branch at this commit, the snapshot its tree"`
	SHA           string    `json:"sha" jsonschema:"a commit id or a prefix of it; wins over ref"`
	Auth          *BaseAuth `json:"auth"`
	DefaultBranch string    `json:"default_branch" jsonschema:"of an upstream"`
	UpstreamHost  string    `json:"upstream_host" jsonschema:"host or host:port of an upstream, always by HTTPS; not for github"`
}

// BaseAuth gives access to a base.
type BaseAuth struct {
	Token    string `json:"token" jsonschema:"a token for the base on this server, with git:read; required for a fork and a snapshot"`
	AuthType string `json:"auth_type" schema:"enum=public" jsonschema:"for github only: sync a public repository without credentials"`
}

// InitialCommit is the one commit of a snapshot.
type InitialCommit struct {
	Message   string  `json:"message" schema:"required"`
	Author    Person  `json:"author" schema:"required"`
	Committer *Person `json:"committer" jsonschema:"the author by default"`
}

// ChangeRepository is the body of a change of a repository.
type ChangeRepository struct {
	Name          string `json:"name" jsonschema:"the new name; tokens for the old one name a repository that is gone"`
	DefaultBranch string `json:"default_branch" jsonschema:"an existing branch, or any name in a repository without branches"`
	Rehearsal
}

// Empty is a body without fields.
type Empty struct{}

const repositoryExample = `{"repo_id": "01a20294-e355-736f-afa3-411a0ca91fe0", "repo_name": "demo", "url": "demo",
 "default_branch": "main", "created_at": "2026-11-22T09:27:21.685225255Z"}`

func repositoryCalls() []call {
	return []call{
		{
			v1: "/repos", path: "/repos", org: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "repositories", Group: repositories,
				Summary:     "lists the organization's repositories",
				Description: "In order of creation, or of deletion. The token needs no `repo`.",
				Parameters: query(
					openapi.Parameter{Name: "q", Description: "Only repositories whose name contains it; case is ignored. Blank is no filter."},
					flag("deleted", "Lists the deleted repositories that can be brought back instead."),
					cursor, limit(20, 100),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "A page of repositories.", Type: RepositoryList{},
					Example: `{"repos": [` + repositoryExample + `], "has_more": false}`,
				}},
			},
		},
		{
			v1: "/repos", path: "/repos", org: true, writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "createRepository", Group: repositories,
				Summary: "creates a repository, a fork or a snapshot",
				Description: "Creates the repository that the token names, with its first refs and its journal, in one transaction. " +
					"A fork shares the objects of another repository of the organization and takes all of its refs except the ephemeral ones " +
					"(30,000 at most), or one branch. A snapshot has the tree of a revision in one new commit. A repository with an upstream is " +
					"kept in sync with one of another host; it is created even if that cannot be reached.",
				Body: &openapi.Body{
					Type: CreateRepository{}, Optional: true,
					Example: `{"base_repo": {"provider": "code", "operation": "fork", "name": "demo", "auth": {"token": "<token>"}}}`,
				},
				Answers: []openapi.Answer{
					{
						Status: http.StatusCreated, Description: "The repository.", Type: CreatedRepository{},
						Example: repositoryExample[:len(repositoryExample)-1] + `, "message": "repository created"}`,
					},
					{Status: http.StatusOK, Description: "A dry run: it would be created.", Type: RehearsedRepository{}},
				},
				Errors: []openapi.Error{
					fails(http.StatusForbidden, "The token lacks the scope; `base_repo.auth.token` is for another repository or lacks `git:read`; the "+
						"organization has as many repositories as it may; or the policy forbids one of the first refs, or a sync."),
					fails(http.StatusNotFound, "The source, or the revision of it, does not exist."),
					fails(http.StatusConflict, "The repository already exists."),
					fails(http.StatusPreconditionFailed, "The organization has no GitHub App for the account."),
				},
			},
		},
		{
			v1: "/repo", path: "/repos/{n}",
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "repository", Group: repositories,
				Summary: "describes the repository",
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The repository, with `sync` if it has an upstream.", Type: SyncedRepository{},
					Example: repositoryExample,
				}},
			},
		},
		{
			v1: "/repo", path: "/repos/{n}", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPatch, ID: "changeRepository", Group: repositories,
				Summary:     "renames it, or moves the default branch",
				Description: "Or both in one transaction. The old name is free at once, and tokens for it name a repository that is gone.",
				Body: &openapi.Body{
					Type: ChangeRepository{}, Description: "One of the fields, or both.", Example: `{"default_branch": "main"}`,
				},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The repository.", Type: ChangedRepository{}, Example: repositoryExample,
				}},
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The branch, or the repository, does not exist."),
					fails(http.StatusConflict, "The name is taken."),
				},
			},
		},
		{
			path: "/repos/{n}", v1: "/repos/delete", org: true, writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "deleteRepository", Group: repositories,
				Summary: "deletes the repository",
				Description: "In one transaction: nobody finds it any more, and its name can be used again. Its credential and its upstream are " +
					"gone at once. Until `purge_at` it can be brought back. With `purge=true` it is gone for good, and so is one that was " +
					"deleted before.",
				Parameters: query(
					flag("purge", "Deletes it for good: at once, without a way back."),
					openapi.Parameter{
						Name: "repo_id", Schema: "RepositoryID",
						Description: "With `purge=true`: which one, of several that had the name.",
					},
				),
				Body: emptyBody,
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "It is deleted.", Type: DeletedRepository{},
					Example: `{"repo_id": "01a20294-e394-765d-a5c5-2cee716170ca", "purge_at": "2026-12-06T09:27:21.741Z",
 "message": "repository deleted"}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusForbidden, "The token lacks the scope, or its policy has `no-push` or `no-force-push` for any ref."),
					fails(http.StatusNotFound, "The repository never existed."),
					fails(http.StatusConflict, "It is already deleted."),
					fails(http.StatusGone, "With `purge=true`: it is already gone for good."),
				},
			},
		},
		{
			v1: "/repos/undelete", path: "/repos/{n}/undelete", org: true, writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "undeleteRepository", Group: repositories,
				Summary: "brings a deleted repository back",
				Description: "With its refs, its journal and its objects, until `purge_at` of its deletion. It comes back without credential and " +
					"upstream. The token names it by the name that it had.",
				Body: &openapi.Body{Type: UndeleteRepository{}, Optional: true, Example: `{"name": "web/old-site"}`},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The repository.", Type: UndeletedRepository{}, Example: repositoryExample,
				}},
				Errors: []openapi.Error{
					fails(http.StatusForbidden, "The token lacks the scope, or its policy has `no-push` or `no-force-push` for any ref, or protects "+
						"a path; or the organization has as many repositories as it may."),
					fails(http.StatusNotFound, "No deleted repository had that name, or that id."),
					fails(http.StatusConflict, "The name is taken, or the repository is not deleted."),
					fails(http.StatusGone, "It is gone for good."),
				},
			},
		},
	}
}
