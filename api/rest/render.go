package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
)

// answer renders v as JSON.
func answer(x exchange.Exchange, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	x.Respond(status, problem.ContentType, append(body, '\n'))
	return nil
}

// answerWrite renders the outcome of a write, an object, with the journal position that it reached;
// that of a dry run says so, and has the position on which it was computed.
func answerWrite(x exchange.Exchange, by *engine.Actor, status int, sequence uint64, v any) error {
	setSequence(x, sequence)
	if !by.DryRun {
		return answer(x, status, v)
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	body = bytes.TrimSuffix(body, []byte("}"))
	if len(body) > len("{") {
		body = append(body, ',')
	}
	x.Respond(status, problem.ContentType, append(body, `"dry_run":true}`+"\n"...))
	return nil
}

// setSequence adds the journal position that a write reached to the answer.
func setSequence(x exchange.Exchange, sequence uint64) {
	x.SetHeader("X-Repo-Sequence", strconv.FormatUint(sequence, 10))
}

// Refuse answers an error of a handler, or of an earlier step, as {"error": message}.
func Refuse(x exchange.Exchange, err error) problem.Problem {
	p := problem.From(err)
	if tellsResult(x) && p.Fields["result"] == nil {
		// Refused before its handler, by its token or its size: clients expect the result nevertheless.
		p = problem.From(withResult("", err))
	}
	if p.Status == http.StatusUnauthorized {
		x.SetHeader("WWW-Authenticate", `Bearer realm="packhorse"`)
	}
	x.Respond(p.Status, problem.ContentType, p.JSON())
	return p
}

// tellsResult reports whether the failures of an endpoint carry the result of a commit. Only paths
// of other methods end in a name that a user has chosen.
func tellsResult(x exchange.Exchange) bool {
	if x.Method() != http.MethodPost {
		return false
	}
	path := x.Path()
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "commit-pack", "diff-commit", "restore-commit":
		return true
	}
	return false
}

// timestamp formats a time for the API: RFC 3339 in UTC.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// repositoryJSON is a repository in a listing: docs/api.md, "Repositories".
type repositoryJSON struct {
	RepoID        string `json:"repo_id,omitempty"`
	URL           string `json:"url"`
	RepoName      string `json:"repo_name"`
	DefaultBranch string `json:"default_branch"`
	CreatedAt     string `json:"created_at,omitempty"`

	BaseRepo *itemBaseJSON `json:"base_repo,omitempty"` // of an upstream
}

// itemBaseJSON names an upstream.
type itemBaseJSON struct {
	Provider string `json:"provider"`
	Owner    string `json:"owner"`
	Name     string `json:"name"`
}

func repositoryOf(item engine.Item) repositoryJSON {
	told := repositoryJSON{
		RepoID:        item.ID.String(),
		URL:           item.Name,
		RepoName:      item.Name,
		DefaultBranch: item.DefaultBranch,
		CreatedAt:     timestamp(item.Created),
	}
	if item.Base != nil {
		told.BaseRepo = &itemBaseJSON{item.Base.Provider, item.Base.Owner, item.Base.Name}
	}
	return told
}
