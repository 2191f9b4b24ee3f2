package auth_test

import (
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/api/auth"
)

// object is a JSON object of a forged token.
type object map[string]any

// with returns a copy with one member changed, or removed when value is nil.
func (o object) with(name string, value any) object {
	changed := maps.Clone(o)
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return changed
}

// raw is JSON, or an imitation, that goes into a token unchanged.
type raw string

// signer makes a signature over the text of a token.
type signer func(text string) []byte

// forge makes a token of any header and payload.
func forge(header, payload any, sign signer) string {
	encode := func(v any) string {
		data := []byte(nil)
		if text, ok := v.(raw); ok {
			data = []byte(text)
		} else {
			data, _ = json.Marshal(v)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	text := encode(header) + "." + encode(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// by signs as an honest holder of the key would.
func by(method jwt.SigningMethod, key pair) signer {
	return func(text string) []byte {
		signature, err := method.Sign(text, key.signer)
		if err != nil {
			panic(err)
		}
		return signature
	}
}

// Every token that must not verify, made by an attacker who knows all public data, or holds a key
// of another organization, or by a careless holder of a good key.
func TestAttacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stranger, mine := newECPair(elliptic.P256()), newECPair(elliptic.P256())
	f.write(t, "acme/p256.pem", p256().public)
	f.write(t, "acme/p384.pem", p384().public)
	f.write(t, "acme/rsa.pem", rsa2048().public)
	f.write(t, "acme/ed.pem", ed().public)
	f.write(t, "other/mine.pem", mine.public)
	f.write(t, "outside.pem", stranger.public)
	f.write(t, "../outside.pem", stranger.public)
	f.Reload()

	exp := clock.Unix() + 3600
	payload := object{"iss": "acme", "sub": "ci", "repo": "team/project", "scopes": []string{"git:write"}, "exp": exp}
	es := object{"alg": "ES256", "typ": "JWT"}
	honest := by(jwt.SigningMethodES256, p256())
	strange := by(jwt.SigningMethodES256, stranger)
	foreign := by(jwt.SigningMethodES256, mine)
	nothing := func(string) []byte { return nil }
	hmacWith := func(secret []byte) signer {
		return func(text string) []byte {
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(text))
			return mac.Sum(nil)
		}
	}
	if _, err := f.Verify("Bearer " + forge(es, payload, honest)); err != nil {
		t.Fatalf("the token that the attacks start from does not verify: %v", err)
	}

	tests := map[string]struct {
		header, payload any
		sign            signer
	}{
		"alg none":                       {es.with("alg", "none"), payload, nothing},
		"alg None":                       {es.with("alg", "None"), payload, nothing},
		"alg none with a good signature": {es.with("alg", "none"), payload, honest},
		"alg missing":                    {es.with("alg", nil), payload, honest},
		"alg empty":                      {es.with("alg", ""), payload, honest},
		"alg a number":                   {es.with("alg", 256), payload, honest},
		"alg a list":                     {es.with("alg", []string{"ES256"}), payload, honest},
		"alg lower case":                 {es.with("alg", "es256"), payload, honest},
		"HS256 with the public PEM":      {es.with("alg", "HS256"), payload, hmacWith(p256().public)},
		"HS256 with RSA's public PEM":    {es.with("alg", "HS256"), payload, hmacWith(rsa2048().public)},
		"HS256 with nothing":             {es.with("alg", "HS256"), payload, hmacWith(nil)},
		"RS256 by an EC key":             {es.with("alg", "RS256"), payload, honest},
		"RS512 by the RSA key":           {es.with("alg", "RS512"), payload, by(jwt.SigningMethodRS512, rsa2048())},
		"PS256 by the RSA key":           {es.with("alg", "PS256"), payload, by(jwt.SigningMethodPS256, rsa2048())},
		"ES384 by a P-256 key":           {es.with("alg", "ES384"), payload, honest},
		"ES512 by a P-384 key":           {es.with("alg", "ES512"), payload, by(jwt.SigningMethodES384, p384())},
		"ES256 signed with SHA-384":      {es, payload, by(jwt.SigningMethodES384, p384())},
		"EdDSA with no signature":        {es.with("alg", "EdDSA"), payload, nothing},
		"EdDSA with a zero signature":    {es.with("alg", "EdDSA"), payload, func(string) []byte { return make([]byte, 64) }},
		"ES256 with a zero signature":    {es, payload, func(string) []byte { return make([]byte, 64) }},
		"ES256 with a long signature":    {es, payload, func(s string) []byte { return append(honest(s), 0) }},
		"ES256 with a cut signature":     {es, payload, func(s string) []byte { return honest(s)[:63] }},
		"signature over something else":  {es, payload, func(string) []byte { return honest("x.y") }},
		"typ of another token":           {es.with("typ", "at+jwt"), payload, honest},
		"typ a number":                   {es.with("typ", 1), payload, honest},
		"crit":                           {es.with("crit", []string{"exp"}), payload, honest},
		"its own key in the header":      {es.with("jwk", object{"kty": "EC"}), payload, strange},
		"its own key at a URL":           {es.with("jku", "https://evil.example/keys"), payload, strange},
		"header no object":               {raw(`"ES256"`), payload, honest},
		"header no JSON":                 {raw(`{"alg":"ES256"`), payload, honest},

		"a stranger's key":                    {es, payload, strange},
		"another organization's key":          {es, payload, foreign},
		"another organization's key, named":   {es.with("kid", "mine"), payload, foreign},
		"another organization's key, by path": {es.with("kid", "../other/mine"), payload, foreign},
		"a file outside, by path":             {es.with("kid", "../outside"), payload, strange},
		"a file outside, by longer path":      {es.with("kid", "../../outside"), payload, strange},
		"a file by absolute path":             {es.with("kid", f.dir+"/outside"), payload, strange},
		"kid with the extension":              {es.with("kid", "p256.pem"), payload, honest},
		"kid of another key":                  {es.with("kid", "p384"), payload, honest},
		"kid that is not there":               {es.with("kid", "gone"), payload, honest},
		"kid empty":                           {es.with("kid", ""), payload, honest},
		"kid null":                            {raw(`{"alg":"ES256","kid":null}`), payload, honest},
		"kid a number":                        {es.with("kid", 0), payload, honest},
		"kid with a zero byte":                {es.with("kid", "p256\x00"), payload, honest},
		"kid for SQL":                         {es.with("kid", "' OR 1=1 --"), payload, honest},
		"kid for a shell":                     {es.with("kid", "p256|id"), payload, honest},
		"kid very long":                       {es.with("kid", strings.Repeat("a", 4000)), payload, honest},
		"iss of another organization":         {es, payload.with("iss", "other"), honest},
		"iss by path":                         {es, payload.with("iss", "other/../acme"), honest},
		"iss with a dot":                      {es, payload.with("iss", "./acme"), honest},
		"iss of the folder":                   {es, payload.with("iss", "."), strange},
		"iss of the parent folder":            {es, payload.with("iss", ".."), strange},
		"iss in capitals":                     {es, payload.with("iss", "ACME"), honest},
		"iss missing":                         {es, payload.with("iss", nil), honest},
		"iss empty":                           {es, payload.with("iss", ""), honest},
		"iss a list":                          {es, payload.with("iss", []string{"acme"}), honest},
		"exp missing":                         {es, payload.with("exp", nil), honest},
		"exp null":                            {es, raw(`{"iss":"acme","exp":null}`), honest},
		"exp in the past":                     {es, payload.with("exp", clock.Unix()-3600), honest},
		"exp zero":                            {es, payload.with("exp", 0), honest},
		"exp negative":                        {es, payload.with("exp", -1), honest},
		"exp a string":                        {es, payload.with("exp", fmt.Sprint(exp)), honest},
		"exp in milliseconds":                 {es, payload.with("exp", exp*1000), honest},
		"exp beyond int64":                    {es, raw(`{"iss":"acme","exp":1e19}`), honest},
		"exp beyond float64":                  {es, raw(`{"iss":"acme","exp":1e999}`), honest},
		"exp true":                            {es, payload.with("exp", true), honest},
		"exp twice":                           {es, raw(fmt.Sprintf(`{"iss":"acme","exp":1,"exp":%d}`, exp)), honest},
		"EXP only":                            {es, payload.with("exp", nil).with("EXP", exp), honest},
		"nbf in the future":                   {es, payload.with("nbf", clock.Unix()+3600), honest},
		"nbf a string":                        {es, payload.with("nbf", "0"), honest},
		"nbf huge":                            {es, raw(fmt.Sprintf(`{"iss":"acme","exp":%d,"nbf":1e30}`, exp)), honest},
		"iat a string":                        {es, payload.with("iat", "now"), honest},
		"iss twice":                           {es, raw(fmt.Sprintf(`{"iss":"other","iss":"acme","exp":%d}`, exp)), honest},
		"repo a number":                       {es, payload.with("repo", 7), honest},
		"scopes a string":                     {es, payload.with("scopes", "git:write"), honest},
		"scopes of numbers":                   {es, payload.with("scopes", []int{1}), honest},
		"refs no list":                        {es, payload.with("refs", object{"main": "no-push"}), honest},
		"refs not pairs":                      {es, payload.with("refs", [][]any{{"main"}}), honest},
		"refs with a bad pattern":             {es, payload.with("refs", [][]any{{"a*b", []any{}}}), honest},
		"paths a string":                      {es, payload.with("paths", "src/*"), honest},
		"paths not pairs":                     {es, payload.with("paths", [][]any{{"src"}}), honest},
		"paths with a bad pattern":            {es, payload.with("paths", [][]any{{"src[", []any{}}}), honest},
		"ops a string":                        {es, payload.with("ops", "no-push"), honest},
		"payload an array":                    {es, raw(`[]`), honest},
		"payload null":                        {es, raw(`null`), honest},
		"payload with bytes after it":         {es, raw(fmt.Sprintf(`{"iss":"acme","exp":%d} {}`, exp)), honest},
		"payload not UTF-8": {
			es, raw(fmt.Sprintf("{\"iss\":\"acme\",\"exp\":%d,\"sub\":\"\xff\"}", exp)), honest,
		},
		"payload deep":      {es, raw(`{"x":` + strings.Repeat("[", 5000)), honest},
		"longer than 8 KiB": {es, payload.with("x", strings.Repeat("a", 8<<10)), honest},
		"no claims but a deep and valid value": {
			es, raw(`{"refs":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`), honest,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := forge(test.header, test.payload, test.sign)
			for _, header := range []string{"Bearer " + token, basic("t", token)} {
				grant, err := f.Verify(header)
				if err == nil {
					t.Fatalf("granted %+v", grant)
				}
				var refusal *auth.Error
				if !errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized {
					t.Errorf("refused with %v, want status 401", err)
				}
			}
		})
	}
}

// Headers that are no token, or a good token in a form that another reader could take for another
// one.
func TestMalformedHeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/p256.pem", p256().public)
	f.Reload()
	good := mint(t, p256(), claims())
	parts := strings.Split(good, ".")
	tests := map[string]string{
		"no scheme":    good,
		"other scheme": "Token " + good,
		"scheme glued": "Bearer" + good,
		"two parts":    "Bearer " + parts[0] + "." + parts[1],
		"four parts":   "Bearer " + good + ".",
		"empty parts":  "Bearer ..",
		"padding":      "Bearer " + good + "=",
		"standard alphabet": "Bearer " + parts[0] + "." + parts[1] + "." +
			strings.NewReplacer("-", "+", "_", "/").Replace(parts[2]) + "+/",
		"white space inside":    "Bearer " + parts[0] + "." + parts[1] + ". " + parts[2],
		"two tokens":            "Bearer " + good + " " + good,
		"comma":                 "Bearer " + good + ", Bearer " + good,
		"basic not base64":      "Basic " + good,
		"basic without a colon": "Basic " + base64.StdEncoding.EncodeToString([]byte(good)),
		"basic as the user":     basic(good, "x"),
		"zero bytes":            "Bearer " + good + "\x00",
	}
	for name, header := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if grant, err := f.Verify(header); err == nil {
				t.Errorf("granted %+v", grant)
			}
		})
	}
}

// The last bits of a base64 text that belong to no byte must be zero, or one token would have many
// spellings.
func TestSpellingsOfOneToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/ed.pem", ed().public)
	f.Reload()
	good := mint(t, ed(), claims()) // 64 bytes of signature: 86 characters, 4 bits over
	if _, err := f.Verify("Bearer " + good); err != nil {
		t.Fatal(err)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range len(alphabet) {
		spelling := good[:len(good)-1] + alphabet[i:i+1]
		if spelling == good {
			continue
		}
		if _, err := f.Verify("Bearer " + spelling); err == nil {
			t.Errorf("the spelling that ends in %q verifies too", alphabet[i])
		}
	}
}

// An op that is not known leaves the token good for reading, and refuses the writes that it
// governs.
func TestUnknownOp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/ed.pem", ed().public)
	f.Reload()
	c := claims()
	c.Ops = []string{"no-such-op"}
	grant, err := f.Verify("Bearer " + mint(t, ed(), c))
	if err != nil {
		t.Fatal(err)
	}
	if ops := grant.Policy.Ops("refs/heads/main"); !ops.Has("no-such-op") {
		t.Errorf("the op is lost: %v", ops)
	}
}
