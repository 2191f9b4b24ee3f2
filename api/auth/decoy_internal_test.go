package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func newPrivate(t *testing.T, generate func() (crypto.Signer, error)) crypto.Signer {
	t.Helper()
	private, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	return private
}

func onCurve(curve elliptic.Curve) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return ecdsa.GenerateKey(curve, rand.Reader) }
}

func ofBits(bits int) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, bits) }
}

func edwards() (crypto.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return private, err
}

func pemOf(t *testing.T, kind string, der []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// TestRefusalsCostTheSame counts the computations for the refusal of a bad token: as many for an
// issuer that does not exist, or has no such key or none of that kind, as for one whose key is
// tried. Otherwise the time would reveal organizations and their keys.
func TestRefusalsCostTheSame(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		generate func() (crypto.Signer, error)
		alg      string
	}{
		"P-256":          {generate: onCurve(elliptic.P256())},
		"P-384":          {generate: onCurve(elliptic.P384())},
		"P-384 as ES256": {generate: onCurve(elliptic.P384()), alg: "ES256"},
		"P-521":          {generate: onCurve(elliptic.P521())},
		"P-521 as ES256": {generate: onCurve(elliptic.P521()), alg: "ES256"},
		"Ed25519":        {generate: edwards},
		"RSA 2048":       {generate: ofBits(2048)},
		"RSA 3072":       {generate: ofBits(3072)},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			register := func(org string, generate func() (crypto.Signer, error)) {
				der, err := x509.MarshalPKIXPublicKey(newPrivate(t, generate).Public())
				path := filepath.Join(dir, org, "k.pem")
				key := pemOf(t, "PUBLIC KEY", der, err)
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, key, 0o600))
				if err != nil {
					t.Fatal(err)
				}
			}
			register("same", kind.generate)
			register("curve", onCurve(elliptic.P256()))
			register("edwards", edwards)
			register("rsa", ofBits(2048))
			v, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(v.Close)
			stranger := newPrivate(t, kind.generate)
			der, err := x509.MarshalPKCS8PrivateKey(stranger)
			private := pemOf(t, "PRIVATE KEY", der, err)
			for _, org := range []string{"same", "curve", "edwards", "rsa", "nobody", "No Name"} {
				for _, kid := range []string{"", "k", "gone"} {
					c := Claims{Org: org, KeyID: kid, Algorithm: kind.alg, Expires: time.Now().Add(time.Hour)}
					token, err := Mint(private, c)
					if err != nil {
						t.Fatal(err)
					}
					_, computed, err := v.verify(token)
					if !errors.Is(err, errSignature) || computed != 1 {
						t.Errorf("organization %q, key %q: %d signatures were computed: %v", org, kid, computed, err)
					}
				}
			}
			alg := kind.alg
			if alg == "" {
				alg = algorithms(stranger.Public())[0]
			}
			size := signatureSize(stranger.Public())
			public := decoy(alg, size)
			if fmt.Sprintf("%T", public) != fmt.Sprintf("%T", stranger.Public()) || signatureSize(public) != size {
				t.Errorf("the decoy is %v", public)
			}
		})
	}
	for alg := range methods {
		for _, size := range []int{0, 1, 63, 8<<10 + 1} {
			if public := decoy(alg, size); public != nil {
				t.Errorf("%s of %d bytes: %v", alg, size, public)
			}
		}
	}
}
