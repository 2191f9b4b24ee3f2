package rest

import (
	"errors"
	"fmt"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/refs"
)

// OrgClaim is the repo claim of tokens for the whole organization: docs/invariants.md 36.
const OrgClaim = "org"

// credentialRequest is the body of all calls to git-credentials.
type credentialRequest struct {
	RepoID   string `json:"repo_id"`
	ID       string `json:"id"`
	Username string `json:"username"`
	Password string `json:"password"`
	dryRun
}

func (r *credentialRequest) login() credential.Login {
	return credential.Login{Username: credential.Secret(r.Username), Password: credential.Secret(r.Password)}
}

// CreateCredential answers POST /repos/git-credentials.
func (d *Door) CreateCredential(x exchange.Exchange, grant *auth.Grant) error {
	var request credentialRequest
	body, err := d.readCredential(x, &request)
	if err != nil {
		return err
	}
	named := x.PathValue("n")
	switch {
	case request.RepoID == "" && named == "":
		return badRequest("repo_id is required")
	case request.Password == "":
		return badRequest("password is required")
	}
	repo, err := d.credentialTarget(x, grant, named, request.RepoID)
	if err != nil {
		return err
	}
	by, err := d.credentialActor(x, grant, repo, "POST /repos/git-credentials", &request, body)
	if err != nil {
		return err
	}
	stored, err := repo.CreateCredential(x.Context(), by, request.login())
	if err != nil {
		return err
	}
	return answerCredential(x, &by, http.StatusCreated, stored)
}

// UpdateCredential answers PUT /repos/git-credentials.
func (d *Door) UpdateCredential(x exchange.Exchange, grant *auth.Grant) error {
	var request credentialRequest
	repo, id, by, err := d.changeCredential(x, grant, "PUT /repos/git-credentials", &request)
	if err != nil {
		return err
	}
	stored, err := repo.UpdateCredential(x.Context(), by, id, request.login())
	if err != nil {
		return err
	}
	return answerCredential(x, &by, http.StatusOK, stored)
}

// DeleteCredential answers DELETE /repos/git-credentials.
func (d *Door) DeleteCredential(x exchange.Exchange, grant *auth.Grant) error {
	var request credentialRequest
	repo, id, by, err := d.changeCredential(x, grant, "DELETE /repos/git-credentials", &request)
	if err != nil {
		return err
	}
	deleted, err := repo.DeleteCredential(x.Context(), by, id)
	if err != nil {
		return err
	}
	if by.DryRun {
		return answerCredential(x, &by, http.StatusOK, deleted)
	}
	setSequence(x, deleted.Sequence)
	x.Respond(http.StatusNoContent, "", nil)
	return nil
}

// readCredential reads the body, if the server can keep secrets at all. A deletion whose path has
// the id needs none.
func (d *Door) readCredential(x exchange.Exchange, request *credentialRequest) ([]byte, error) {
	isNamed := x.Method() == http.MethodDelete && x.PathValue("id") != ""
	body, err := readJSON(x, request, isNamed)
	if err != nil {
		return nil, err
	}
	return body, d.host.CheckSecrets()
}

// changeCredential reads the id of the credential to change, and the actor.
func (d *Door) changeCredential(
	x exchange.Exchange, grant *auth.Grant, endpoint string, request *credentialRequest,
) (*engine.Repository, credential.ID, engine.Actor, error) {
	var none credential.ID
	body, err := d.readCredential(x, request)
	if err != nil {
		return nil, none, engine.Actor{}, err
	}
	text, err := pathOr(x, "id", request.ID)
	switch {
	case err != nil:
		return nil, none, engine.Actor{}, err
	case text == "":
		return nil, none, engine.Actor{}, badRequest("id is required")
	case x.Method() != http.MethodDelete && request.Password == "":
		return nil, none, engine.Actor{}, badRequest("password is required")
	}
	id, err := engine.ParseCredentialID(text)
	if err != nil {
		return nil, none, engine.Actor{}, err
	}
	repo, err := d.host.CredentialRepository(x.Context(), grant.Org, id)
	if err != nil {
		return nil, none, engine.Actor{}, err
	}
	named := x.PathValue("n")
	if !claims(grant, repo) || named != "" && named != repo.Item().Name {
		return nil, none, engine.Actor{}, &exchange.Error{
			Status: http.StatusNotFound, Code: code.CredentialNotFound, Message: "credential " + id.String() + " not found",
		}
	}
	by, err := d.credentialActor(x, grant, repo, endpoint, request, signed(body, x.PathValue("id")))
	return repo, id, by, err
}

// credentialTarget opens the repository that the path names, or else the one that the body
// identifies by id, or by name. An id takes precedence: a repository may have the id of another one
// as its name, and must not get a credential meant for that one.
func (d *Door) credentialTarget(
	x exchange.Exchange, grant *auth.Grant, named, name string,
) (repo *engine.Repository, err error) {
	if named != "" {
		repo, err = d.host.Repository(x.Context(), grant.Org, named)
		if err == nil && name != "" && name != named && name != repo.Item().ID.String() {
			err = badRequest("repo_id: the path names repository %q, and the body %.100q", named, name)
		}
		return repo, err
	}
	id, err := refs.ParseRepoID(name)
	if err == nil {
		repo, err = d.host.RepositoryByID(x.Context(), grant.Org, id)
	}
	if errors.Is(err, refs.ErrInvalidRepoID) || errors.Is(err, engine.ErrNotFound) {
		repo, err = d.host.Repository(x.Context(), grant.Org, name)
	}
	if err == nil && !claims(grant, repo) {
		return nil, &exchange.Error{
			Status: http.StatusNotFound, Code: code.WrongRepository,
			Message: fmt.Sprintf("the token is for another repository, %.100q", grant.Repo),
		}
	}
	return repo, err
}

// claims reports whether the token is for the repository, or for the whole organization. The claim
// of the token is a name, never an id: ids are legal names, and a token for a name that equals an
// id is valid for no other repository.
func claims(grant *auth.Grant, repo *engine.Repository) bool {
	return grant.Repo == OrgClaim || grant.Repo == repo.Item().Name
}

// credentialActor returns the actor for a change of a credential of the repository, once the
// repository has reached the position that the request requires. Its receipt holds no plain hash of
// the body, which contains a password.
func (d *Door) credentialActor(
	x exchange.Exchange, grant *auth.Grant, repo *engine.Repository, endpoint string, request *credentialRequest,
	body []byte,
) (engine.Actor, error) {
	if _, err := await(x, repo); err != nil {
		return engine.Actor{}, err
	}
	by, err := d.actor(x, grant, repo.Item().ID.String(), endpoint)
	if err == nil {
		err = rehearse(x, &by, request)
	}
	if by.Receipt != nil {
		by.Receipt.Request = d.host.SecretDigest(body)
	}
	return by, err
}

// answerCredential answers with a credential. One that a dry run would store has neither an ID nor
// a time.
func answerCredential(x exchange.Exchange, by *engine.Actor, status int, stored engine.StoredCredential) error {
	var told struct {
		ID        string `json:"id,omitempty"`
		CreatedAt string `json:"created_at,omitempty"`
	}
	if !by.DryRun || status != http.StatusCreated {
		told.ID, told.CreatedAt = stored.ID.String(), timestamp(stored.Created)
	} else {
		status = http.StatusOK
	}
	return answerWrite(x, by, status, stored.Sequence, told)
}
