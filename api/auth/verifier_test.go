package auth_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/refs"
)

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestVerifyGrants(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		key       pair
		algorithm string
		kid       string
	}{
		"RSA":               {key: rsa2048()},
		"P-256":             {key: p256()},
		"P-384":             {key: p384()},
		"P-384 as ES256":    {key: p384(), algorithm: "ES256"},
		"P-521":             {key: p521()},
		"P-521 as ES256":    {key: p521(), algorithm: "ES256"},
		"Ed25519":           {key: ed()},
		"named key":         {key: ed(), kid: "ed"},
		"named P-384, both": {key: p384(), algorithm: "ES256", kid: "p384"},
	}
	f := newFixture(t)
	for id, key := range map[string]pair{"rsa": rsa2048(), "p256": p256(), "p384": p384(), "p521": p521(), "ed": ed()} {
		f.write(t, "acme/"+id+".pem", key.public)
	}
	f.Reload()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claims()
			c.Algorithm, c.KeyID = test.algorithm, test.kid
			c.Ops = []string{"no-force-push"}
			c.Refs = []auth.RefRule{{Pattern: "main", Ops: []string{"no-push"}}, {Pattern: "refs/heads/free"}}
			token := mint(t, test.key, c)
			for _, header := range []string{"Bearer " + token, "bearer  " + token, basic("t", token), basic("", token)} {
				for range 2 { // the second time from the cache
					grant, err := f.Verify(header)
					if err != nil {
						t.Fatalf("Verify(%.12q): %v", header, err)
					}
					if grant.Org != "acme" || grant.Subject != "ci" || grant.Repo != "team/project" ||
						!grant.Expires.Equal(c.Expires) {
						t.Errorf("grant %+v does not say what the token says", grant)
					}
					if test.kid != "" && grant.KeyID != test.kid {
						t.Errorf("verified by key %q, want %q", grant.KeyID, test.kid)
					}
					if !grant.Allows(auth.GitRead|auth.GitWrite) || grant.Allows(auth.RepoWrite) || grant.Allows(auth.OrgRead) {
						t.Errorf("scopes %b", grant.Scopes)
					}
					if ops := grant.Policy.Ops("refs/heads/main"); !ops.Has(refs.NoPush) {
						t.Errorf("main is governed by %v", ops)
					}
					if ops := grant.Policy.Ops("refs/heads/free"); len(ops) != 0 {
						t.Errorf("free is governed by %v", ops)
					}
					if ops := grant.Policy.Ops("refs/tags/v1"); !ops.Has(refs.NoForcePush) {
						t.Errorf("a tag is governed by %v", ops)
					}
				}
			}
		})
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		scopes []string
		want   auth.Scope
	}{
		"none":                {},
		"read":                {scopes: []string{"git:read"}, want: auth.GitRead},
		"write includes read": {scopes: []string{"git:write"}, want: auth.GitRead | auth.GitWrite},
		"organization":        {scopes: []string{"org:read"}, want: auth.OrgRead},
		"repositories":        {scopes: []string{"repo:write"}, want: auth.RepoWrite},
		"not known":           {scopes: []string{"git:admin", "GIT:READ", "*", ""}},
	}
	f := newFixture(t)
	f.write(t, "acme/k.pem", ed().public)
	f.Reload()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claims()
			c.Scopes = test.scopes
			grant, err := f.Verify("Bearer " + mint(t, ed(), c))
			if err != nil {
				t.Fatal(err)
			}
			if grant.Scopes != test.want {
				t.Errorf("scopes %b, want %b", grant.Scopes, test.want)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		expires, notBefore time.Duration // from now
		ok                 bool
	}{
		"in force":                  {expires: time.Hour, notBefore: -time.Hour, ok: true},
		"expired within the skew":   {expires: -29 * time.Second, ok: true},
		"expired beyond the skew":   {expires: -31 * time.Second},
		"not yet within the skew":   {expires: time.Hour, notBefore: 29 * time.Second, ok: true},
		"not yet beyond the skew":   {expires: time.Hour, notBefore: 31 * time.Second},
		"issued in the future only": {expires: time.Hour, ok: true},
	}
	f := newFixture(t)
	f.write(t, "acme/k.pem", ed().public)
	f.Reload()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claims()
			c.IssuedAt = clock.Add(time.Minute)
			c.Expires = clock.Add(test.expires)
			if test.notBefore != 0 {
				c.NotBefore = clock.Add(test.notBefore)
			}
			_, err := f.Verify("Bearer " + mint(t, ed(), c))
			if test.ok != (err == nil) {
				t.Errorf("error %v, want ok %t", err, test.ok)
			}
		})
	}
}

// A grant from the cache ends with its token.
func TestCacheNeverOutlivesExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/k.pem", ed().public)
	f.Reload()
	header := "Bearer " + mint(t, ed(), claims())
	if _, err := f.Verify(header); err != nil {
		t.Fatal(err)
	}
	f.now = clock.Add(time.Hour + 30*time.Second)
	for range 2 {
		if grant, err := f.Verify(header); err == nil {
			t.Fatalf("an expired token granted %+v", grant)
		}
	}
}

// Two readers of two headers could choose differently.
func TestDuplicateHeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/k.pem", ed().public)
	f.Reload()
	header := "Bearer " + mint(t, ed(), claims())
	_, err := f.Verify(header, header)
	if !errors.Is(err, auth.ErrDuplicate) || auth.ErrDuplicate.StatusCode() != 400 {
		t.Errorf("error %v, want ErrDuplicate with 400", err)
	}
	for name, headers := range map[string][]string{
		"none": nil, "empty": {""}, "no token": {"Bearer "}, "no password": {basic("t", "")},
	} {
		if _, err := f.Verify(headers...); !errors.Is(err, auth.ErrMissing) {
			t.Errorf("%s: error %v, want ErrMissing", name, err)
		}
	}
}

// No refusal may quote the client's input: it could be a secret. The log has only the issuer and
// the key that a token names, and the client gets neither.
func TestRefusalsQuoteNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/k.pem", ed().public)
	f.Reload()
	c := claims()
	c.Org, c.Subject, c.Repo = "nobody", "secretsub", "secretrepo"
	unknown := "Bearer " + mint(t, ed(), c)
	for _, header := range []string{"Bearer secret", "Basic secret", "Secret secret", basic("secret", "secret"), unknown} {
		_, err := f.Verify(header)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Verify(%.20q): %v", header, err)
		}
	}
	_, err := f.Verify(unknown)
	refusal, ok := errors.AsType[*auth.Error](err)
	if !ok || strings.Contains(refusal.Error(), "nobody") ||
		!strings.Contains(err.Error(), "there is no organization nobody") {
		t.Errorf("the client hears %v, the log %v", refusal, err)
	}
	if strings.Contains(f.log.String(), "secret") {
		t.Errorf("logged: %s", f.log)
	}
}
