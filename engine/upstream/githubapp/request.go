package githubapp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/engine/outbound"
)

const (
	answerMax = 1 << 20 // bytes of an answer of the API
	tokenMax  = 4 << 10 // bytes of a token
	tokenLife = time.Hour
	patience  = 30 * time.Second // for both requests
)

// request has a token made for one repository.
func (a *App) request(ctx context.Context, owner, name string) (token string, expires time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: the API took too long", ErrUnavailable))
	defer cancel()
	var installation struct {
		ID int64 `json:"id"`
	}
	if err := a.call(ctx, http.MethodGet, nil, &installation, "repos", owner, name, "installation"); err != nil {
		return "", expires, err
	}
	if installation.ID <= 0 {
		return "", expires, fmt.Errorf("%w: an installation without an ID", ErrUnavailable)
	}
	var made struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	id := strconv.FormatInt(installation.ID, 10)
	if err := a.call(ctx, http.MethodPost, map[string]any{
		"repositories": []string{name},
	}, &made, "app", "installations", id, "access_tokens"); err != nil {
		return "", expires, err
	}
	now := a.config.Now()
	switch {
	case made.Token == "" || len(made.Token) > tokenMax ||
		strings.ContainsFunc(made.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", expires, fmt.Errorf("%w: no token in the answer", ErrUnavailable)
	case made.Expires.Sub(now) > tokenLife:
		made.Expires = now.Add(tokenLife)
	}
	return made.Token, made.Expires, nil
}

// proof returns what shows that we are the app.
func (a *App) proof() (string, error) {
	now := a.config.Now()
	claims := jwt.RegisteredClaims{
		Issuer:    a.config.ID,
		IssuedAt:  jwt.NewNumericDate(now.Add(-proofBefore)),
		ExpiresAt: jwt.NewNumericDate(now.Add(proofLife)),
	}
	return jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(a.signer)
}

// call asks the API and decodes its answer. Nothing that the API says gets into an error.
func (a *App) call(ctx context.Context, method string, body, answer any, path ...string) error {
	request, err := a.newRequest(ctx, method, body, path)
	if err != nil {
		return err
	}
	response, err := a.config.Client.Do(request)
	if err != nil {
		return callError(ctx, err)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return callError(ctx, err)
	}
	switch status := response.StatusCode; {
	case status == http.StatusOK, status == http.StatusCreated:
	case status == http.StatusNotFound:
		return ErrNotInstalled
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusForbidden &&
		response.Header.Get("Retry-After") != "":
		return fmt.Errorf("%w: HTTP status %d", ErrUnavailable, status)
	default:
		return fmt.Errorf("%w: HTTP status %d", ErrRefused, status)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%w: the answer is not the JSON that was expected", ErrUnavailable)
	}
	return nil
}

func (a *App) newRequest(ctx context.Context, method string, body any, path []string) (*http.Request, error) {
	proof, err := a.proof()
	if err != nil {
		return nil, errors.New("githubapp: the key cannot sign")
	}
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("githubapp: encode a request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.config.API.JoinPath(path...).String(),
		bytes.NewReader(content))
	if err != nil {
		return nil, errors.New("githubapp: the API URL is malformed")
	}
	request.Header.Set("Authorization", "Bearer "+proof)
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	request.Header.Set("User-Agent", cmp.Or(a.config.Agent, "packhorse"))
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// callError is an error of package http without its URL and without the text of the remote.
func callError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("githubapp: call the API: %w", cause)
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return fmt.Errorf("githubapp: call the API: %w", refused)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok && outer.Timeout() {
		return fmt.Errorf("%w: the API took too long", ErrUnavailable)
	}
	return fmt.Errorf("%w: the connection to the API failed", ErrUnavailable)
}
