package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
)

// FuzzToken holds that only what a key of the organization signed verifies: the signed text in an
// accepted Authorization header is always that of a token which was minted.
func FuzzToken(f *testing.F) {
	dir := f.TempDir()
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	minted := make(map[string]bool)
	expires := time.Now().Add(24 * time.Hour)
	for name, key := range map[string]crypto.Signer{"ec": ec, "ed": ed} {
		registerKey(f, dir, name, key.Public())
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			f.Fatal(err)
		}
		for _, kid := range []string{"", name} {
			token, err := auth.Mint(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), auth.Claims{
				Org: "acme", Repo: "r", Scopes: []string{"git:write"}, Expires: expires, KeyID: kid,
				Refs: []auth.RefRule{{Pattern: "main", Ops: []string{"no-push"}}},
			})
			if err != nil {
				f.Fatal(err)
			}
			minted[token[:strings.LastIndexByte(token, '.')]] = true
			f.Add("Bearer " + token)
			f.Add("Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token)))
		}
	}
	f.Add("Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJhY21lIiwiZXhwIjo5OTk5OTk5OTk5fQ.")
	f.Add("Bearer ..")
	f.Add("Basic Og==")
	v, err := auth.Open(auth.Options{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(v.Close)

	f.Fuzz(func(t *testing.T, header string) {
		grant, err := v.Verify(header)
		if err != nil {
			if grant != nil {
				t.Fatalf("an error and the grant %+v", grant)
			}
			return
		}
		token := header[strings.IndexByte(header, ' ')+1:]
		if pair, err := base64.StdEncoding.DecodeString(strings.Trim(token, " ")); err == nil {
			_, token, _ = strings.Cut(string(pair), ":")
		}
		token = strings.Trim(token, " ")
		if !minted[token[:strings.LastIndexByte(token, '.')]] {
			t.Fatalf("%q was never signed and grants %+v", header, grant)
		}
	})
}

// registerKey puts a public key into the folder of organizations.
func registerKey(f *testing.F, dir, name string, public crypto.PublicKey) {
	f.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "acme"), 0o755); err != nil {
		f.Fatal(err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, "acme", name+".pem"), data, 0o644); err != nil {
		f.Fatal(err)
	}
}
