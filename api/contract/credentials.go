package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Login is what an upstream wants to know.
type Login struct {
	Username string `json:"username" jsonschema:"the default is what the provider expects with an access token"`
	Password string `json:"password" schema:"required" jsonschema:"a password or access token; stored encrypted and never returned"`
	Rehearsal
}

// CreateCredential is the body of a creation.
type CreateCredential struct {
	RepoID string `json:"repo_id" schema:"required" jsonschema:"the id of the repository, or its name"`
	Login
}

// UpdateCredential is the body of a change.
type UpdateCredential struct {
	ID string `json:"id" schema:"required" jsonschema:"of the credential"`
	Login
}

// DeleteCredential is the body of a deletion.
type DeleteCredential struct {
	ID string `json:"id" schema:"required" jsonschema:"of the credential"`
	Rehearsal
}

// Credential is a stored credential.
type Credential struct {
	ID        string `json:"id"`
	CreatedAt string `json:"created_at" schema:"Time"`
	Rehearsed
}

// RehearsedCredential is a dry run of the creation of a credential. The id is drawn by the creation
// itself.
type RehearsedCredential struct {
	DryRun bool `json:"dry_run"`
}

func credentialCalls() []call {
	const (
		path    = "/repos/git-credentials"
		named   = "/repos/{n}/git-credentials"
		id      = "01a20294e4ca7bffade43b2ee5a1892369700d6e8e3ab14f"
		example = `{"id": "` + id + `", "created_at": "2026-11-22T09:27:22.076585832Z"}`
	)
	notThere := fails(http.StatusNotFound, "The credential does not exist, or the token is for another repository.")
	noKey := retried(http.StatusServiceUnavailable,
		"The server has no `--secret-key` or another one, is busy, starting or stopping, or cannot reach its storage.")
	inPath := func(o *openapi.Operation) {
		o.Parameters = append([]openapi.Parameter{{
			Name: "id", In: openapi.InPath, Required: true, Description: "The credential.", Example: id,
		}}, o.Parameters...)
	}
	return []call{
		{
			v1: path, path: named, writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "createCredential", Group: upstreams,
				Summary: "stores the upstream's credential",
				Description: "A repository has at most one. The token's `repo` is the repository or `org`. The provider `github` does not " +
					"use it.",
				Body: &openapi.Body{
					Type: CreateCredential{}, Example: `{"repo_id": "mirror", "username": "ada", "password": "a token"}`,
				},
				Answers: []openapi.Answer{
					{Status: http.StatusCreated, Description: "The credential is stored.", Type: Credential{}, Example: example},
					{Status: http.StatusOK, Description: "A dry run: it would be stored.", Type: RehearsedCredential{}},
				},
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The repository does not exist, or the token is for another one."),
					fails(http.StatusConflict, "There is already a credential."),
					noKey,
				},
			},
			named: func(o *openapi.Operation) {
				o.Body = &openapi.Body{Type: Login{}, Example: `{"username": "ada", "password": "a token"}`}
			},
		},
		{
			v1: path, path: named + "/{id}", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPut, ID: "updateCredential", Group: upstreams,
				Summary:     "replaces that credential",
				Description: "The user name and the password. A pending sync is tried at once, unless the token's policy forbids a sync.",
				Body: &openapi.Body{
					Type: UpdateCredential{}, Example: `{"id": "` + id + `", "password": "another token"}`,
				},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The credential is replaced.", Type: Credential{}, Example: example,
				}},
				Errors: []openapi.Error{notThere, noKey},
			},
			named: func(o *openapi.Operation) {
				inPath(o)
				o.Body = &openapi.Body{Type: Login{}, Example: `{"password": "another token"}`}
			},
		},
		{
			v1: path, path: named + "/{id}", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "deleteCredential", Group: upstreams,
				Summary: "deletes that credential",
				Body:    &openapi.Body{Type: DeleteCredential{}, Example: `{"id": "` + id + `"}`},
				Answers: []openapi.Answer{
					{Status: http.StatusNoContent, Description: "The credential is gone."},
					{Status: http.StatusOK, Description: "A dry run: it would go.", Type: Credential{}},
				},
				Errors: []openapi.Error{notThere, noKey},
			},
			named: func(o *openapi.Operation) {
				inPath(o)
				o.Body = notNeeded
			},
		},
	}
}
