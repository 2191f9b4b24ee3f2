package githubapp_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/engine/upstream/githubapp"
)

// signer is one key for all tests: making one takes long.
var signer = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func keyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signer())})
}

// api is GitHub's, as far as an app needs it, at a time of the test's choice.
type api struct {
	t        *testing.T
	now      atomic.Int64 // Unix
	made     atomic.Int64
	life     time.Duration
	status   int    // answered instead, when not 0
	body     string // answered instead, when not ""
	redirect string
}

func (a *api) time() time.Time { return time.Unix(a.now.Load(), 0) }

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proof, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(proof, &claims, func(*jwt.Token) (any, error) { return &signer().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithTimeFunc(a.time), jwt.WithIssuedAt(), jwt.WithExpirationRequired(),
		jwt.WithIssuer("1234"))
	if err == nil &&
		(claims.ExpiresAt.Sub(a.time()) > 10*time.Minute || a.time().Sub(claims.IssuedAt.Time) != time.Minute) {
		err = errors.New("lives too long, or is not from a minute ago")
	}
	if err != nil {
		a.t.Errorf("the proof: %v", err)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case a.status != 0:
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, proof) // no error may contain it
	case a.redirect != "":
		http.Redirect(w, r, a.redirect, http.StatusFound)
	case a.body != "":
		_, _ = io.WriteString(w, a.body)
	case r.Method == http.MethodGet && r.URL.Path == "/api/repos/Owner/repo.go/installation":
		_, _ = io.WriteString(w, `{"id": 77, "app_id": 1234}`)
	case r.Method == http.MethodPost && r.URL.Path == "/api/app/installations/77/access_tokens":
		var asked struct {
			Repositories []string `json:"repositories"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Repositories) != 1 ||
			asked.Repositories[0] != "repo.go" {
			a.t.Errorf("a token for %v, %v", asked, err)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token": "ghs_%d", "expires_at": %q}`, a.made.Add(1),
			a.time().Add(a.life).UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newAPI(t *testing.T) (*api, *githubapp.App) {
	t.Helper()
	a := &api{t: t, life: time.Hour}
	a.now.Store(1_800_000_000)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL + "/api")
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	app, err := githubapp.New(githubapp.Config{ID: "1234", Key: keyPEM(), API: at, Client: client, Now: a.time})
	if err != nil {
		t.Fatal(err)
	}
	return a, app
}

func token(t *testing.T, app *githubapp.App) string {
	t.Helper()
	user, password, err := app.Credentials(t.Context(), "Owner", "repo.go")
	if err != nil || user != "x-access-token" {
		t.Fatalf("user %q, %v", user, err)
	}
	return password
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	a, app := newAPI(t)
	steps := []struct {
		passes time.Duration
		want   string
	}{{0, "ghs_1"}, {54 * time.Minute, "ghs_1"}, {time.Minute, "ghs_2"}, {time.Minute, "ghs_2"}}
	for i, step := range steps {
		a.now.Add(int64(step.passes / time.Second))
		if got := token(t, app); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	app.Forget("Owner", "repo.go", "ghs_1") // which was replaced
	if got := token(t, app); got != "ghs_2" {
		t.Errorf("after another token was refused: %s", got)
	}
	app.Forget("owner", "Repo.go", "ghs_2")
	if got := token(t, app); got != "ghs_3" {
		t.Errorf("after the token was refused: %s", got)
	}
	a.life = 10 * 365 * 24 * time.Hour
	app.Forget("Owner", "repo.go", "ghs_3")
	_ = token(t, app)
	a.now.Add(int64(time.Hour / time.Second))
	if got := token(t, app); got != "ghs_5" {
		t.Errorf("a token that claims to live for years is used after an hour: %s", got)
	}
}

// TestOneRequestAtATime is many who ask at once.
func TestOneRequestAtATime(t *testing.T) {
	t.Parallel()
	a, app := newAPI(t)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, got, err := app.Credentials(t.Context(), "Owner", "repo.go"); got != "ghs_1" || err != nil {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	group.Wait()
	if made := a.made.Load(); made != 1 {
		t.Errorf("%d tokens were made", made)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set   func(a *api)
		owner string
		name  string
		err   error
	}{
		"no installation": {func(*api) {}, "Owner", "other", githubapp.ErrNotInstalled},
		"no name":         {func(*api) {}, "Owner", "..", githubapp.ErrNotInstalled},
		"a path":          {func(*api) {}, "Owner/x", "repo.go", githubapp.ErrNotInstalled},
		"no owner":        {func(*api) {}, "", "repo.go", githubapp.ErrNotInstalled},
		"bad key":         {func(a *api) { a.status = http.StatusUnauthorized }, "Owner", "repo.go", githubapp.ErrRefused},
		"suspended":       {func(a *api) { a.status = http.StatusForbidden }, "Owner", "repo.go", githubapp.ErrRefused},
		"no permission": {
			func(a *api) { a.status = http.StatusUnprocessableEntity }, "Owner", "repo.go", githubapp.ErrRefused,
		},
		"down": {func(a *api) { a.status = http.StatusBadGateway }, "Owner", "repo.go", githubapp.ErrUnavailable},
		"too many": {
			func(a *api) { a.status = http.StatusTooManyRequests }, "Owner", "repo.go", githubapp.ErrUnavailable,
		},
		"no JSON":  {func(a *api) { a.body = "<html>" }, "Owner", "repo.go", githubapp.ErrUnavailable},
		"no id":    {func(a *api) { a.body = "{}" }, "Owner", "repo.go", githubapp.ErrUnavailable},
		"no token": {func(a *api) { a.body = `{"id": 1}` }, "Owner", "repo.go", githubapp.ErrUnavailable},
		"token of spaces": {
			func(a *api) { a.body = `{"id": 1, "token": "a b"}` }, "Owner", "repo.go", githubapp.ErrUnavailable,
		},
		"endless": {
			func(a *api) { a.body = `{"id": ` + strings.Repeat("1", 2<<20) }, "Owner", "repo.go", githubapp.ErrUnavailable,
		},
		"redirect to none": {func(a *api) { a.redirect = "/gone" }, "Owner", "repo.go", githubapp.ErrUnavailable},
	}
	for name, test := range tests {
		a, app := newAPI(t)
		test.set(a)
		_, secret, err := app.Credentials(t.Context(), test.owner, test.name)
		if !errors.Is(err, test.err) || secret != "" {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "ey") || len(err.Error()) > 200 {
			// Every JSON Web Token begins with these letters.
			t.Errorf("%s: the error tells too much: %v", name, err)
		}
	}
	_, app := newAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := app.Credentials(ctx, "Owner", "repo.go"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	at := &url.URL{Scheme: "https", Host: "api.github.com"}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(signer())
	if err != nil {
		t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if _, err := githubapp.New(githubapp.Config{ID: "1", Key: encoded, API: at}); err != nil {
		t.Error(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&signer().PublicKey)})
	for name, config := range map[string]githubapp.Config{
		"no id":      {Key: encoded, API: at},
		"no key":     {ID: "1", API: at},
		"not PEM":    {ID: "1", Key: pkcs8, API: at},
		"public key": {ID: "1", Key: public, API: at},
		"no API":     {ID: "1", Key: encoded},
		"password":   {ID: "1", Key: encoded, API: &url.URL{Scheme: "https", Host: "a", User: url.UserPassword("u", "p")}},
	} {
		if _, err := githubapp.New(config); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
