package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"sync/atomic"
)

// RSA keys beyond these bounds are refused: shorter ones are weak, longer ones make each
// verification slow for no gain, and a smaller exponent forgives mistakes in padding less.
const (
	rsaBitsMin     = 2048
	rsaBitsMax     = 8192
	rsaExponentMin = 65537
)

// key is a registered public key. Its identity is its address: a file read again is the same key as
// long as its bytes are the same.
type key struct {
	id          string // file name without ".pem"
	fingerprint string
	public      crypto.PublicKey
	algs        []string    // that it may sign with
	removed     atomic.Bool // set once the file has gone or changed
}

func newKey(id string, data []byte) (*key, error) {
	public, err := ParsePublicKey(data)
	if err != nil {
		return nil, err
	}
	fingerprint, err := Fingerprint(public)
	if err != nil {
		return nil, err
	}
	return &key{id: id, fingerprint: fingerprint, public: public, algs: algorithms(public)}, nil
}

// Fingerprint returns the first 16 digits of the SHA-256 of a public key's PKIX form.
func Fingerprint(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8]), nil
}

// ParsePublicKey reads a public key that may be registered: PKIX PEM with RSA of 2048 to 8192 bits
// and an exponent of 65537 or more, EC P-256, P-384 or P-521, or Ed25519. Errors: [ErrKey], which
// never quotes the bytes.
func ParsePublicKey(data []byte) (crypto.PublicKey, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%w: no PEM block", ErrKey)
	}
	if len(bytes.TrimSpace(rest)) != 0 {
		return nil, fmt.Errorf("%w: more than one PEM block", ErrKey)
	}
	if block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("%w: PEM block %q, want PUBLIC KEY", ErrKey, block.Type)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if err := checkPublicKey(public); err != nil {
		return nil, err
	}
	return public, nil
}

func checkPublicKey(public crypto.PublicKey) error {
	switch public := public.(type) {
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < rsaBitsMin {
			return fmt.Errorf("%w: RSA of %d bits, want %d or more", ErrKey, bits, rsaBitsMin)
		} else if bits > rsaBitsMax {
			return fmt.Errorf("%w: RSA of %d bits, want %d at most", ErrKey, bits, rsaBitsMax)
		}
		if public.E < rsaExponentMin {
			return fmt.Errorf("%w: RSA with exponent %d, want %d or more", ErrKey, public.E, rsaExponentMin)
		}
	case *ecdsa.PublicKey:
		switch public.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
		default:
			return fmt.Errorf("%w: curve %s, want P-256, P-384 or P-521", ErrKey, public.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("%w: type %T", ErrKey, public)
	}
	return nil
}
