package auth_test

import (
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/api/auth"
)

func TestScopeNames(t *testing.T) {
	t.Parallel()
	for scope, want := range map[auth.Scope]string{
		auth.GitRead:                   "git:read",
		auth.GitWrite:                  "git:write",
		auth.GitWrite | auth.GitRead:   "git:write",
		auth.RepoWrite:                 "repo:write",
		auth.OrgRead | auth.GitRead:    "git:read org:read",
		auth.RepoWrite | auth.GitWrite: "git:write repo:write",
		0:                              "",
	} {
		if got := scope.String(); got != want {
			t.Errorf("%b is %q, want %q", scope, got, want)
		}
	}
}

// TestUnenforced makes tokens with claims that look like policies.
func TestUnenforced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/p256.pem", p256().public)
	f.Reload()
	payload := object{"iss": "acme", "repo": "r", "scopes": []string{"git:write"}, "exp": clock.Unix() + 3600}
	list := []any{[]any{"main", []string{"no-push"}}}
	for name, test := range map[string]struct {
		value any
		want  bool
	}{
		"paths":        {list, false},
		"Paths":        {list, true},
		"path":         {list, true},
		"ref":          {list, true},
		"Refs":         {list, true},
		"op":           {[]string{"no-push"}, true},
		"policies":     {object{"main": "no-push"}, true},
		"path_policy":  {list, true},
		"pathPolicies": {list, true},
		"jti":          {"x", false},
		"aud":          {[]string{"x"}, false},
		"email":        {"a@example.com", false},
		"groups":       {[]string{"a"}, false},
	} {
		token := forge(object{"alg": "ES256", "typ": "JWT"}, payload.with(name, test.value),
			by(jwt.SigningMethodES256, p256()))
		grant, err := f.Verify("Bearer " + token)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := map[bool]string{true: name}[test.want]; grant.Unenforced != want {
			t.Errorf("%s: got %q, want %q", name, grant.Unenforced, want)
		}
	}
	for text, want := range map[string]bool{
		`"ref":"refs/heads/main"`: false, `"paths":null`: false, `"paths":[]`: false, `"path":[]`: true,
	} {
		token := forge(object{"alg": "ES256"}, raw(`{"iss":"acme","exp":1700003600,`+text+`}`),
			by(jwt.SigningMethodES256, p256()))
		if grant, err := f.Verify("Bearer " + token); err != nil || (grant.Unenforced != "") != want {
			t.Errorf("%s: got %+v, %v", text, grant, err)
		}
	}
}
