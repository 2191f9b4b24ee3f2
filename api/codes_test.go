package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/code"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// codeOf returns the code of an error answer, after a look whether it may come with its status.
func codeOf(t *testing.T, name string, status int, body string) code.Code {
	t.Helper()
	var told struct {
		Error string
		Code  code.Code
	}
	if err := json.Unmarshal([]byte(body), &told); err != nil || told.Error == "" {
		t.Errorf("%s: status %d, %v: %q", name, status, err, body)
		return ""
	}
	if entry := code.Find(told.Code); entry == nil || !slices.Contains(entry.Statuses, status) {
		t.Errorf("%s: code %q with status %d: %s", name, told.Code, status, body)
	}
	return told.Code
}

// What the router and the check of tokens refuse, on every route of both families, has the code of
// its fact.
func TestCodesOfRoutes(t *testing.T) {
	t.Parallel()
	var routes []api.Route
	f := serve(t, nil, func(c *api.Config) {
		c.Routes = api.Routes(rest.New(rest.Config{Host: enginetest.Open(t)}))
		c.Refuse = rest.Refuse
		routes = c.Routes
	})
	all := []string{"git:write", "repo:write", "org:read"}
	ask := func(t *testing.T, method, target, headers, body string) (status int, found code.Code) {
		t.Helper()
		c := f.dial(t)
		c.send(fmt.Sprintf("%s %s HTTP/1.1\nHost: x\n%sContent-Length: %d\n\n%s", method, target, headers, len(body), body))
		a := c.receive(method)
		return a.StatusCode, codeOf(t, method+" "+target, a.StatusCode, a.body)
	}
	for _, target := range []string{"/", "/nowhere", "/api/v1", "/api/v1/nowhere", "/api/repos/r/nowhere", "/r/info"} {
		good := "Authorization: " + token("r", all...) + "\n"
		if status, got := ask(t, "POST", target, good, ""); got != code.EndpointNotFound && got != code.MethodNotAllowed {
			t.Errorf("%s: status %d, code %s", target, status, got)
		}
	}
	for _, route := range routes {
		if route.Method == http.MethodHead { // which has no body
			continue
		}
		for _, path := range []string{route.Path, pathOf(route.Named, "r")} {
			t.Run(route.Method+" "+path, func(t *testing.T) {
				t.Parallel()
				good := "Authorization: " + token("r", all...) + "\n"
				weak := "Authorization: " + token("r", "git:read") + "\n"
				if route.Scope.String() == "git:read" {
					weak = "Authorization: " + token("r", "repo:write") + "\n"
				}
				forms := map[string]struct {
					method, target, headers, body string
					want                          code.Code
				}{
					"no token":      {route.Method, path, "", "", code.TokenMissing},
					"a bad token":   {route.Method, path, "Authorization: Bearer x.y.z\n", "", code.TokenInvalid},
					"a weak token":  {route.Method, path, weak, "", code.ScopeMissing},
					"two headers":   {route.Method, path, good + good, "", code.MalformedHTTP},
					"a method":      {"PURGE", path, good, "", code.MethodNotAllowed},
					"a guard":       {route.Method, path + "?expected_head=1", good, "", code.UnknownGuard},
					"a long URL":    {route.Method, path + "?x=" + strings.Repeat("x", 9<<10), good, "", code.URLTooLong},
					"a bad path":    {route.Method, path + "%00", good, "", code.MalformedHTTP},
					"a bad length":  {route.Method, path, good + "Content-Length: 1\n", "", code.MalformedHTTP},
					"a long header": {route.Method, path, good + "X: " + strings.Repeat("x", 40<<10) + "\n", "", code.HeaderTooLarge},
				}
				for name, form := range forms {
					if status, got := ask(t, form.method, form.target, form.headers, form.body); got != form.want {
						t.Errorf("%s: status %d, code %s, want %s", name, status, got, form.want)
					}
				}
				other := "Authorization: " + token("other", all...) + "\n"
				if strings.Contains(route.Named, "{n}") && path != route.Path {
					if _, got := ask(t, route.Method, path, other, ""); got != code.WrongRepository {
						t.Errorf("another repository: code %s", got)
					}
				}
			})
		}
	}
}
