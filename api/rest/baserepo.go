package rest

import (
	"errors"
	"fmt"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/upstream"
)

// baseRepoJSON is the origin of a new repository: docs/api.md, "Repositories".
type baseRepoJSON struct {
	Provider  string `json:"provider"`
	Operation string `json:"operation"`
	Owner     string `json:"owner"`
	Name      string `json:"name"`
	Ref       string `json:"ref"`
	SHA       string `json:"sha"`
	Auth      *struct {
		Token    string `json:"token"`
		AuthType string `json:"auth_type"`
	} `json:"auth"`
	DefaultBranch string `json:"default_branch"`
	UpstreamHost  string `json:"upstream_host"`
}

// initialCommitJSON is the one commit of a snapshot.
type initialCommitJSON struct {
	Message   string         `json:"message"`
	Author    commit.Person  `json:"author"`
	Committer *commit.Person `json:"committer"`
}

func (c *initialCommitJSON) details() *engine.CommitDetails {
	details := &engine.CommitDetails{Message: c.Message, Author: c.Author}
	if c.Committer != nil {
		details.Committer = *c.Committer
	}
	return details
}

// base completes a request for a new repository with its base, or its upstream. The actor's recheck
// then covers the token for the base, too.
func (d *Door) base(
	by *engine.Actor, to *engine.CreateRequest, from *baseRepoJSON, first *initialCommitJSON,
) (err error) {
	switch {
	case from == nil && first != nil:
		return badRequest("initial_commit needs a base_repo with operation snapshot")
	case from == nil:
	case from.Provider == "":
		return badRequest("base_repo.provider is required")
	case from.Provider == "code" || from.Provider == "code.storage":
		to.Base, err = d.own(by, from, first)
	default:
		to.Upstream, err = from.upstream(first)
		if err == nil {
			to.Upstream.FollowHead = to.DefaultBranch == ""
		}
	}
	return err
}

// upstream returns the upstream of a new repository.
func (from *baseRepoJSON) upstream(first *initialCommitJSON) (*engine.UpstreamBase, error) {
	base := &engine.UpstreamBase{Host: from.UpstreamHost, Origin: upstream.Origin{
		Provider: from.Provider, Owner: from.Owner, Name: from.Name, DefaultBranch: from.DefaultBranch,
	}}
	switch {
	case !upstream.Known(from.Provider):
		return nil, badRequest("base_repo.provider: %.40q is not known", from.Provider)
	case first != nil:
		return nil,
			badRequest("initial_commit is for operation snapshot; a repository with an upstream has the commits of that")
	case from.Operation != "":
		return nil, badRequest("base_repo.operation: not for provider %q", from.Provider)
	case from.Ref != "":
		return nil, badRequest("base_repo.ref: not for provider %q", from.Provider)
	case from.SHA != "":
		return nil, badRequest("base_repo.sha: not for provider %q", from.Provider)
	case from.Auth == nil:
		return base, nil
	case from.Auth.Token != "":
		return nil, badRequest(
			"base_repo.auth.token: not for provider %q, whose credential is stored by POST /repos/git-credentials",
			from.Provider,
		)
	case from.Auth.AuthType == "public":
		base.Public = true
		return base, nil
	default:
		return nil, badRequest("base_repo.auth.auth_type: expected public, got %.40q", from.Auth.AuthType)
	}
}

// own returns the repository of this host that a new one is made from.
func (d *Door) own(by *engine.Actor, from *baseRepoJSON, first *initialCommitJSON) (*engine.Base, error) {
	base := &engine.Base{Name: from.Name, Ref: from.Ref, Commit: from.SHA}
	switch {
	case from.Operation == "fork" && from.Provider == "code":
		if first != nil {
			return nil, badRequest("initial_commit is for operation snapshot; a fork has the commits of its base")
		}
	case from.Operation == "snapshot":
		if first == nil {
			return nil, badRequest("initial_commit is required for operation snapshot")
		}
		base.Snapshot = first.details()
	default:
		return nil, badRequest("base_repo.operation: expected fork or snapshot for provider %q, got %.40q", from.Provider,
			from.Operation)
	}
	if from.Name == "" {
		return nil, badRequest("base_repo.name is required")
	}
	return base, d.authorizeBase(by, from)
}

// authorizeBase makes sure that the token in the body may read the base. Before that the answer
// reveals nothing about the base.
func (d *Door) authorizeBase(by *engine.Actor, from *baseRepoJSON) error {
	if from.Auth == nil || from.Auth.Token == "" {
		return badRequest("base_repo.auth.token is required")
	}
	grant, err := d.verify(from.Auth.Token)
	if refusal, ok := errors.AsType[*auth.Error](err); ok {
		return &exchange.Error{
			Status: refusal.Status, Code: refusal.Code, Message: "base_repo.auth.token: " + refusal.Message,
		}
	}
	if err != nil {
		return err
	}
	forbidden := func(as code.Code, why string) error {
		return &exchange.Error{Status: http.StatusForbidden, Code: as, Message: "base_repo.auth.token: " + why}
	}
	switch {
	case grant.Org != by.Org || from.Owner != "" && from.Owner != by.Org:
		return forbidden(code.WrongRepository, "the base must be a repository of the same organization")
	case grant.Repo != from.Name:
		return forbidden(code.WrongRepository, fmt.Sprintf("the token is for another repository, %.100q", grant.Repo))
	case !grant.Allows(auth.GitRead):
		return forbidden(code.ScopeMissing, "the token lacks the scope git:read")
	}
	own := by.Recheck
	by.Recheck = func() error { return errors.Join(own(), d.recheck(grant)) }
	return nil
}
