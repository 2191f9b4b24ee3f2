package auth

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Claims are the claims that [Mint] puts into a token. Org and Expires are required.
type Claims struct {
	Org       string // iss
	Subject   string // sub, recorded as the actor of changes
	Repo      string
	Scopes    []string // "git:read", "git:write", "repo:write", "org:read"
	IssuedAt  time.Time
	Expires   time.Time
	NotBefore time.Time
	Refs      []RefRule
	Paths     []PathRule
	Ops       []string

	KeyID     string // kid; "" lets any key of the organization verify the token
	Algorithm string // alg; the natural one of the key by default
}

// RefRule says which operations on the refs that match a pattern are refused.
type RefRule struct {
	Pattern string
	Ops     []string
}

// PathRule says which operations on the paths that match a pattern are refused.
type PathRule RefRule

// Mint signs a token with a private key in PEM (PKCS #8, or the older forms of EC and RSA keys).
// Errors: [ErrKey] when the key may not sign tokens, or not with the requested algorithm; they
// never quote the key.
func Mint(privateKeyPEM []byte, c Claims) (string, error) {
	signer, err := parsePrivateKey(privateKeyPEM)
	if err != nil {
		return "", err
	}
	if err := checkPublicKey(signer.Public()); err != nil {
		return "", err
	}
	algs := algorithms(signer.Public())
	if c.Algorithm == "" {
		c.Algorithm = algs[0]
	}
	if !slices.Contains(algs, c.Algorithm) {
		return "", fmt.Errorf("%w: it signs with %v, not %q", ErrKey, algs, c.Algorithm)
	}
	token := jwt.NewWithClaims(methods[c.Algorithm], c.wire())
	if c.KeyID != "" {
		token.Header["kid"] = c.KeyID
	}
	return token.SignedString(signer)
}

func (c Claims) wire() jwt.MapClaims {
	wire := jwt.MapClaims{"iss": c.Org, "exp": c.Expires.Unix(), "scopes": append([]string{}, c.Scopes...)}
	if c.Subject != "" {
		wire["sub"] = c.Subject
	}
	if c.Repo != "" {
		wire["repo"] = c.Repo
	}
	if !c.IssuedAt.IsZero() {
		wire["iat"] = c.IssuedAt.Unix()
	}
	if !c.NotBefore.IsZero() {
		wire["nbf"] = c.NotBefore.Unix()
	}
	if len(c.Ops) > 0 {
		wire["ops"] = c.Ops
	}
	if len(c.Refs) > 0 {
		wire["refs"] = wireRules(c.Refs)
	}
	if len(c.Paths) > 0 {
		wire["paths"] = wireRules(c.Paths)
	}
	return wire
}

func wireRules[R RefRule | PathRule](rules []R) [][2]any {
	wire := make([][2]any, len(rules))
	for i, rule := range rules {
		rule := RefRule(rule)
		wire[i] = [2]any{rule.Pattern, append([]string{}, rule.Ops...)} // [] in JSON when there are none
	}
	return wire
}

func parsePrivateKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%w: no PEM block", ErrKey)
	}
	var parsed any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("%w: PEM block %q is not a private key", ErrKey, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %T cannot sign", ErrKey, parsed)
	}
	return signer, nil
}
