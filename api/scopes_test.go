package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// The calls of docs/api.md, each with the status for a missing scope. Without a token it is 401.
func TestScopes(t *testing.T) {
	t.Parallel()
	denied := map[string]int{
		"GET /api/v1/repos":                    401,
		"POST /api/v1/repos":                   403,
		"GET /api/v1/repo":                     403,
		"PATCH /api/v1/repo":                   403,
		"DELETE /api/v1/repos/delete":          403,
		"DELETE /api/v1/repos/base":            403,
		"POST /api/v1/repos/undelete":          403,
		"POST /api/v1/repos/undo":              403,
		"POST /api/v1/repos/pull-upstream":     403,
		"POST /api/v1/repos/git-credentials":   403,
		"PUT /api/v1/repos/git-credentials":    403,
		"DELETE /api/v1/repos/git-credentials": 403,
		"GET /api/v1/repos/branches":           401,
		"GET /api/v1/repos/branch":             403,
		"GET /api/v1/repos/tag":                403,
		"DELETE /api/v1/repos/branches":        401,
		"POST /api/v1/repos/branches/create":   401,
		"GET /api/v1/repos/notes":              401,
		"POST /api/v1/repos/notes":             401,
		"DELETE /api/v1/repos/notes":           401,
		"GET /api/v1/repos/notes/refs":         401,
		"GET /api/v1/repos/tags":               403,
		"POST /api/v1/repos/tags":              403,
		"DELETE /api/v1/repos/tags":            403,
		"GET /api/v1/repos/commits":            401,
		"POST /api/v1/repos/archive":           403,
		"POST /api/v1/repos/grep":              403,
		"GET /api/v1/repos/events":             403,
		"GET /api/v1/events":                   403,
		"GET /api/v1/repos/usage":              403,
		"GET /api/v1/repos/commit":             403,
		"GET /api/v1/repos/diff":               401,
		"GET /api/v1/repos/branches/diff":      401,
		"GET /api/v1/repos/files":              401,
		"GET /api/v1/repos/files/metadata":     403,
		"POST /api/v1/repos/files/read":        403,
		"GET /api/v1/repos/blame":              403,
		"GET /api/v1/repos/file":               403,
		"HEAD /api/v1/repos/file":              403,
		"POST /api/v1/repos/commit-pack":       401,
		"POST /api/v1/repos/diff-commit":       401,
		"POST /api/v1/repos/restore-commit":    403,
		"POST /api/v1/repos/transactions":      403,
		"POST /api/v1/transactions":            403,
		"POST /api/v1/repos/merge":             403,
		"GET /api/v1/repos/merge/preview":      403,
		"POST /api/v1/repos/cherry-pick":       403,
		"POST /api/v1/repos/revert":            403,
		"POST /api/v1/repos/land":              403,
	}
	var named []api.Route
	f := serve(t, nil, func(c *api.Config) {
		c.Routes = api.Routes(rest.New(rest.Config{Host: enginetest.Open(t)}))
		c.Refuse = rest.Refuse
		for _, route := range c.Routes {
			if denied[route.Method+" "+route.Path] == 0 {
				t.Errorf("%s %s is not looked at", route.Method, route.Path)
			}
		}
		named = c.Routes
	})
	look := func(t *testing.T, method, path, repo string, status int, scopes ...string) {
		t.Helper()
		for authorization, want := range map[string]int{
			"":                     http.StatusUnauthorized,
			"Bearer x.y.z":         http.StatusUnauthorized,
			token(repo, scopes...): status,
		} {
			c := f.dial(t)
			header := ""
			if authorization != "" {
				header = "Authorization: " + authorization + "\n"
			}
			c.send(method + " " + path + " HTTP/1.1\nHost: x\n" + header + "Content-Length: 0\n\n")
			a := c.receive(method)
			if a.StatusCode != want {
				t.Errorf("%s with %.12q: status %d, want %d: %s", path, authorization, a.StatusCode, want, a.body)
			}
			if result := strings.Contains(a.body, `"result"`); result != strings.HasSuffix(path, "-commit") &&
				result != strings.HasSuffix(path, "-pack") {
				t.Errorf("%s with %.12q: the refusal is %s", path, authorization, a.body)
			}
		}
	}
	for _, route := range named {
		status := denied[route.Method+" "+route.Path]
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			t.Parallel()
			scopes := []string{"git:read", "org:read"}
			switch {
			case route.Method == http.MethodGet, route.Method == http.MethodHead, route.Path == "/api/v1/repos/archive",
				route.Path == "/api/v1/repos/grep", route.Path == "/api/v1/repos/files/read":
				scopes = []string{"repo:write"}
			}
			for _, repo := range []string{"r", "other/repo/s"} {
				look(t, route.Method, route.Path, repo, status, scopes...)
				look(t, route.Method, pathOf(route.Named, repo), repo, http.StatusForbidden, scopes...)
			}
		})
	}
}

// TestMethods asks every path of the specification with a method that it does not have.
func TestMethods(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{}
	f := serve(t, nil, func(c *api.Config) {
		c.Routes = api.Routes(rest.New(rest.Config{Host: enginetest.Open(t)}))
		c.Refuse = rest.Refuse
		for _, route := range c.Routes {
			allowed[route.Path] = append(allowed[route.Path], route.Method)
			path := pathOf(route.Named, "r")
			allowed[path] = append(allowed[path], route.Method)
		}
	})
	for path, methods := range allowed {
		if slices.Contains(methods, http.MethodGet) && !slices.Contains(methods, http.MethodHead) {
			methods = append(methods, http.MethodHead)
		}
		c := f.dial(t)
		c.send("PURGE " + path + " HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") + "\nContent-Length: 0\n\n")
		a := c.receive("PURGE")
		listed := strings.Split(a.Header.Get("Allow"), ", ")
		slices.Sort(listed)
		slices.Sort(methods)
		if a.StatusCode != http.StatusMethodNotAllowed || !slices.Equal(listed, methods) {
			t.Errorf("PURGE %s: status %d, allowed %q, want %q: %s", path, a.StatusCode, listed, methods, a.body)
		}
	}
}
