package api_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/rest"
)

// TestGuards puts guards that are not known into every call that takes a body, at every level, and
// into every query. Nothing may be written then, and the refusal names the guard.
func TestGuards(t *testing.T) {
	t.Parallel()
	known := map[string]string{ // the guards of each call
		"POST " + v1 + "/commit-pack": "expected_head_sha", "POST " + v1 + "/diff-commit": "expected_head_sha",
		"POST " + v1 + "/restore-commit": "expected_head_sha", "POST " + v1 + "/merge": "expected_target_sha",
		"POST " + v1 + "/cherry-pick": "expected_target_sha", "POST " + v1 + "/revert": "expected_target_sha",
		"POST " + v1 + "/land":  "expected_target_sha",
		"POST " + v1 + "/notes": "expected_ref_sha", "DELETE " + v1 + "/notes": "expected_ref_sha",
	}
	for name, test := range inFamilies(writings) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWritable(t)
			w.named = isNamed(name)
			c := w.prepared(test, "guarded", "")
			refused := func(what, guard string, c call) {
				t.Helper()
				got := w.do(c, nil)
				if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), guard) ||
					!strings.Contains(string(got.body), "a guard is not ignored") {
					t.Errorf("%s: status %d: %s", what, got.status, got.body)
				}
				if understood := known[family(name)]; what == "in the body, 0" && !strings.Contains(string(got.body), understood) {
					t.Errorf("it is not told that %s is understood: %s", understood, got.body)
				}
			}
			for _, guard := range []string{"expected_sha", "expectedHeadSha", "Expected-Tip", "Dry_Run", "dryRun"} {
				query := c
				query.route = withQuery(c.route, guard+"=true")
				refused("in the query", guard, query)
				for at := range objects(c.body) {
					body := c
					body.body = guarded(c.body, at, guard)
					refused(fmt.Sprint("in the body, ", at), guard, body)
				}
			}
			if c.body == "" {
				c.body = "{}"
			}
			escaped := c
			escaped.body = guarded(c.body, 0, `\u0065xpected_sha`)
			refused("escaped", "expected_sha", escaped)
			if objects(c.body) > 0 {
				w.do(c, nil).done(t)
			}
		})
	}
	w := newWritable(t)
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		if route.Scope&(auth.GitWrite|auth.RepoWrite) != 0 {
			continue
		}
		for _, path := range []string{route.Path, pathOf(route.Named, "r")} {
			got := w.do(call{route.Method + " " + path + "?dry_run=1", "r", ""}, nil)
			if denied := route.Scope == auth.OrgRead; got.status != http.StatusBadRequest && !denied {
				t.Errorf("%s %s: status %d: %s", route.Method, path, got.status, got.body)
			}
		}
	}
}

// objects counts the objects in JSON.
func objects(body string) int { return strings.Count(body, "{") }

// guarded puts a guard into an object of JSON.
func guarded(body string, at int, guard string) string {
	parts := strings.SplitN(body, "{", at+2)
	rest := parts[at+1]
	comma := ","
	if strings.HasPrefix(strings.TrimSpace(rest), "}") {
		comma = ""
	}
	return fmt.Sprintf("%s{\"%s\":\"%040d\"%s%s", strings.Join(parts[:at+1], "{"), guard, 1, comma, rest)
}

// TestUnenforcedPolicy uses a token with a policy that the server does not enforce.
func TestUnenforcedPolicy(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	w.tokens.Store(fmt.Sprint("r", []string{"policies"}), unenforced(t))
	for name, test := range writings {
		_, c := test.call(w, strings.ToLower(name[:3]), "")
		c.repo = "r"
		got := w.do(c, []string{"policies"})
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), `claim \"policies\"`) {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
	for _, route := range []string{"GET " + v1 + "/files", "GET " + v1 + "/branches", "GET " + v1 + "/commits"} {
		w.do(call{route, "r", ""}, []string{"policies"}).done(t)
	}
}

// unenforced is a token for "r" with an unknown claim.
func unenforced(t *testing.T) string {
	t.Helper()
	block, _ := pem.Decode(keys().private)
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	payload := fmt.Sprintf(
		`{"iss":"acme","repo":"r","scopes":["git:write","repo:write"],"exp":%d,"policies":[["src/*",["no-write"]]]}`,
		time.Now().Add(time.Hour).Unix(),
	)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(payload))
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, parsed.(*ecdsa.PrivateKey), hash[:]) // made so in server_test.go
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
