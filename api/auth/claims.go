package auth

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// claims are the claims of a token that Packhorse knows.
type claims struct {
	jwt.RegisteredClaims // iss, sub, iat, exp, nbf

	repo   string
	scopes []string
	refs   [][]any
	paths  [][]any
	ops    []string
	// unenforced is the first claim with a policy that the server does not enforce; "" without one.
	unenforced string
}

// wireClaims is the JSON of claims. Names are matched exactly and a name given twice is refused, so
// that no other reader of the same token can understand another thing.
type wireClaims struct {
	Issuer    string       `json:"iss"`
	Subject   string       `json:"sub"`
	IssuedAt  *numericDate `json:"iat"`
	ExpiresAt *numericDate `json:"exp"`
	NotBefore *numericDate `json:"nbf"`
	Repo      string       `json:"repo"`
	Scopes    []string     `json:"scopes"`
	Refs      [][]any      `json:"refs"`
	Paths     [][]any      `json:"paths"`
	Ops       []string     `json:"ops"`

	Others map[string]jsontext.Value `json:",embed"`
}

// policyClaims are names of claims with a policy, and likely misspellings of them: in lower case,
// without separators.
var policyClaims = []string{
	"paths", "path", "pathpolicy", "pathpolicies", "refs", "ref", "refpolicy", "refpolicies", "ops", "op", "policy",
	"policies",
}

// unenforced returns the first claim, by name, with an unknown policy. Only arrays and objects
// count: "ref" is also the name that some issuers give to the branch of a job.
func (c *wireClaims) unenforced() string {
	for _, name := range slices.Sorted(maps.Keys(c.Others)) {
		plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
		kind := c.Others[name].Kind()
		if kind == '[' || kind == '{' {
			if slices.Contains(policyClaims, plain) {
				return name
			}
		}
	}
	return ""
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(data []byte) error {
	var wire wireClaims
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*c = claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    wire.Issuer,
			Subject:   wire.Subject,
			IssuedAt:  wire.IssuedAt.date(),
			ExpiresAt: wire.ExpiresAt.date(),
			NotBefore: wire.NotBefore.date(),
		},
		repo: wire.Repo, scopes: wire.Scopes, refs: wire.Refs, paths: wire.Paths, ops: wire.Ops,
		unenforced: wire.unenforced(),
	}
	return nil
}

// numericDate is seconds since 1970 as a JSON number (RFC 7519, 2), perhaps with a fraction, up to
// the year 9999. It is here because jwt takes strings, and turns numbers beyond int64 into any
// time.
type numericDate time.Time

const secondsMax = 253402300799 // 9999-12-31T23:59:59Z

// UnmarshalJSON implements json.Unmarshaler.
func (d *numericDate) UnmarshalJSON(data []byte) error {
	seconds, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return err
	}
	if !(seconds >= 0 && seconds <= secondsMax) {
		return errClaimRange
	}
	*d = numericDate(time.Unix(int64(seconds), 0))
	return nil
}

func (d *numericDate) date() *jwt.NumericDate {
	if d == nil {
		return nil
	}
	return jwt.NewNumericDate(time.Time(*d))
}
