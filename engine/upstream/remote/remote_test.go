package remote_test

import (
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/engine/upstream/remote"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// gitServer is git http-backend behind a loopback server.
type gitServer struct {
	repo     *oracle.Repository
	url      *url.URL
	client   *http.Client
	requests atomic.Int64
	chunked  atomic.Int64
}

// serve serves a repository with a version of the protocol, whatever is asked for, and answers 401
// without the password when there is one.
func serve(t *testing.T, repo *oracle.Repository, version, password string) *gitServer {
	t.Helper()
	backend := filepath.Join(strings.TrimSpace(repo.Git("--exec-path")), "git-http-backend")
	if _, err := exec.LookPath(backend); err != nil {
		t.Skip("git http-backend is not installed")
	}
	s := &gitServer{repo: repo}
	handler := &cgi.Handler{
		Path: backend,
		Dir:  repo.Dir,
		Env: append(oracle.EnvOutside(repo.Dir), "GIT_PROJECT_ROOT="+filepath.Dir(repo.Dir), "GIT_HTTP_EXPORT_ALL=1",
			// Nothing of git runs on when the test has ended.
			"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0", "GIT_CONFIG_KEY_2=receive.autogc", "GIT_CONFIG_VALUE_2=false"),
		Stderr: t.Output(),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.ContentLength < 0 { // package cgi refuses chunks, which git's backend need not see
			s.chunked.Add(1)
			r.TransferEncoding = nil
		}
		if asked := r.Header.Get("Git-Protocol"); asked != "" && asked != "version=2" {
			t.Errorf("the client asks for %q", asked)
		} else if version == "0" {
			r.Header.Del("Git-Protocol")
		} else if asked != "" {
			r.Header.Set("Git-Protocol", "version="+version)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.client = server.Client()
	t.Cleanup(s.client.CloseIdleConnections)
	s.url = parseURL(t, server.URL).JoinPath(filepath.Base(repo.Dir))
	return s
}

func parseURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *gitServer) remote() *remote.Remote { return &remote.Remote{URL: s.url, Client: s.client} }

// versions are those that git http-backend speaks.
var versions = []string{"0", "1", "2"}

func parseID(t *testing.T, text string) object.ID {
	t.Helper()
	id, err := object.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func resolve(t *testing.T, repo *oracle.Repository, name string) object.ID {
	t.Helper()
	return parseID(t, repo.Git("rev-parse", "--verify", name))
}

func list(t *testing.T, r *remote.Remote, prefixes ...string) *remote.Advertisement {
	t.Helper()
	ad, err := r.Refs(t.Context(), prefixes...)
	if err != nil {
		t.Fatal(err)
	}
	return ad
}

// password authorizes as one user.
func password(user, secret string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) { return user, secret, nil }
}
