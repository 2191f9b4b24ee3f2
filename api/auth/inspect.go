package auth

import (
	"cmp"
	"crypto"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/engine/pathpolicy"
	"packhorse/refs"
)

// Inspected is what a token says of itself, whether or not anybody should believe it.
type Inspected struct {
	Claims
	// Fault is why every server refuses the token, whoever has signed it and whenever; "" if there is
	// no such reason. Policies of such a token may be missing from the claims.
	Fault string
}

// Inspect decodes a token and verifies nothing. An error is an [*Error], and quotes nothing of the
// token: it is none, or too long.
func Inspect(token string) (Inspected, error) {
	if len(token) > TokenBytesMax {
		return Inspected{}, errTooLong
	}
	var c claims
	parsed, _, err := jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(token, &c)
	if parsed == nil || errors.Is(err, jwt.ErrTokenMalformed) { // an unknown algorithm is a fault
		return Inspected{}, errMalformed.with("expected HEADER.CLAIMS.SIGNATURE, the first two JSON objects in base64url")
	}
	text := func(name string) string {
		value, _ := parsed.Header[name].(string)
		return value
	}
	is := Inspected{Claims: Claims{
		Org: c.Issuer, Subject: c.Subject, Repo: c.repo, Scopes: c.scopes, Ops: c.ops,
		IssuedAt: timeIn(c.IssuedAt), Expires: timeIn(c.ExpiresAt), NotBefore: timeIn(c.NotBefore),
		KeyID: text("kid"), Algorithm: text("alg"),
	}}
	for _, rule := range c.refs {
		is.Refs = append(is.Refs, ruleIn(rule))
	}
	for _, rule := range c.paths {
		is.Paths = append(is.Paths, PathRule(ruleIn(rule)))
	}
	is.Fault = cmp.Or(headerFault(parsed.Header), c.fault())
	return is, nil
}

// headerFault is [Inspected.Fault] of a header.
func headerFault(header map[string]any) string {
	alg, _ := header["alg"].(string)
	if _, known := methods[alg]; !known {
		return "alg is unknown"
	}
	if typ, found := header["typ"]; found {
		if name, ok := typ.(string); !ok || !strings.EqualFold(name, "JWT") {
			return "typ is not JWT"
		}
	}
	if _, found := header["crit"]; found {
		return "crit names parameters that no server knows"
	}
	return ""
}

// fault is [Inspected.Fault] of the claims.
func (c *claims) fault() string {
	if _, err := refs.ParsePolicy(c.refs, c.ops); err != nil {
		return "refs or ops: " + err.Error()
	}
	if _, err := pathpolicy.Parse(c.paths); err != nil {
		return "paths: " + err.Error()
	}
	if c.ExpiresAt == nil {
		return "exp is missing"
	}
	return ""
}

// timeIn is the time of a claim, zero if there is none.
func timeIn(date *jwt.NumericDate) time.Time {
	if date == nil {
		return time.Time{}
	}
	return date.Time
}

// ruleIn is a rule as it is in a claim: a pattern and a list of operations.
func ruleIn(wire []any) (rule RefRule) {
	if len(wire) > 0 {
		rule.Pattern, _ = wire[0].(string)
	}
	if len(wire) > 1 {
		ops, _ := wire[1].([]any)
		for _, op := range ops {
			if name, ok := op.(string); ok {
				rule.Ops = append(rule.Ops, name)
			}
		}
	}
	return rule
}

// VerifyWith verifies a token as a server would for which one key, in PEM, is all that the token's
// organization has. A private key stands for its public one, and fits whatever key ID the token
// names. Errors: [ErrKey]; an [*Error] as of [Verifier.Verify].
func VerifyWith(keyPEM []byte, token string, now func() time.Time) (*Grant, error) {
	public, err := publicKeyIn(keyPEM)
	if err != nil {
		return nil, err
	}
	is, err := Inspect(token)
	if err != nil {
		return nil, err
	}
	fingerprint, err := Fingerprint(public)
	if err != nil {
		return nil, err
	}
	only := &key{id: fingerprint, public: public, fingerprint: fingerprint, algs: algorithms(public)}
	org := &issuer{keys: map[string]*key{is.KeyID: only}, sorted: []*key{only}, config: defaultOrgConfig()}
	v := &Verifier{now: now, parser: newParser(now)}
	v.orgs.Store(&map[string]*issuer{is.Org: org})
	grant, _, err := v.verify(token)
	return grant, err
}

// publicKeyIn reads a public key, or the public half of a private one.
func publicKeyIn(keyPEM []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return ParsePublicKey(keyPEM)
	}
	signer, err := parsePrivateKey(keyPEM)
	if err != nil {
		return nil, err
	}
	return signer.Public(), checkPublicKey(signer.Public())
}
