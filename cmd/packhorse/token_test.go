package main_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/refs"
)

// readWrite is the default scope of a token.
const readWrite = auth.GitRead | auth.GitWrite

// keyPair writes a pair of PEM files.
func keyPair(t *testing.T, signer crypto.Signer) (private, public string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	private = write(t, "private.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	if der, err = x509.MarshalPKIXPublicKey(signer.Public()); err != nil {
		t.Fatal(err)
	}
	return private, write(t, "public.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestOrgAdd(t *testing.T) {
	t.Parallel()
	private, public := keyPair(t, ecKey(t))
	_, other := keyPair(t, ecKey(t))
	orgs := filepath.Join(t.TempDir(), "orgs")

	for range 2 { // the second time is no error
		got := packhorse(t, nil, "org", "add", "acme", "--key", public, "--kid", "k1", "--orgs", orgs)
		if got.status != 0 || got.out != "organization acme signs with key k1\n" {
			t.Fatalf("%+v", got)
		}
	}
	if got := packhorse(t, nil, "org", "add", "acme", "--key", other, "--kid", "k1", "--orgs", orgs); got.status != 2 ||
		!strings.Contains(got.errOut, "contains a different key") {
		t.Errorf("another key under a taken id: %+v", got)
	}
	if got := packhorse(t, nil, "org", "add", "acme", "--key", private, "--orgs", orgs); got.status != 2 {
		t.Errorf("a private key: %+v", got)
	}
	if got := packhorse(t, nil, "org", "add", "acme", "--key", other, "--orgs", orgs); got.status != 0 {
		t.Errorf("an id from the fingerprint: %+v", got)
	}
	files, err := filepath.Glob(filepath.Join(orgs, "acme", "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("registered files %v, %v", files, err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, public := keyPair(t, ecKey(t))
	edPrivate, edPublic := keyPair(t, edKey)
	orgs := t.TempDir()
	for _, key := range []string{public, edPublic} {
		if got := packhorse(t, nil, "org", "add", "acme", "--key", key, "--orgs", orgs); got.status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	verifier, err := auth.Open(auth.Options{Dir: orgs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(verifier.Close)

	tests := map[string]struct {
		key    string
		args   []string
		repo   string
		scopes auth.Scope
		ops    refs.Ops // on main
		// protects says that some path may not change.
		protects bool
	}{
		"defaults": {key: private, args: []string{"--repo", "a/b"}, repo: "a/b", scopes: readWrite},
		"ed25519":  {key: edPrivate, args: []string{"--scope", "git:read"}, scopes: auth.GitRead},
		"scopes": {
			key: private, args: []string{"--scope", "repo:write", "--scope", "org:read"}, scopes: auth.RepoWrite | auth.OrgRead,
		},
		"policies": {
			key: private, args: []string{
				"--ref-policy", "a=b=no-push", "--ref-policy", "main=no-push,no-force-push", "--ref-policy", "*=verify-sig",
			},
			scopes: readWrite, ops: refs.Ops{refs.NoPush, refs.NoForcePush},
		},
		"first policy": {key: private, args: []string{"--ref-policy", "ma*=;main=no-push"}, scopes: readWrite},
		"protected paths": {
			key: private, args: []string{"--path-policy", "docs/ci/**=;docs=no-write"}, scopes: readWrite, protects: true,
		},
		"ops of no rule": {
			key: private, args: []string{"--op", "no-force-push"}, scopes: readWrite, ops: refs.Ops{refs.NoForcePush},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"token", "--org", "acme", "--key", test.key, "--subject", "somebody"}, test.args...)
			got := packhorse(t, nil, args...)
			if got.status != 0 {
				t.Fatalf("%+v", got)
			}
			grant, err := verifier.Verify("Bearer " + strings.TrimSpace(got.out))
			if err != nil {
				t.Fatal(err)
			}
			if grant.Org != "acme" || grant.Subject != "somebody" || grant.Repo != test.repo || grant.Scopes != test.scopes {
				t.Errorf("grant %+v", grant)
			}
			if grant.Paths.Protects() != test.protects {
				t.Errorf("paths %+v", grant.Paths)
			}
			if ops := grant.Policy.Ops("refs/heads/main"); !slices.Equal(ops, test.ops) {
				t.Errorf("ops on main %q, want %q", ops, test.ops)
			}
		})
	}
}

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	private, public := keyPair(t, ecKey(t))
	orgs := t.TempDir()
	if got := packhorse(t, nil, "org", "add", "acme", "--key", public, "--orgs", orgs); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	verifier, err := auth.Open(auth.Options{Dir: orgs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(verifier.Close)
	config := write(t, "c.yaml", "org: acme\nkey: "+private+"\nrepo: file\nscope: [git:read, repo:write]\nttl: 2h\n")

	tests := map[string]struct {
		env  []string
		args []string
		repo string
	}{
		"file":                    {args: []string{"--config", config}, repo: "file"},
		"file of the environment": {env: []string{"PACKHORSE_CONFIG=" + config}, repo: "file"},
		"environment before file": {env: []string{"PACKHORSE_REPO=env"}, args: []string{"--config", config}, repo: "env"},
		"flag before both": {
			env: []string{"PACKHORSE_REPO=env"}, args: []string{"--config", config, "--repo", "flag"}, repo: "flag",
		},
		"empty flag before a file": {args: []string{"--config", config, "--repo="}, repo: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := packhorse(t, test.env, append([]string{"token"}, test.args...)...)
			if got.status != 0 {
				t.Fatalf("%+v", got)
			}
			grant, err := verifier.Verify("Bearer " + strings.TrimSpace(got.out))
			if err != nil {
				t.Fatal(err)
			}
			if grant.Repo != test.repo || grant.Scopes != auth.GitRead|auth.RepoWrite {
				t.Errorf("grant %+v, want repo %q", grant, test.repo)
			}
		})
	}
}

func TestTokenNeedsAKey(t *testing.T) {
	t.Parallel()
	_, public := keyPair(t, ecKey(t))
	if got := packhorse(t, nil, "token", "--org", "acme", "--key", public); got.status != 2 || got.out != "" {
		t.Errorf("a public key: %+v", got)
	}
}
