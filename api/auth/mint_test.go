package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"packhorse/api/auth"
)

// weakRSA is a public key that is too short.
func weakRSA(t *testing.T) []byte {
	t.Helper()
	return publicRSA(t, 1024, 65537)
}

// publicRSA is a public key made by hand, because crypto/rsa does not make every kind.
func publicRSA(t *testing.T, bits, exponent int) []byte {
	t.Helper()
	n := new(big.Int).SetBit(new(big.Int), bits-1, 1)
	der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: exponent})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestParsePublicKeyOfRSA(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bits, exponent int
		says           string // "" when it is accepted
	}{
		{2048, 65537, ""},
		{8192, 65537, ""},
		{2048, 65539, ""},
		{2047, 65537, "RSA of 2047 bits"},
		{8193, 65537, "RSA of 8193 bits"},
		{16384, 65537, "RSA of 16384 bits"},
		{2048, 3, "exponent 3"},
		{2048, 65535, "exponent 65535"},
	} {
		_, err := auth.ParsePublicKey(publicRSA(t, test.bits, test.exponent))
		if test.says == "" && err != nil ||
			test.says != "" && (!errors.Is(err, auth.ErrKey) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%d bits, exponent %d: %v", test.bits, test.exponent, err)
		}
	}
}

func TestMintKeyForms(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/ec.pem", p384().public)
	f.write(t, "acme/rsa.pem", rsa2048().public)
	f.Reload()
	sec1, err := x509.MarshalECPrivateKey(p384().signer.(*ecdsa.PrivateKey)) // made so in keys_test.go
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(rsa2048().signer.(*rsa.PrivateKey)) // made so in keys_test.go
	for name, key := range map[string][]byte{
		"PKCS #8": p384().private,
		"SEC 1":   pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
		"PKCS #1": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: pkcs1}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := f.Verify("Bearer " + mint(t, pair{private: key}, claims())); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMintRefuses(t *testing.T) {
	t.Parallel()
	es384 := claims()
	es384.Algorithm = "ES384"
	none := claims()
	none.Algorithm = "none"
	tests := map[string]struct {
		key    []byte
		claims auth.Claims
	}{
		"public key":              {p256().public, claims()},
		"no PEM":                  {[]byte("hello"), claims()},
		"P-224":                   {newECPair(elliptic.P224()).private, claims()},
		"an algorithm of others":  {p256().private, es384},
		"no algorithm":            {p256().private, none},
		"PEM of something broken": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), claims()},
		"PEM of a broken EC key":  {pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")}), claims()},
		"an encrypted private key": {
			pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), claims(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := auth.Mint(test.key, test.claims)
			if !errors.Is(err, auth.ErrKey) {
				t.Errorf("token %q, error %v, want ErrKey", token, err)
			}
			if err != nil && strings.Contains(err.Error(), string(test.key)) {
				t.Errorf("the error quotes the key: %v", err)
			}
		})
	}
}
