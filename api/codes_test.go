package api_test

import (
	"encoding/base64"
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

// What calls refuse has the code of its fact, the same in both families: facts that share a status
// are told apart.
func TestCodesOfFacts(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named %t", named), func(t *testing.T) {
			t.Parallel()
			w, first := contracted(t)
			w.named = named
			const repo = "own/er"
			for _, c := range []call{
				{"POST " + v1 + "/branches/create", repo, `{"target_branch":"topic","base_ref":"main"}`},
				{"POST " + v1 + "/commit-pack", repo, strings.Replace(commitLines("", "f", "2\n"), `"main"`, `"topic"`, 1)},
				{"POST " + v1 + "/commit-pack", repo, commitLines("", "f", "3\n")},
				{"POST " + v1 + "/branches/create", repo, `{"target_branch":"same","base_ref":"main~1"}`},
				{"POST " + v1 + "/commit-pack", repo, strings.Replace(commitLines("", "f", "3\n"), `"main"`, `"same"`, 1)},
				{"POST " + v1 + "/notes", repo, `{"object_ref":"main","note":"n"}`},
			} {
				w.do(c, nil).done(t)
			}
			merge := func(strategy, more string) string {
				return `{"source_ref":"topic","target_branch":"main","strategy":"` + strategy + `","commit_message":"m",` + more + person + `}`
			}
			files := func(of string) string {
				return `{"metadata":{"target_branch":"main","commit_message":"m",` + person + `,"files":[` + of + "]}}\n"
			}
			patch := func(text string) string {
				return `{"metadata":{"target_branch":"main","commit_message":"m",` + person + "}}\n" +
					fmt.Sprintf(`{"diff_chunk":{"data":%q,"eof":true}}`, base64.StdEncoding.EncodeToString([]byte(text))) + "\n"
			}
			for _, test := range []struct {
				route, body string
				want        code.Code
			}{
				{"GET " + v1 + "/branch?name=none", "", code.RefNotFound},
				{"GET " + v1 + "/tag?name=none", "", code.RefNotFound},
				{"GET " + v1 + "/files?ref=none", "", code.RefNotFound},
				{"GET " + v1 + "/files/metadata?ref=none&ephemeral=true", "", code.RefNotFound},
				{"DELETE " + v1 + "/tags", `{"name":"none"}`, code.RefNotFound},
				{"GET " + v1 + "/files?ref=main~9", "", code.CommitNotFound},
				{"GET " + v1 + "/commit?sha=" + strings.Repeat("1", 40), "", code.CommitNotFound},
				{"GET " + v1 + "/files?ref=main..topic", "", code.InvalidRevision},
				{"GET " + v1 + "/file?path=none", "", code.PathNotFound},
				{"GET " + v1 + "/blame?path=none", "", code.PathNotFound},
				{"GET " + v1 + "/notes?object_ref=" + first, "", code.NoteNotFound},
				{"GET " + v1 + "/branches?cursor=x", "", code.InvalidCursor},
				{"GET " + v1 + "/commits?cursor=x", "", code.InvalidCursor},
				{"GET /api/v1/repos?limit=0", "", code.InvalidRequest},
				{"GET " + v1 + "/branches?at=seq:999", "", code.MomentInFuture},
				{"GET " + v1 + "/branches?at=seq:0", "", code.BeforeCreation},
				{"GET " + v1 + "/events?after=999", "", code.MomentInFuture},
				{"POST /api/v1/repos", `{}`, code.RepositoryExists},
				{"POST " + v1 + "/undelete", `{}`, code.RepositoryExists},
				{"PATCH /api/v1/repo", `{"name":"own/taken"}`, code.RepositoryExists},
				{"POST " + v1 + "/branches/create", `{"target_branch":"main","base_ref":"main"}`, code.RefExists},
				{"POST " + v1 + "/branches/create", `{"target_branch":"a..b","base_ref":"main"}`, code.InvalidRefName},
				{"POST " + v1 + "/branches/create", `{"target_branch":"main/x","base_ref":"main"}`, code.RefNameConflict},
				{"POST " + v1 + "/branches/create", `{"target_branch":"b"`, code.MalformedJSON},
				{"POST " + v1 + "/branches/create", `{"target_branch":7}`, code.InvalidRequest},
				{"POST " + v1 + "/branches/create", `{"target_branch":"b","expected_sha":"x"}`, code.UnknownGuard},
				{"DELETE " + v1 + "/branches", `{"target_branch":"main"}`, code.IsDefaultBranch},
				{"POST " + v1 + "/notes", `{"object_ref":"main","note":"n"}`, code.NoteExists},
				{"POST " + v1 + "/notes", `{"object_ref":"main","note":"n","action":"append","expected_ref_sha":"` + first + `"}`, code.TargetMoved},
				{"POST " + v1 + "/commit-pack", commitLines(`"expected_target_sha":"`+first+`",`, "f", "4"), code.TargetMoved},
				{"POST " + v1 + "/commit-pack", files(`{"path":"none","operation":"delete"}`), code.InvalidFileOperation},
				{"POST " + v1 + "/commit-pack", files(`{"path":"f","operation":"edit","edits":[{"old":"x","new":"y"}]}`), code.EditMismatch},
				{"POST " + v1 + "/diff-commit", patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-9\n+8\n"), code.PatchDoesNotApply},
				{"POST " + v1 + "/diff-commit", patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n"), code.InvalidPatch},
				{"POST " + v1 + "/diff-commit", patch("\n"), code.EmptyPatch},
				{"POST " + v1 + "/diff-commit", patch("no patch\n"), code.EmptyPatch},
				{"POST " + v1 + "/merge", merge("merge", ""), code.MergeConflict},
				{"POST " + v1 + "/merge", merge("ff_only", ""), code.NotFastForward},
				{"POST " + v1 + "/merge", merge("merge", `"expected_target_sha":"`+first+`",`), code.TargetMoved},
				{"POST " + v1 + "/merge", merge("merge", `"resolutions":[{"path":"f","side":"ours"},{"path":"g","side":"ours"}],`), code.NoSuchConflict},
				{"POST " + v1 + "/cherry-pick", `{"commits":["topic"],"target_branch":"main",` + person + `}`, code.MergeConflict},
				{"POST " + v1 + "/cherry-pick", `{"commits":["same"],"target_branch":"main",` + person + `}`, code.EmptyPick},
				{"POST " + v1 + "/transactions", transaction(`{"branch":{"action":"delete","target_branch":"none"}}`), code.RefNotFound},
				{"POST " + v1 + "/transactions", transaction(`{"branch":{"action":"create","target_branch":"topic","base_ref":"main"}}`), code.RefExists},
				{"POST " + v1 + "/grep", `{"query":{"pattern":"("}}`, code.InvalidPattern},
				{"POST " + v1 + "/archive", `{"archive":{"prefix":"../"}}`, code.InvalidPath},
				{"GET " + v1 + "/blame?path=f&range=9,9", "", code.InvalidLineRange},
				{"POST " + v1 + "/pull-upstream", `{}`, code.NoUpstream},
				{"DELETE " + v1 + "/git-credentials", `{"id":"none"}`, code.CredentialNotFound},
			} {
				got := w.do(call{test.route, repo, test.body}, nil)
				if as := codeOf(t, test.route, got.status, string(got.body)); as != test.want {
					t.Errorf("%s %s: status %d, code %s, want %s", test.route, test.body, got.status, as, test.want)
				}
			}
			for repo, want := range map[string]code.Code{"own/none": code.RepositoryNotFound, "own/er": code.PolicyDenied} {
				got := w.do(call{"POST " + v1 + "/branches/create", repo, `{"target_branch":"b","base_ref":"main"}`}, []string{"no-push"})
				if as := codeOf(t, repo, got.status, string(got.body)); as != want {
					t.Errorf("%s: status %d, code %s, want %s", repo, got.status, as, want)
				}
			}
			key := []string{"Idempotency-Key", "k"}
			w.do(call{"POST " + v1 + "/tags", repo, `{"name":"v1","ref":"main"}`}, nil, key...).done(t)
			got := w.do(call{"POST " + v1 + "/tags", repo, `{"name":"v2","ref":"main"}`}, nil, key...)
			if as := codeOf(t, "a used key", got.status, string(got.body)); as != code.IdempotencyKeyReused {
				t.Errorf("a used key: status %d, code %s", got.status, as)
			}
		})
	}
}
