package credential

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// KeySize is the size in bytes of the key that seals credentials.
const KeySize = 32

// ErrKey says that there is no key, or another one than a credential was sealed with.
var ErrKey = errors.New("credential: no key for stored secrets")

// keyError is [ErrKey] in words for the client.
type keyError string

func (e keyError) Error() string        { return string(e) }
func (e keyError) Is(target error) bool { return target == ErrKey }

// Seal keeps credentials unreadable where they are stored: AES-256-GCM with a random nonce in
// front. A nil Seal has no key. Its methods may be called concurrently.
type Seal struct {
	aead cipher.AEAD
	key  []byte
}

// NewSeal returns the seal of a key, nil for no key.
func NewSeal(key []byte) (*Seal, error) {
	if len(key) == 0 {
		return nil, nil
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("secret key has %d bytes, not %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("use secret key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("use secret key: %w", err)
	}
	return &Seal{aead: aead, key: key}, nil
}

// Check is [ErrKey] without a key.
func (s *Seal) Check() error {
	if s == nil {
		return keyError("git credentials are not available: the server has no secret key")
	}
	return nil
}

// sealedLogin is the sealed content.
type sealedLogin struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password"`
}

// place binds a sealed login to its organization, repository and credential.
func place(org string, repo refs.RepoID, id ID) []byte {
	text := append([]byte(org), 0)
	text = append(text, repo[:]...)
	return append(text, id[:]...)
}

// Close seals the login of a credential. There must be a key.
func (s *Seal) Close(org string, repo refs.RepoID, id ID, l Login) (sealed []byte, err error) {
	secret, err := json.Marshal(sealedLogin{Username: string(l.Username), Password: string(l.Password)})
	if err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	return s.aead.Seal(nil, nil, secret, place(org, repo, id)), nil
}

// Open returns what Close sealed for the same place.
//
// Errors: [ErrKey], also when it was sealed with another key, for another place, or was changed
// since; kv.ErrCorrupt.
func (s *Seal) Open(org string, repo refs.RepoID, id ID, sealed []byte) (Login, error) {
	if err := s.Check(); err != nil {
		return Login{}, err
	}
	secret, err := s.aead.Open(nil, nil, sealed, place(org, repo, id))
	if err != nil {
		return Login{}, keyError("a stored credential cannot be opened with the secret key of this server")
	}
	var l sealedLogin
	if err := json.Unmarshal(secret, &l); err != nil {
		return Login{}, fmt.Errorf("%w: credential of repository %s", kv.ErrCorrupt, repo)
	}
	return Login{Username: Secret(l.Username), Password: Secret(l.Password)}, nil
}

// Digest identifies a request that holds a secret. Readers of the digest cannot test guesses
// without the key, which must be set.
func (s *Seal) Digest(request []byte) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(request)
	mac.Sum(sum[:0])
	return sum
}
