package githttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// creation returns how a push creates the missing repository of its path. Without create_on_push
// in the organization's org.yaml, or without the scope for it, it returns an error that says what
// to do.
func (d *Door) creation(
	x exchange.Exchange, path exchange.GitPath, grant *auth.Grant,
) (*engine.CreateRequest, error) {
	config, ok := d.orgConfig(grant.Org)
	switch {
	case !ok || !config.CreateOnPush:
		return nil, missing(x, path.Repo, "create it with a token that has the scope repo:write:")
	case !grant.Allows(auth.RepoWrite):
		return nil, missing(x, path.Repo,
			"a push creates it if its token has the scope repo:write, which this one lacks; or create it first:")
	case path.Variant == exchange.Ephemeral:
		return nil, missing(x, path.Repo, "a push to +ephemeral does not create it; create it with:")
	}
	return &engine.CreateRequest{Name: path.Repo, CountMax: config.Limits.Repositories}, nil
}

// missing returns the error for a push to a missing repository: advice, and the call that creates
// the repository. The call takes its token from a variable of the shell, since git shows it to
// whoever looks on.
func missing(x exchange.Exchange, name, advice string) error {
	return refuse(http.StatusNotFound, code.RepositoryNotFound, fmt.Sprintf("repository %q not found: %s\n"+
		`  curl -X POST -H "Authorization: Bearer $TOKEN" %s/api/v1/repos`, name, advice, addressOf(x)))
}

// addressOf returns the address by which the client has reached the server. A Host header that is
// no plain one is not shown.
func addressOf(x exchange.Exchange) string {
	host := x.Header("Host")
	strange := func(c rune) bool {
		return !strings.ContainsRune(hostCharacters, c)
	}
	if host == "" || strings.ContainsFunc(host, strange) {
		return "$PACKHORSE"
	}
	return x.Scheme() + "://" + host
}

const hostCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:[]"

// advertiseNothing answers info/refs of a push to a repository that it creates.
func (s *session) advertiseNothing(contentType string) error {
	return s.answer(contentType, func(_ context.Context, out *pktline.Writer) error {
		if err := s.preamble(out); err != nil {
			return err
		}
		if s.version == 1 {
			if err := out.Printf("version 1\n"); err != nil {
				return err
			}
		}
		if err := out.Printf("%s capabilities^{}\x00%s\n", object.ZeroID, s.pushCapabilities()); err != nil {
			return err
		}
		return out.Flush()
	})
}

// begin reads the pack of a push to a repository that is there, or that the push creates.
func (s *session) begin(ask *pushAsk) (*engine.Push, error) {
	ctx, by := s.x.Context(), s.actor()
	if s.creation == nil {
		push, err := s.repo.Receive(ctx, by, ask.PushRequest)
		if !errors.Is(err, engine.ErrRepositoryNotFound) {
			return push, err
		}
		if s.creation, err = s.Door.creation(s.x, s.path, s.grant); err != nil { // it was recalled
			return nil, err
		}
	}
	push, err := s.host.ReceiveFirst(ctx, by, *s.creation, ask.PushRequest)
	if !errors.Is(err, engine.ErrExists) {
		return push, err
	}
	repo, err := s.host.Repository(ctx, s.grant.Org, s.creation.Name) // nothing of the pack has been read
	if err != nil {
		return nil, err
	}
	return repo.Receive(ctx, by, ask.PushRequest)
}
