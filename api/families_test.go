package api_test

import (
	"encoding/json"
	"flag"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"packhorse/api"
	"packhorse/api/rest"
)

// allNamed says that calls are made where the path names the repository, unless a test says
// otherwise.
var allNamed = false

// TestMain runs the tests, and those that make calls of all kinds a second time where the path
// names the repository. Tests that choose the family themselves are not among them.
func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if isWholeRun() {
		must(flag.Set("test.run", "^(TestPolicies|TestLostRaces|TestPatchesThroughServer)$"))
		allNamed = true
		status = max(status, m.Run())
	}
	os.Exit(status)
}

// isWholeRun reports whether all tests were asked for, and nothing else.
func isWholeRun() bool {
	for _, name := range []string{"test.run", "test.list", "test.fuzz", "test.bench"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// namedPaths are the paths that name the repository, by method and the path where the token does
// alone.
var namedPaths = sync.OnceValue(func() map[string]string {
	paths := make(map[string]string)
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		paths[route.Method+" "+route.Path] = route.Named
	}
	return paths
})

// inNamed is a call where the path names the repository, too, and the credential or the tag where
// it can.
func inNamed(t *testing.T, c call) call {
	t.Helper()
	bare, query, _ := strings.Cut(c.route, "?")
	path, ok := namedPaths()[bare]
	if !ok {
		t.Errorf("%s has no path that names the repository", bare)
	}
	method, _, _ := strings.Cut(bare, " ")
	path = strings.Replace(path, "{n}", url.PathEscape(c.repo), 1)
	for _, part := range []string{"name", "id"} {
		if !strings.Contains(path, "{"+part+"}") {
			continue
		}
		var fields map[string]any
		if json.Unmarshal([]byte(c.body), &fields) != nil {
			continue // a body that is to be refused
		}
		value, _ := fields[part].(string)
		path = strings.Replace(path, "{"+part+"}", url.PathEscape(value), 1)
		delete(fields, part)
		if method == http.MethodDelete && fields["ephemeral"] == true {
			query += "&ephemeral=true"
			delete(fields, "ephemeral")
		}
		c.body = ""
		if method != http.MethodDelete || len(fields) > 0 && fields["password"] == nil {
			body, err := json.Marshal(fields)
			if err != nil {
				t.Error(err)
			}
			c.body = string(body)
		}
	}
	c.route = method + " " + path
	if query != "" {
		c.route += "?" + strings.TrimPrefix(query, "&")
	}
	return c
}

// withQuery adds a parameter to a route.
func withQuery(route, parameter string) string {
	if strings.Contains(route, "?") {
		return route + "&" + parameter
	}
	return route + "?" + parameter
}

// inFamilies gives every call twice, by a name for each: where the token alone names the
// repository, and where the path does, too.
func inFamilies[T any](calls map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for name, c := range calls {
			if !yield(name, c) || !yield(name+namedFamily, c) {
				return
			}
		}
	}
}

const namedFamily = " (named)"

func isNamed(name string) bool { return strings.HasSuffix(name, namedFamily) }

// family is the name of a call without its family.
func family(name string) string { return strings.TrimSuffix(name, namedFamily) }

// pathOf is a path that names a repository.
func pathOf(template, repo string) string {
	return strings.NewReplacer("{n}", url.PathEscape(repo), "{name}", "t", "{id}", "i").Replace(template)
}

