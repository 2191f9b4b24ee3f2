package main_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// githubAPI is the part of GitHub's API that a GitHub App uses: one installation, for the account
// ada, of the app 42.
type githubAPI struct {
	t     *testing.T
	key   *rsa.PrivateKey
	token atomic.Pointer[string] // that the installation is given; nil: GitHub is out of order
}

func (g *githubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if proof := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); !g.proves(proof) {
		g.t.Errorf("%s %s with %q", r.Method, r.URL.Path, proof)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	token := g.token.Load()
	switch request := r.Method + " " + r.URL.Path; {
	case token == nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	case request == "GET /repos/ada/r/installation":
		_, _ = io.WriteString(w, `{"id":7}`)
	case request == "POST /app/installations/7/access_tokens":
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":%q,"expires_at":%q}`, *token, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// proves reports whether a token names the app, and is signed with its key.
func (g *githubAPI) proves(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(claims, &said) != nil || said.Issuer != "42" {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return err == nil && rsa.VerifyPKCS1v15(&g.key.PublicKey, crypto.SHA256, hash[:], signature) == nil
}

// TestSyncAsGitHubApp syncs with an upstream that takes the tokens of a GitHub App, for an account
// that org.yaml lists; others are refused.
func TestSyncAsGitHubApp(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	github := &githubAPI{t: t, key: key}
	api := httptest.NewServer(github)
	t.Cleanup(api.Close)
	file := write(t, "app.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	s := newTwoServers(t, 10, "github", "github_owners: [Ada]\n", "--github-app-id", "42", "--github-app-key", file,
		"--github-api", api.URL)
	s.await("failed", func(state syncState) bool { return state.Sync.State == "failed" })
	github.token.Store(&s.farToken)
	s.equal()
	s.commit("ours", "one.txt", "").mustBe(t, http.StatusCreated)
	s.equal()

	if s.token, err = s.server.Token(t.Context(), "other", "--scope", "repo:write"); err != nil {
		t.Fatal(err)
	}
	s.api(http.MethodPost, "/api/v1/repos", "", []byte(`{"base_repo":{"provider":"github","owner":"eve","name":"r"}}`)).
		mustBe(t, http.StatusPreconditionFailed)
}
