package engine

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// SecretKeySize is the size in bytes of the key that seals stored secrets.
const SecretKeySize = 32

// seal keeps secrets unreadable where they are stored: AES-256-GCM with a random nonce in front. A nil seal has no key.
type seal struct {
	aead cipher.AEAD
	key  []byte
}

// newSeal returns the seal of a key, nil for no key.
func newSeal(key []byte) (*seal, error) {
	if len(key) == 0 {
		return nil, nil
	}
	if len(key) != SecretKeySize {
		return nil, fmt.Errorf("secret key has %d bytes, not %d", len(key), SecretKeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("use secret key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("use secret key: %w", err)
	}
	return &seal{aead: aead, key: key}, nil
}

// check is [ErrSecretKey] without a key.
func (s *seal) check() error {
	if s == nil {
		return &failure{kind: ErrSecretKey, text: "git credentials are not available: the server has no secret key"}
	}
	return nil
}

// close seals secret for the place that context names; only the same context opens it again.
func (s *seal) close(secret, context []byte) []byte { return s.aead.Seal(nil, nil, secret, context) }

// open returns what was sealed for context. Errors: [ErrSecretKey] when it was with another key, or was changed since.
func (s *seal) open(sealed, context []byte) ([]byte, error) {
	secret, err := s.aead.Open(nil, nil, sealed, context)
	if err != nil {
		return nil, &failure{kind: ErrSecretKey, text: "a stored credential cannot be opened with the secret key of this server"}
	}
	return secret, nil
}

// digest identifies a request that holds a secret. Whoever reads it later cannot try secrets on it without the key.
func (s *seal) digest(request []byte) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(request)
	mac.Sum(sum[:0])
	return sum
}
