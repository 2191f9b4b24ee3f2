package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
)

// TestInspect decodes what [auth.Mint] signs, and verifies it with keys of both kinds.
func TestInspect(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	privatePEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(private.Public()); err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	issued := time.Unix(1_800_000_000, 0)
	claims := auth.Claims{
		Org: "acme", Subject: "me", Repo: "r", Scopes: []string{"git:read"}, KeyID: "k",
		IssuedAt: issued, NotBefore: issued, Expires: issued.Add(time.Hour), Algorithm: "ES384",
		Refs: []auth.RefRule{{Pattern: "main", Ops: []string{"no-push"}}, {Pattern: "x"}},
		Ops:  []string{"no-force-push"}, Paths: []auth.PathRule{{Pattern: "a", Ops: []string{"no-write"}}},
	}
	token, err := auth.Mint(privatePEM, claims)
	if err != nil {
		t.Fatal(err)
	}
	got, err := auth.Inspect(token)
	if err != nil || got.Fault != "" || !reflect.DeepEqual(got.Claims, claims) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, claims)
	}
	for name, test := range map[string]struct {
		key  []byte
		at   time.Time
		want string // in the refusal
	}{
		"public":  {key: publicPEM, at: issued},
		"private": {key: privatePEM, at: issued},
		"early":   {key: publicPEM, at: issued.Add(-time.Hour), want: "not valid yet"},
		"late":    {key: publicPEM, at: issued.Add(2 * time.Hour), want: "expired"},
	} {
		grant, err := auth.VerifyWith(test.key, token, func() time.Time { return test.at })
		if test.want == "" {
			if err != nil || grant.Org != "acme" || grant.Scopes != auth.GitRead {
				t.Errorf("%s: %+v, %v", name, grant, err)
			}
			continue
		}
		if refusal, ok := errors.AsType[*auth.Error](err); !ok || !strings.Contains(refusal.Message, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := auth.VerifyWith([]byte("none"), token, time.Now); !errors.Is(err, auth.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	changed := []byte(token)
	changed[len(changed)-10] ^= 1
	if _, err := auth.VerifyWith(publicPEM, string(changed), func() time.Time { return issued }); err == nil {
		t.Error("a token with a changed signature is verified")
	}
}
