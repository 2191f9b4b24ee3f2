// Package githubapp gets access to repositories on GitHub as a GitHub App does: a token of its own
// for each repository, for an hour.
//
// Start at [New] and [App.Credentials]. The app proves itself to GitHub's API with a JSON Web Token
// that its private key has signed, looks up its installation, and requests a token for a single
// repository, which limits the damage of a leak. See "Authenticating as a GitHub App installation"
// in GitHub's documentation. Tokens are kept in memory only; no error holds one.
package githubapp

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// ErrNotInstalled says that the app is not installed for a repository, or that there is no such
	// repository.
	ErrNotInstalled = errors.New("githubapp: the app is not installed for this repository")
	// ErrRefused says that the API rejects the app or its request.
	ErrRefused = errors.New("githubapp: refused")
	// ErrUnavailable says that the API cannot be reached, or sends an invalid answer.
	ErrUnavailable = errors.New("githubapp: not available")
)

// User is the user name that goes with a token.
const User = "x-access-token"

// Config identifies the app.
type Config struct {
	ID     string       // of the app, or its client id
	Key    []byte       // its private key, PEM
	API    *url.URL     // "https://api.github.com"
	Client *http.Client // from package outbound
	Agent  string       // "packhorse/1.2"

	Now func() time.Time // nil is time.Now
}

// App gets tokens. It may be used concurrently.
type App struct {
	config Config
	signer *rsa.PrivateKey

	mu     sync.Mutex
	access map[string]*access // by repository, in lower case as GitHub compares names
}

// access is a repository's token. The app's mutex guards it, but for turn.
type access struct {
	turn    chan struct{} // holds one element while no token is being requested
	users   int           // requests that use this or wait for their turn; a used one is not removed
	token   string
	expires time.Time // when the token is not used any more
}

const (
	keyBitsMin = 2048
	accessMax  = 10_000 // repositories whose tokens are kept
	// A token is not used any more when it would expire in the midst of a transfer's negotiation.
	expiryMargin = 5 * time.Minute
	// A proof is valid from a minute ago, for clocks that differ, and for less than the ten minutes
	// that GitHub accepts.
	proofBefore = time.Minute
	proofLife   = 9 * time.Minute
)

// New returns the app of a configuration. The error names the fault and contains no part of the
// key.
func New(c Config) (*App, error) {
	switch {
	case c.ID == "":
		return nil, errors.New("githubapp: the app has no ID")
	case c.API == nil || c.API.Host == "" || c.API.User != nil || c.API.RawQuery != "" || c.API.Fragment != "":
		return nil, errors.New("githubapp: the URL of the API has no host, or a user, a query or a fragment")
	}
	signer, err := jwt.ParseRSAPrivateKeyFromPEM(c.Key)
	if err != nil || signer.N.BitLen() < keyBitsMin {
		return nil, fmt.Errorf("githubapp: the key must be an RSA private key of at least %d bits in PEM", keyBitsMin)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &App{config: c, signer: signer, access: make(map[string]*access)}, nil
}

// Credentials returns the credentials of a repository, valid for some minutes at least. Concurrent
// callers share one request for a token.
//
// Errors: [ErrNotInstalled], [ErrRefused], [ErrUnavailable]; those of package outbound and of ctx.
func (a *App) Credentials(ctx context.Context, owner, name string) (user, password string, err error) {
	if !validSegment(owner) || !validSegment(name) {
		return "", "", fmt.Errorf("%w: no name of a repository", ErrNotInstalled)
	}
	at := a.enter(owner, name)
	defer a.leave(at)
	select {
	case <-at.turn:
		defer func() { at.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", "", fmt.Errorf("githubapp: wait for a token: %w", context.Cause(ctx))
	}
	if token := a.stored(at); token != "" {
		return User, token, nil
	}
	token, expires, err := a.request(ctx, owner, name)
	if err != nil {
		return "", "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at.token, at.expires = token, expires.Add(-expiryMargin)
	return User, token, nil
}

// Forget removes the stored token of a repository if it is the given one, because GitHub rejected
// it. The next caller requests a new one.
func (a *App) Forget(owner, name, token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := a.access[key(owner, name)]; at != nil && at.token == token {
		at.token = ""
	}
}

func key(owner, name string) string { return strings.ToLower(owner + "/" + name) }

// enter returns the entry of a repository; the caller leaves it later.
func (a *App) enter(owner, name string) *access {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.access[key(owner, name)]
	if at == nil {
		if len(a.access) >= accessMax {
			maps.DeleteFunc(a.access, func(_ string, old *access) bool { return old.users == 0 })
		}
		at = &access{turn: make(chan struct{}, 1)}
		at.turn <- struct{}{}
		a.access[key(owner, name)] = at
	}
	at.users++
	return at
}

func (a *App) leave(at *access) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at.users--
}

// stored returns a token that can still be used, or "".
func (a *App) stored(at *access) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.config.Now().Before(at.expires) {
		return ""
	}
	return at.token
}

// validSegment reports whether a name can be that of an account or a repository of GitHub.
func validSegment(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 100 && strings.Trim(name, segmentLetters) == ""
}

const segmentLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
