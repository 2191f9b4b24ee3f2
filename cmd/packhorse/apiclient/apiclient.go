// Package apiclient calls the public API of a server, with a token of its own for each call.
//
// Start at [Server]. Calls about one repository name it in the path.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"packhorse/engine/upstream/remote"
)

// The scopes of tokens.
const (
	scopeRead  = "git:read"
	scopeWrite = "git:write"
	scopeRepo  = "repo:write"
	scopeOrg   = "org:read"
)

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	URL    *url.URL // base URL, without a user
	Client *http.Client
	Agent  string
	// Sign returns a token with scopes, for a repository unless that is "".
	Sign func(repo string, scopes ...string) (string, error)
}

// Error is an answer of the server that is no success.
type Error struct {
	Call    string
	Status  int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %d: %s", e.Call, e.Status, e.Message) }

// HasStatus reports whether err is an answer with a status.
func HasStatus(err error, status int) bool {
	answer, ok := errors.AsType[*Error](err)
	return ok && answer.Status == status
}

// Repository is a repository as the server describes it.
type Repository struct {
	ID            string    `json:"repo_id"`
	Name          string    `json:"repo_name"`
	DefaultBranch string    `json:"default_branch"`
	CreatedAt     time.Time `json:"created_at"`
	Base          *Base     `json:"base_repo,omitempty"`
	Sync          *Sync     `json:"sync,omitempty"`

	// Of a repository that was deleted and can be brought back.
	DeletedAt time.Time `json:"deleted_at,omitzero"`
	DeletedBy string    `json:"deleted_by,omitempty"`
	PurgeAt   time.Time `json:"purge_at,omitzero"` // when it goes for good
}

// Base is the upstream of a repository.
type Base struct {
	Provider string `json:"provider"`
	Owner    string `json:"owner"`
	Name     string `json:"name"`
}

// Sync is the state of the syncs with it.
type Sync struct {
	State       string `json:"state"`
	LastSuccess string `json:"last_success,omitempty"`
	LastError   string `json:"last_error,omitempty"`
}

// Usage is what a repository stores.
type Usage struct {
	StoredBytes   int64     `json:"stored_bytes"`
	SharedBytes   int64     `json:"shared_bytes"`
	BorrowedBytes int64     `json:"borrowed_bytes"`
	Objects       int64     `json:"objects"`
	Refs          int64     `json:"refs"`
	LastWrite     time.Time `json:"last_write"`
}

// List calls visit with the repositories of the organization in order of creation, or with those
// that were deleted and can be brought back, in order of their deletion. q is a part of the names.
func (s *Server) List(ctx context.Context, q string, deleted bool, visit func(Repository) error) error {
	cursor := ""
	for {
		query := url.Values{"limit": {"100"}}
		if q != "" {
			query.Set("q", q)
		}
		if deleted {
			query.Set("deleted", "true")
		}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page struct {
			Repos      []Repository `json:"repos"`
			NextCursor string       `json:"next_cursor"`
			HasMore    bool         `json:"has_more"`
		}
		if err := s.call(ctx, http.MethodGet, "/api/repos?"+query.Encode(), "", []string{scopeOrg}, nil, &page); err != nil {
			return err
		}
		for _, repository := range page.Repos {
			if err := visit(repository); err != nil {
				return err
			}
		}
		if !page.HasMore || page.NextCursor == "" {
			return nil
		}
		cursor = page.NextCursor
	}
}

// Reach asks for something small, to see whether the server answers and takes the tokens. Errors:
// [Error], and those of net/http.
func (s *Server) Reach(ctx context.Context) error {
	return s.call(ctx, http.MethodGet, "/api/repos?limit=1", "", []string{scopeOrg}, nil, nil)
}

// Show describes a repository.
func (s *Server) Show(ctx context.Context, name string) (Repository, error) {
	var found Repository
	return found, s.call(ctx, http.MethodGet, path(name), name, []string{scopeRead}, nil, &found)
}

// Usage tells what a repository stores.
func (s *Server) Usage(ctx context.Context, name string) (Usage, error) {
	var usage Usage
	return usage, s.call(ctx, http.MethodGet, path(name)+"/usage", name, []string{scopeRead}, nil, &usage)
}

// Create makes a repository. The default branch may be "".
func (s *Server) Create(ctx context.Context, name, defaultBranch string) error {
	body := map[string]string{}
	if defaultBranch != "" {
		body["default_branch"] = defaultBranch
	}
	return s.call(ctx, http.MethodPost, "/api/repos", name, []string{scopeRepo}, body, nil)
}

// Rename gives a repository another name.
func (s *Server) Rename(ctx context.Context, name, to string) error {
	return s.call(ctx, http.MethodPatch, path(name), name, []string{scopeRepo}, map[string]string{"name": to}, nil)
}

// SetDefaultBranch moves the default branch of a repository.
func (s *Server) SetDefaultBranch(ctx context.Context, name, branch string) error {
	return s.call(ctx, http.MethodPatch, path(name), name, []string{scopeRepo}, map[string]string{"default_branch": branch}, nil)
}

// Delete deletes a repository. It returns its ID, and until when it can be brought back.
func (s *Server) Delete(ctx context.Context, name string) (Repository, error) {
	var deleted Repository
	return deleted, s.call(ctx, http.MethodDelete, path(name), name, []string{scopeRepo}, nil, &deleted)
}

// Undelete brings a deleted repository back: the last one of a name unless id says which, under
// that name unless newName is another.
func (s *Server) Undelete(ctx context.Context, name, id, newName string) (Repository, error) {
	body := map[string]string{}
	if id != "" {
		body["repo_id"] = id
	}
	if newName != "" {
		body["name"] = newName
	}
	var back Repository
	return back, s.call(ctx, http.MethodPost, path(name)+"/undelete", name, []string{scopeRepo}, body, &back)
}

// Remote returns a repository as a remote of git. What was pushed through suffix, "+import", sends
// no events.
func (s *Server) Remote(name, suffix string, limits remote.Limits) *remote.Remote {
	return &remote.Remote{
		URL: s.URL.JoinPath(name + suffix + ".git"), Client: s.Client, Agent: s.Agent, Limits: limits,
		Authorize: func(context.Context) (user, password string, err error) {
			password, err = s.Sign(name, scopeRead, scopeWrite)
			return "t", password, err
		},
	}
}

// path is the path of a repository, whose name is one segment.
func path(name string) string { return "/api/repos/" + url.PathEscape(name) }

// answerMax bounds an answer in bytes.
const answerMax = 8 << 20

// call sends a request and decodes its answer into out. Errors: [Error], and those of net/http.
func (s *Server) call(ctx context.Context, method, target, repo string, scopes []string, in, out any) error {
	token, err := s.Sign(repo, scopes...)
	if err != nil {
		return err
	}
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.URL.String(), "/")+target, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("User-Agent", s.Agent)
	response, err := s.Client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("%s %s: %w", method, request.URL.Path, err)
	}
	if response.StatusCode/100 != 2 {
		return &Error{Call: method + " " + request.URL.Path, Status: response.StatusCode, Message: messageOf(text)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, request.URL.Path, err)
	}
	return nil
}

// messageOf returns the message of an error, or its first line.
func messageOf(text []byte) string {
	var told struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &told) == nil && told.Error != "" {
		return told.Error
	}
	line, _, _ := strings.Cut(string(text[:min(len(text), 500)]), "\n")
	return line
}
