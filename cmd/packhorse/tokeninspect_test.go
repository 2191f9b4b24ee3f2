package main_test

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTokenInspect looks into tokens, as an argument and on standard input, and verifies them with
// a folder of organizations and with keys. No output has the token.
func TestTokenInspect(t *testing.T) {
	t.Parallel()
	private, public := keyPair(t, ecKey(t))
	_, other := keyPair(t, ecKey(t))
	orgs := filepath.Join(t.TempDir(), "orgs")
	if got := packhorse(t, nil, "org", "add", "acme", "--key", public, "--kid", "k1", "--orgs", orgs); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	sign := func(flags ...string) string {
		got := packhorse(t, nil, append([]string{"token", "--key", private, "--org"}, flags...)...)
		if got.status != 0 {
			t.Fatalf("%+v", got)
		}
		return strings.TrimSpace(got.out)
	}
	good := sign("acme", "--repo", "web/site", "--kid", "k1", "--subject", "\x1b[2Jme", "--ttl", "100d",
		"--ref-policy", "refs/heads/main=no-push,no-force-push", "--path-policy", "docs/=no-write", "--op", "verify-sig")
	lines := []string{
		"organization: acme\n", "repository: web/site\n", "scopes: git:read, git:write\n",
		"UTC, in 99 days\n", " ago\n", `subject: "\x1b[2Jme"` + "\n", "key ID: k1\n",
		"refused on refs: refs/heads/main=no-push,no-force-push\n", "refused on paths: docs/=no-write\n",
		"refused on other refs: verify-sig\n",
	}
	for name, test := range map[string]struct {
		token  string
		stdin  bool
		flags  []string
		status int
		want   []string
	}{
		"decoded":                {token: good, want: append(lines, "verified: no: not asked for")},
		"on standard input":      {token: good + "\n", stdin: true, want: lines},
		"a header":               {token: "Bearer " + good, want: lines},
		"the folder":             {token: good, flags: []string{"--orgs", orgs}, want: []string{"yes, with " + orgs + ", key k1\n"}},
		"the public key":         {token: good, flags: []string{"--key", public}, want: []string{"yes, with " + public + ", key "}},
		"the private key":        {token: good, flags: []string{"--key", private}, want: []string{"yes, with " + private + ", key "}},
		"another key":            {token: good, flags: []string{"--key", other}, status: 1, want: []string{"verified:", "no, with " + other + ": invalid token: no registered key"}},
		"another organization":   {token: sign("beta"), flags: []string{"--orgs", orgs}, status: 1, want: []string{"there is no organization beta"}},
		"of an organization":     {token: sign("acme", "--scope", "org:read"), want: []string{"repository: - (calls about the organization)\n"}},
		"not a token":            {token: "hush.hush", status: 2, want: []string{"<token>: invalid token: malformed"}},
		"nothing":                {stdin: true, status: 2, want: []string{"<token>: invalid token: malformed"}},
		"too long":               {token: strings.Repeat("hush", 3000), stdin: true, status: 2, want: []string{"longer than 8 KiB"}},
		"both ways":              {token: good, flags: []string{"--orgs", orgs, "--key", public}, status: 2, want: []string{"--orgs or --key, and not both"}},
		"a key that is none":     {token: good, flags: []string{"--key", write(t, "k.pem", "none")}, status: 2, want: []string{"--key: ", "expected a key of an organization, PEM"}},
		"a scope nobody has":     {token: resigned(t, good, `{"iss":"a","scopes":["x"],"exp":99}`), want: []string{"scopes: x\n", "days ago\n"}},
		"never ends":             {token: resigned(t, good, `{"iss":"a"}`), want: []string{"scopes: -\n", "fault: exp is missing: every server refuses the token\n"}},
		"a policy of no meaning": {token: resigned(t, good, `{"iss":"a","exp":99,"paths":[[1]]}`), want: []string{"fault: paths: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"token", "inspect"}, test.flags...)
			var got result
			if test.stdin {
				got = runReading(t, strings.NewReader(test.token), bin, nil, args...)
			} else {
				got = runBinary(t, bin, nil, append(args, "--", test.token)...)
			}
			if got.status != test.status || test.status == 2 && (got.out != "" || strings.Count(got.errOut, "\n") != 1) {
				t.Errorf("%+v", got)
			}
			said := strings.Join(slices.DeleteFunc(strings.Split(got.out+got.errOut, " "), isEmpty), " ")
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("%+v\nwithout %q", got, want)
				}
			}
			for part := range strings.SplitSeq(strings.TrimSpace(strings.TrimPrefix(test.token, "Bearer ")), ".") {
				if part != "" && strings.Contains(got.out+got.errOut, part) {
					t.Errorf("a part of the token is printed: %+v", got)
				}
			}
		})
	}

	var shown struct {
		Organization string
		Scopes       []string
		RefPolicy    []string `json:"ref_policy"`
		Verified     *bool
		VerifiedBy   string `json:"verified_by"`
	}
	got := packhorse(t, nil, "token", "inspect", "--json", "--orgs", orgs, good)
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || shown.Organization != "acme" || len(shown.Scopes) != 2 ||
		len(shown.RefPolicy) != 1 || shown.Verified == nil || !*shown.Verified || shown.VerifiedBy != "k1" {
		t.Errorf("%+v: %+v, %v", got, shown, err)
	}
}

func isEmpty(text string) bool { return text == "" }

// resigned is a token with other claims, and a signature that does not fit them.
func resigned(t *testing.T, token, claims string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatal("not a token")
	}
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(claims))
	return strings.Join(parts, ".")
}
