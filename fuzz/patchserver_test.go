package fuzz

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/githttp"
	"packhorse/api/rest"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/engine/patch"
	"packhorse/fuzz/oracle"
)

// patchServer serves a patchWorld over HTTP, and is a program that calls it.
type patchServer struct {
	url     string
	key     []byte            // PEM, of the organization
	commits map[string]string // by the tree that they hold
	count   atomic.Int64      // of patches
}

// serve opens a server on the loopback until the test ends.
func (w *patchWorld) serve(t *testing.T) *patchServer {
	t.Helper()
	s := &patchServer{commits: make(map[string]string)}
	for line := range strings.Lines(oracle.Open(t, w.dir).Git("log", "--branches", "--format=%H %T")) {
		id, tree, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.commits[tree] = id
	}
	orgs := t.TempDir()
	if err := s.register(orgs); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	tokens, err := auth.Open(auth.Options{Dir: orgs, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	server, err := api.NewServer(api.Config{
		Tokens: tokens,
		Routes: api.Routes(rest.New(rest.Config{Host: w.host, Recheck: tokens.Recheck})),
		Refuse: rest.Refuse,
		Git: api.Git{
			Serve:  func(exchange.Exchange, exchange.GitPath, *auth.Grant) error { return nil },
			Refuse: githttp.Refuse,
		},
		Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String() + "/api/v1/repos"
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// register makes the organization's key and registers it in the folder orgs.
func (s *patchServer) register(orgs string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	s.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	org := filepath.Join(orgs, enginetest.Org)
	if err := os.Mkdir(org, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(org, "k.pem"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)
}

// apply makes a branch of a commit that holds the tree base, or a repository when base is the empty tree, and posts the patch to it.
func (s *patchServer) apply(tb testing.TB, text []byte, base string) verdict {
	tb.Helper()
	number := s.count.Add(1)
	repo, branch := patchRepo, fmt.Sprintf("p%d", number)
	if base == oracle.EmptyTree {
		repo, branch = branch, "main"
		if status, answer := s.post(tb, repo, "", "application/json", nil); status != http.StatusCreated {
			tb.Errorf("create repository: %d %s", status, answer)
		}
	} else {
		create := fmt.Sprintf(`{"target_branch":%q,"base_ref":%q}`, branch, s.commits[base])
		if status, answer := s.post(tb, repo, "/branches/create", "application/json", []byte(create)); status != http.StatusCreated {
			tb.Errorf("create branch: %d %s", status, answer)
		}
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	metadata := map[string]any{"target_branch": branch, "commit_message": "m", "author": map[string]string{"name": "A", "email": "a@example.com"}}
	if err := lines.Encode(map[string]any{"metadata": metadata}); err != nil {
		tb.Error(err)
	}
	chunkBytes := 1 + int(number*977)%(1<<20) // each patch is cut otherwise
	for eof := false; !eof; {
		size := min(chunkBytes, len(text))
		eof = size == len(text)
		if err := lines.Encode(map[string]any{"diff_chunk": map[string]any{"data": text[:size], "eof": eof}}); err != nil {
			tb.Error(err)
		}
		text = text[size:]
	}
	status, answer := s.post(tb, repo, "/diff-commit", "application/x-ndjson", body.Bytes())
	return verdictOf(tb, status, answer)
}

// verdictOf reads an answer to diff-commit.
func verdictOf(tb testing.TB, status int, answer []byte) verdict {
	tb.Helper()
	var told struct {
		Error  string
		Commit struct {
			Tree string `json:"tree_sha"`
		}
		Result struct {
			Success bool
			Status  string
		}
	}
	if err := json.Unmarshal(answer, &told); err != nil {
		tb.Errorf("%v in %s", err, answer)
	}
	if status == http.StatusCreated {
		if !told.Result.Success || told.Result.Status != "ok" {
			tb.Errorf("a commit is told as %s", answer)
		}
		return verdict{tree: told.Commit.Tree}
	}
	v := verdict{refusal: told.Error}
	switch word := told.Result.Status; {
	case word == "conflict":
	case word == "precondition_failed":
		v.err = patch.ErrEmpty
	case word == "invalid" && strings.HasPrefix(told.Error, "line "):
		v.err = patch.ErrMalformed
	case word == "invalid" && strings.HasPrefix(told.Error, "path "):
		v.err = commit.ErrInvalid
	}
	if status != http.StatusBadRequest || told.Error == "" || told.Result.Success {
		tb.Errorf("status %d: %s", status, answer)
	}
	return v
}

// post makes a call that writes to a repository.
func (s *patchServer) post(tb testing.TB, repo, path, contentType string, body []byte) (status int, answer []byte) {
	tb.Helper()
	token, err := auth.Mint(s.key, auth.Claims{
		Org: enginetest.Org, Subject: "test", Repo: repo, Scopes: []string{"git:write", "repo:write"}, Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		tb.Error(err)
		return 0, nil
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		tb.Error(err)
		return 0, nil
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		tb.Error(err)
		return 0, nil
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	if answer, err = io.ReadAll(response.Body); err != nil {
		tb.Error(err)
	}
	return response.StatusCode, answer
}