// TestNamedPaths reads branches and deletes tags by paths in all their forms.
func TestNamedPaths(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	for _, repo := range []string{"own/er", "own/tags", "own"} {
		w.do(call{"POST /api/repos", repo, ``}, nil).done(t)
	}
	const own = "/api/repos/own%2Fer"
	for name, test := range map[string]struct {
		route, repo string
		status      int
	}{
		"one segment":                {"GET " + own + "/branches", "own/er", 200},
		"small letters":              {"GET /api/repos/own%2fer/branches", "own/er", 200},
		"everything escaped":         {"GET /api/repos/%6fwn%2F%65r/%62ranches", "own/er", 200},
		"decoded by a proxy":         {"GET /api/repos/own/er/branches", "own/er", 200},
		"the repository":             {"GET " + own, "own/er", 200},
		"the repository, decoded":    {"GET /api/repos/own/er", "own/er", 200},
		"like a part of the API":     {"GET /api/repos/own/tags", "own/tags", 200},
		"part of it":                 {"GET /api/repos/own/tags", "own", 200},
		"a tag of own":               {"DELETE /api/repos/own/tags/x", "own", 404},
		"a method of own/tags":       {"POST /api/repos/own/tags/x", "own/tags", 404},
		"another repository":         {"GET " + own + "/branches", "r", 403},
		"another one, decoded":       {"GET /api/repos/own/er/branches", "er", 403},
		"a longer name":              {"GET /api/repos/own/er/branches", "own", 404},
		"a part of the token's":      {"GET /api/repos/own/branches", "own/er", 403},
		"more than the token's":      {"GET /api/repos/own%2Fer%2Fx/branches", "own/er", 403},
		"no such repository":         {"GET /api/repos/none/branches", "none", 404},
		"no such path":               {"GET " + own + "/none", "own/er", 404},
		"no name":                    {"GET /api/repos//branches", "own/er", 404},
		"a slash behind":             {"GET " + own + "/branches/", "own/er", 404},
		"a slash behind it":          {"GET " + own + "/", "own/er", 404},
		"two slashes":                {"GET " + own + "//branches", "own/er", 404},
		"an escaped slash elsewhere": {"GET " + own + "%2Fbranches", "own/er", 403},
		"dots":                       {"GET /api/repos/own/../own%2Fer/branches", "own/er", 400},
		"escaped dots":               {"GET /api/repos/own%2F%2e%2e%2Fown%2Fer/branches", "own/er", 400},
		"dots as a name":             {"GET /api/repos/%2e%2e/branches", "own/er", 400},
		"NUL":                        {"GET /api/repos/own%2Fer%00/branches", "own/er", 400},
		"a line end":                 {"GET /api/repos/own%2Fer%0a/branches", "own/er", 400},
		"a backslash":                {"GET /api/repos/own%5Cer/branches", "own/er", 400},
		"half an escape":             {"GET /api/repos/own%2/branches", "own/er", 400},
		"escaped twice":              {"GET /api/repos/own%252Fer/branches", "own/er", 404},
		"a fragment":                 {"GET /api/repos/own#x/branches", "own", 400},
		"a space":                    {"GET /api/repos/own%20er/branches", "own er", 404},
		"the organization":           {"GET " + own + "/branches", "org", 403},
		"a method it has not":        {"PUT " + own + "/branches", "own/er", 405},

		"git, of a repository so called": {
			"GET /api/repos/own.git/info/refs?service=git-upload-pack", "api/repos/own", 200,
		},
		"a tag like a path of git":    {"DELETE /api/repos/r/tags/a.git/info/refs", "r", 200},
		"a tag with slashes":          {"DELETE /api/repos/r/tags/release%2Fv1", "r", 200},
		"a tag with decoded slashes":  {"DELETE /api/repos/r/tags/release/v2", "r", 200},
		"a tag with a percent sign":   {"DELETE /api/repos/r/tags/100%25", "r", 200},
		"a tag with a hash":           {"DELETE /api/repos/r/tags/a%23b", "r", 200},
		"a tag, escaped twice":        {"DELETE /api/repos/r/tags/release%252Fv3", "r", 404},
		"a tag called like a call":    {"DELETE /api/repos/r/tags/commit-pack", "r", 404},
		"called like a call itself":   {"GET /api/repos/commit-pack", "commit-pack", 404},
		"a tag that is not there":     {"DELETE /api/repos/r/tags/none", "r", 404},
		"a tag with dots":             {"DELETE /api/repos/r/tags/a%2F..%2Fb", "r", 400},
		"a tag that cannot be":        {"DELETE /api/repos/r/tags/a..b", "r", 400},
		"a tag without a name":        {"DELETE /api/repos/r/tags/", "r", 400},
		"a credential that is not":    {"DELETE /api/repos/r/git-credentials/none", "r", 404},
		"a credential with a slash":   {"DELETE /api/repos/r/git-credentials/a%2Fb", "r", 404},
		"another tag in the body":     {"DELETE /api/repos/r/tags/release%2Fv3 {\"name\":\"other\"}", "r", 400},
		"the same tag in the body":    {"DELETE /api/repos/r/tags/kept {\"name\":\"kept\"}", "r", 200},
		"another namespace":           {"DELETE /api/repos/r/tags/release%2Fv3?ephemeral=true", "r", 404},
		"a namespace that cannot be":  {"DELETE /api/repos/r/tags/release%2Fv3?ephemeral=1", "r", 400},
		"a credential, other in body": {"PUT /api/repos/r/git-credentials/a {\"id\":\"b\",\"password\":\"p\"}", "r", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route, body, _ := strings.Cut(test.route, " {")
			if body != "" {
				body = "{" + body
			}
			tag, isTag := strings.CutPrefix(route, "DELETE /api/repos/r/tags/")
			if tag, err := url.PathUnescape(tag); isTag && test.status == 200 {
				must(err)
				w.do(call{"POST /api/repos/r/tags", "r", `{"name":"` + tag + `","target":"` + w.head + `"}`}, nil).done(t)
			}
			c := w.dial(t)
			c.raw(route + " HTTP/1.1\r\nHost: x\r\nAuthorization: " + token(test.repo, "git:write", "repo:write") +
				"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
			method, _, _ := strings.Cut(route, " ")
			a := c.receive(method)
			if a.StatusCode != test.status {
				t.Errorf("%s: status %d, want %d: %s", route, a.StatusCode, test.status, a.body)
			}
			if strings.Contains(a.body, `"result"`) { // of a commit, which none of these is
				t.Errorf("%s: %s", route, a.body)
			}
		})
	}
}
