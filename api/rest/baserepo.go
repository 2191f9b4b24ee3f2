package rest

import (
	"errors"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/commit"
)

// baseRepoJSON is what a new repository is made from: contract.md, "Repositories".
type baseRepoJSON struct {
	Provider  string `json:"provider"`
	Operation string `json:"operation"`
	Owner     string `json:"owner"`
	Name      string `json:"name"`
	Ref       string `json:"ref"`
	SHA       string `json:"sha"`
	Auth      *struct {
		Token string `json:"token"`
	} `json:"auth"`
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

var errUpstream = &exchange.Error{
	Status: http.StatusNotImplemented, Message: "base_repo: upstream providers are not supported by this version; provider must be code",
}

// base returns what a new repository is made from, nil for an empty one. The actor's recheck then covers the token that reads the base too.
func (d *Door) base(by *engine.Actor, from *baseRepoJSON, first *initialCommitJSON) (*engine.Base, error) {
	if from == nil {
		if first != nil {
			return nil, badRequest("initial_commit needs a base_repo with operation snapshot")
		}
		return nil, nil
	}
	base := &engine.Base{Name: from.Name, Ref: from.Ref, Commit: from.SHA}
	switch {
	case from.Provider == "":
		return nil, badRequest("base_repo.provider is required")
	case from.Provider != "code" && from.Provider != "code.storage":
		return nil, errUpstream
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
		return nil, badRequest("base_repo.operation: expected fork or snapshot for provider %q, got %.40q", from.Provider, from.Operation)
	}
	if from.Name == "" {
		return nil, badRequest("base_repo.name is required")
	}
	return base, d.authorizeBase(by, from)
}

// authorizeBase makes sure that the token in the body may read the base, of which nothing is told before.
func (d *Door) authorizeBase(by *engine.Actor, from *baseRepoJSON) error {
	if from.Auth == nil || from.Auth.Token == "" {
		return badRequest("base_repo.auth.token is required")
	}
	grant, err := d.verify(from.Auth.Token)
	if refusal, ok := errors.AsType[*auth.Error](err); ok {
		return &exchange.Error{Status: refusal.Status, Message: "base_repo.auth.token: " + refusal.Message}
	}
	if err != nil {
		return err
	}
	forbidden := func(why string) error {
		return &exchange.Error{Status: http.StatusForbidden, Message: "base_repo.auth.token: " + why}
	}
	switch {
	case grant.Org != by.Org || from.Owner != "" && from.Owner != by.Org:
		return forbidden("the base must be a repository of the same organization")
	case grant.Repo != from.Name:
		return forbidden("the token is for another repository")
	case !grant.Allows(auth.GitRead):
		return forbidden("the token lacks the scope git:read")
	}
	own := by.Recheck
	by.Recheck = func() error { return errors.Join(own(), d.recheck(grant)) }
	return nil
}
