package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
)

// writable is a server with the repository "r", which has one commit on main.
type writable struct {
	*fixture
	t      *testing.T
	client http.Client
	tokens sync.Map // from repository and ops to a token
	head   string
	// named makes the calls where the path names the repository, too.
	named bool
}

func newWritable(t *testing.T) *writable {
	t.Helper()
	return newWritableAt(t, nil)
}

// newWritableAt is newWritable with a clock.
func newWritableAt(t *testing.T, now func() time.Time) *writable {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{SecretKey: secretKey, Now: now})
	t.Cleanup(shut)
	return newWritableOn(t, host)
}

var secretKey = bytes.Repeat([]byte{1}, credential.KeySize)

// newWritableOn is newWritable over a host, with a server that edits change.
func newWritableOn(t *testing.T, host *engine.Host, edits ...func(*api.Config)) *writable {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	w := &writable{t: t, client: http.Client{Transport: transport}, named: allNamed}
	w.fixture = serve(t, nil, func(c *api.Config) {
		c.Routes = api.Routes(rest.New(rest.Config{Host: host, Verify: func(token string) (*auth.Grant, error) {
			return c.Tokens.Verify("Bearer " + token)
		}}))
		c.Refuse = rest.Refuse
		for _, edit := range edits {
			edit(c)
		}
	})
	w.do(call{"POST /api/v1/repos", "r", ``}, nil).done(t)
	var made struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		}
	}
	seed := w.do(call{"POST /api/v1/repos/commit-pack", "r", commitLines("", "f", "1\n")}, nil)
	seed.done(t)
	if err := json.Unmarshal(seed.body, &made); err != nil {
		t.Fatal(err)
	}
	w.head = made.Commit.SHA
	return w
}

// call is a request: a method and a path, the repository that its token names, and a body.
type call struct{ route, repo, body string }

// written is an answer to a write.
type written struct {
	status   int
	body     []byte
	sequence string
	retry    string // Retry-After
	id       string // X-Request-Id
}

func (a written) done(t *testing.T) {
	t.Helper()
	if a.status/100 != 2 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
}

// token is for a repository, with a policy of the given ops.
func (w *writable) token(repo string, ops []string) string {
	w.t.Helper()
	name := fmt.Sprint(repo, ops)
	if token, ok := w.tokens.Load(name); ok {
		return token.(string) // nothing else is stored
	}
	token, err := auth.Mint(keys().private, auth.Claims{
		Org: "acme", Subject: "ci", Repo: repo, Scopes: []string{"git:write", "repo:write"},
		Expires: time.Now().Add(time.Hour), Ops: ops,
	})
	if err != nil {
		w.t.Error(err)
	}
	w.tokens.Store(name, token)
	return token
}

// family is a call of the family that is tested.
func (w *writable) family(c call) call {
	if w.named && strings.Contains(c.route, " /api/v1/") {
		return inNamed(w.t, c)
	}
	return c
}

// do makes a call under a policy of the given ops, with headers in pairs.
func (w *writable) do(c call, ops []string, headers ...string) written {
	w.t.Helper()
	c = w.family(c)
	method, path, _ := strings.Cut(c.route, " ")
	request, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.address+path, strings.NewReader(c.body))
	if err != nil {
		w.t.Error(err)
		return written{}
	}
	request.Header.Set("Authorization", "Bearer "+w.token(c.repo, ops))
	request.Header.Set("Content-Type", "application/x-ndjson")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Error(err)
		return written{}
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Error(err)
	}
	w.hold(request, c.body, response, body)
	return written{
		response.StatusCode, body, response.Header.Get("X-Repo-Sequence"), response.Header.Get("Retry-After"),
		response.Header.Get("X-Request-Id"),
	}
}

const person = `"author":{"name":"A","email":"a@example.com"}`

// commitLines is a commit-pack body that writes one file; extra is more metadata, with a comma
// behind it.
func commitLines(extra, path, content string) string {
	return fmt.Sprintf(
		"{\"metadata\":{%s\"target_branch\":\"main\",\"commit_message\":\"m\",%s,\"files\":[{\"path\":%q,\"content_id\":\"1\"}]}}\n"+
			"{\"blob_chunk\":{\"content_id\":\"1\",\"data\":%q,\"eof\":true}}\n", extra, person, path,
		base64.StdEncoding.EncodeToString([]byte(content)),
	)
}

// writing is a route that writes, as a client can use it again and again.
type writing struct {
	// call is a request that succeeds once; name makes it different from all others, and before are
	// the requests that must precede it. space is the JSON member that asks for the ephemeral
	// namespace, "" for the main one.
	call      func(w *writable, name, space string) (before []call, c call)
	denied    []string // the ops that refuse it
	ephemeral string   // the member that asks for the ephemeral namespace; "" if there is no such thing
	alone     bool     // it builds on nothing that is in the repository, and has nothing to wait for
}

const (
	noPush, noForcePush, verifySig = "no-push", "no-force-push", "verify-sig"
	v1                             = "/api/v1/repos"
)

// transaction is the first line of a transaction.
func transaction(operations ...string) string {
	return `{"transaction":{"operations":[` + strings.Join(operations, ",") + "]}}\n"
}

// createBranch is a call that makes a branch from main.
func createBranch(name, space string) call {
	if space != "" {
		space = `,"target_is_ephemeral":true`
	}
	return call{"POST " + v1 + "/branches/create", "r", fmt.Sprintf(`{"target_branch":%q,"base_branch":"main"%s}`, name,
		space)}
}

// member is a field behind others.
func member(text string) string {
	if text == "" {
		return ""
	}
	return "," + text
}

// writings are all routes that write. A route that moves refs is denied by no-push at least.
var writings = map[string]writing{
	"POST " + v1: {
		call: func(_ *writable, name, _ string) ([]call, call) {
			base := fmt.Sprintf(
				`{"base_repo":{"provider":"code","operation":"fork","owner":"acme","name":"r","auth":{"token":%q}}}`,
				strings.TrimPrefix(token("r", "git:read"), "Bearer "),
			)
			return nil, call{"POST " + v1, name, base}
		},
		denied: []string{noPush, verifySig}, // every commit is new to a fork
		alone:  true,
	},
	"PATCH /api/v1/repo": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{createBranch(name, "")}, call{"PATCH /api/v1/repo", "r", fmt.Sprintf(`{"default_branch":%q}`, name)}
		},
	},
	"PATCH /api/v1/repo?renames": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{{"POST " + v1, name, ``}}, call{"PATCH /api/v1/repo", name, fmt.Sprintf(`{"name":"%s-new"}`, name)}
		},
		denied: []string{noPush, noForcePush},
	},
	"DELETE " + v1 + "/delete": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{{"POST " + v1, name, ``}}, call{"DELETE " + v1 + "/delete", name, ``}
		},
		denied: []string{noPush, noForcePush}, alone: true,
	},
	"POST " + v1 + "/undelete": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{{"POST " + v1, name, ``}, {"DELETE " + v1 + "/delete", name, ``}},
				call{"POST " + v1 + "/undelete", name, `{}`}
		},
		denied: []string{noPush, noForcePush}, alone: true,
	},
	"DELETE " + v1 + "/base": {
		call: func(*writable, string, string) ([]call, call) { return nil, call{"DELETE " + v1 + "/base", "r", ``} },
	},
	"POST " + v1 + "/pull-upstream": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			base := `{"base_repo":{"provider":"gitlab","owner":"o","name":"n"}}`
			return []call{{"POST " + v1, name, base}}, call{"POST " + v1 + "/pull-upstream", name, `{}`}
		},
		denied: []string{noPush, verifySig}, // the commits of the upstream are not verified
	},
	"POST " + v1 + "/git-credentials": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{
				{"POST " + v1, name, ``},
			}, call{"POST " + v1 + "/git-credentials", name, fmt.Sprintf(`{"repo_id":%q,"password":"p"}`, name)}
		},
	},
	"PUT " + v1 + "/git-credentials":    {call: withCredential("PUT")},
	"DELETE " + v1 + "/git-credentials": {call: withCredential("DELETE")},
	"DELETE " + v1 + "/branches": {
		call: func(_ *writable, name, space string) ([]call, call) {
			return []call{createBranch(name, space)}, call{"DELETE " + v1 + "/branches", "r", fmt.Sprintf(`{"name":%q%s}`, name,
				member(space))}
		},
		denied: []string{noPush, noForcePush}, ephemeral: `"ephemeral":true`,
	},
	"POST " + v1 + "/branches/create": {
		call:   func(_ *writable, name, space string) ([]call, call) { return nil, createBranch(name, space) },
		denied: []string{noPush}, ephemeral: `"target_is_ephemeral":true`,
	},
	"POST " + v1 + "/tags": {
		call: func(w *writable, name, space string) ([]call, call) {
			return nil, call{"POST " + v1 + "/tags", "r", fmt.Sprintf(`{"name":%q,"target":%q%s}`, name, w.head, member(space))}
		},
		denied: []string{noPush}, ephemeral: `"ephemeral":true`,
	},
	"DELETE " + v1 + "/tags": {
		call: func(w *writable, name, space string) ([]call, call) {
			before := call{"POST " + v1 + "/tags", "r", fmt.Sprintf(`{"name":%q,"target":%q%s}`, name, w.head, member(space))}
			return []call{before}, call{"DELETE " + v1 + "/tags", "r", fmt.Sprintf(`{"name":%q%s}`, name, member(space))}
		},
		denied: []string{noPush, noForcePush}, ephemeral: `"ephemeral":true`,
	},
	"POST " + v1 + "/undo": {
		call: func(_ *writable, name, _ string) ([]call, call) {
			return []call{createBranch(name, "")}, call{"POST " + v1 + "/undo", "r", fmt.Sprintf(`{"to":"seq:2","refs":[%q]}`,
				name)}
		},
		denied: []string{noPush, noForcePush},
	},
	"POST " + v1 + "/notes": {
		call: func(w *writable, name, space string) ([]call, call) {
			return nil, call{"POST " + v1 + "/notes", "r", fmt.Sprintf(`{"sha":%q,"note":%q,"ref":%q%s}`, w.head, name, name,
				member(space))}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"ephemeral":true`,
	},
	"DELETE " + v1 + "/notes": {
		call: func(w *writable, name, space string) ([]call, call) {
			fields := fmt.Sprintf(`{"sha":%q,"note":%q,"ref":%q%s}`, w.head, name, name, member(space))
			return []call{{"POST " + v1 + "/notes", "r", fields}}, call{"DELETE " + v1 + "/notes", "r", fields}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"ephemeral":true`,
	},
	"POST " + v1 + "/commit-pack": {
		call: func(_ *writable, name, space string) ([]call, call) {
			extra := ""
			if space != "" {
				extra = space + `,"base_branch":"main",`
			}
			return nil, call{"POST " + v1 + "/commit-pack", "r", commitLines(extra, name, "x")}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"ephemeral":true`,
	},
	"POST " + v1 + "/diff-commit": {
		call: func(_ *writable, name, space string) ([]call, call) {
			patch := fmt.Sprintf("--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+1\n", name)
			return nil,
				call{"POST " + v1 + "/diff-commit", "r", fmt.Sprintf(
					"{\"metadata\":{\"target_branch\":\"main\",\"base_branch\":\"main\",\"commit_message\":\"m\",%s%s}}\n"+
						"{\"diff_chunk\":{\"data\":%q,\"eof\":true}}\n", person, member(space),
					base64.StdEncoding.EncodeToString([]byte(patch)),
				)}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"ephemeral":true`,
	},
	"POST " + v1 + "/merge": {
		call: func(_ *writable, name, space string) ([]call, call) {
			ahead := call{"POST " + v1 + "/commit-pack", "r", commitLines("", name, name)}
			return []call{createBranch(name, space), ahead}, call{"POST " + v1 + "/merge", "r", fmt.Sprintf(
				`{"source_branch":"main","target_branch":%q,"strategy":"merge","commit_message":"m",%s%s}`, name, person,
				member(space))}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"target_is_ephemeral":true`,
	},
	"POST " + v1 + "/cherry-pick": {call: picking("/cherry-pick"), denied: []string{noPush, verifySig}, ephemeral: `"target_is_ephemeral":true`},
	"POST " + v1 + "/revert":      {call: picking("/revert"), denied: []string{noPush, verifySig}, ephemeral: `"target_is_ephemeral":true`},
	"POST " + v1 + "/land": {
		call: func(_ *writable, name, space string) ([]call, call) {
			ahead := call{"POST " + v1 + "/commit-pack", "r", commitLines("", name, name)}
			return []call{createBranch(name, space), ahead}, call{"POST " + v1 + "/land", "r", fmt.Sprintf(
				`{"sources":[{"ref":"main"}],"target_branch":%q,%s%s}`, name, person, member(space))}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"target_is_ephemeral":true`,
	},
	"POST " + v1 + "/transactions": {
		call: func(_ *writable, name, space string) ([]call, call) {
			return nil, call{"POST " + v1 + "/transactions", "r", transaction(fmt.Sprintf(
				`{"branch":{"action":"create","target_branch":%q,"base_ref":"main"%s}}`, name, member(space)))}
		},
		denied: []string{noPush}, ephemeral: `"target_is_ephemeral":true`,
	},
	"POST /api/v1/transactions": {
		call: func(_ *writable, name, space string) ([]call, call) {
			return []call{{"POST " + v1, name, ""}}, call{"POST /api/v1/transactions", "r", transaction(
				fmt.Sprintf(`{"repo":"r","branch":{"action":"create","target_branch":%q,"base_ref":"main"%s}}`, name, member(space)),
				fmt.Sprintf(`{"repo":%q,"auth":{"token":%q},"commit":{"target_branch":"main","commit_message":"m",%s,`+
					`"files":[{"path":"f","content_id":"1"}]}}`, name,
					strings.TrimPrefix(token(name, "git:write"), "Bearer "), person),
			) + `{"blob_chunk":{"content_id":"1","data":"MQ==","eof":true}}`}
		},
		denied: []string{noPush}, ephemeral: `"target_is_ephemeral":true`, alone: true,
	},
	"POST " + v1 + "/restore-commit": {
		call: func(w *writable, name, space string) ([]call, call) {
			return []call{createBranch(name, space)}, call{"POST " + v1 + "/restore-commit", "r", fmt.Sprintf(
				`{"metadata":{"target_branch":%q,"target_commit_sha":%q,"commit_message":%q,%s%s}}`, name, w.head, name, person,
				member(space))}
		},
		denied: []string{noPush, verifySig}, ephemeral: `"ephemeral":true`,
	},
}

// picking picks the tip of main on a branch, where it changes nothing.
func picking(path string) func(w *writable, name, space string) ([]call, call) {
	return func(_ *writable, name, space string) ([]call, call) {
		ahead := call{"POST " + v1 + "/commit-pack", "r", commitLines("", name, name)}
		return []call{ahead, createBranch(name, space)}, call{"POST " + v1 + path, "r", fmt.Sprintf(
			`{"commits":["main"],"target_branch":%q,"empty":"keep",%s%s}`, name, person, member(space))}
	}
}

// withCredential changes the credential of a repository.
func withCredential(method string) func(w *writable, name, space string) ([]call, call) {
	return func(w *writable, name, _ string) ([]call, call) {
		w.do(call{"POST " + v1, name, ``}, nil).done(w.t)
		stored := w.do(call{"POST " + v1 + "/git-credentials", name, fmt.Sprintf(`{"repo_id":%q,"password":"p"}`, name)}, nil)
		stored.done(w.t)
		var made struct{ ID string }
		if err := json.Unmarshal(stored.body, &made); err != nil {
			w.t.Fatal(err)
		}
		return nil, call{method + " " + v1 + "/git-credentials", name, fmt.Sprintf(`{"id":%q,"password":"q"}`, made.ID)}
	}
}

// prepared makes a call possible.
func (w *writable) prepared(test writing, name, space string) call {
	w.t.Helper()
	before, c := test.call(w, name, space)
	for _, b := range before {
		w.do(b, nil).done(w.t)
	}
	if w.named {
		return inNamed(w.t, c)
	}
	return c
}

// TestWrites checks every writing route for the common properties of writes: the policies of its
// token bind it, a dry run of it tells the outcome and changes nothing, its answer has the position
// in the journal, its key makes it happen once, and X-Min-Sequence is read. Routes that move refs
// do so in both namespaces.
func TestWrites(t *testing.T) {
	t.Parallel()
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		name := route.Method + " " + route.Path
		if route.Scope&(auth.GitWrite|auth.RepoWrite) != 0 && writings[name].call == nil {
			t.Errorf("%s is not looked at", name)
		}
	}
	for name, test := range inFamilies(writings) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			w := newWritableAt(t, func() time.Time { return begin })
			w.named = isNamed(name)
			spaces := []string{""}
			if test.ephemeral != "" {
				spaces = append(spaces, test.ephemeral)
			}
			for i, space := range spaces {
				n := fmt.Sprint("n", i)
				w.bound(test, n, space)
				w.rehearsed(w.prepared(test, n+"dry", space))
				w.once(w.prepared(test, n+"once", space), test.alone)
			}
		})
	}
}

// bound makes the write under every op.
func (w *writable) bound(test writing, name, space string) {
	w.t.Helper()
	denied := map[string]bool{"sign-off": len(test.denied) > 0} // an unknown op refuses everything that it could concern
	for _, op := range test.denied {
		denied[op] = true
	}
	for _, op := range []string{noPush, noForcePush, verifySig, "sign-off"} {
		c := w.prepared(test, name+op, space)
		got := w.do(c, []string{op})
		if !denied[op] {
			if got.status/100 != 2 {
				w.t.Errorf("under %s: status %d: %s", op, got.status, got.body)
			}
			continue
		}
		if got.status != http.StatusForbidden || !strings.Contains(string(got.body), "denied by policy") {
			w.t.Errorf("under %s: status %d: %s", op, got.status, got.body)
		}
	}
}

// once makes the write twice under one key, and asks for another one under it.
func (w *writable) once(c call, alone bool) {
	w.t.Helper()
	key := []string{"Idempotency-Key", fmt.Sprint("k", len(c.route+c.body))}
	if !alone {
		refused := w.do(c, nil, "X-Min-Sequence", "soon")
		if refused.status != http.StatusBadRequest || !strings.Contains(string(refused.body), "X-Min-Sequence") {
			w.t.Errorf("with a bad X-Min-Sequence: status %d: %s", refused.status, refused.body)
		}
	}
	first := w.do(c, nil, append([]string{"X-Min-Sequence", "1"}, key...)...)
	first.done(w.t)
	if sequence, err := strconv.Atoi(first.sequence); err != nil || sequence < 1 {
		w.t.Errorf("X-Repo-Sequence is %q", first.sequence)
	}
	again := w.do(c, nil, key...)
	if again.status != first.status || !bytes.Equal(again.body, first.body) || again.sequence != first.sequence {
		w.t.Errorf("first %+v, then %+v", first, again)
	}
	if strings.HasSuffix(c.route, "/base") {
		return // nothing was changed, so nothing is remembered
	}
	other := c
	other.body = " " + c.body
	if got := w.do(other, nil, key...); got.status != http.StatusConflict ||
		!strings.Contains(string(got.body), "idempotency key") {
		w.t.Errorf("another request under the key: status %d: %s", got.status, got.body)
	}
}

// TestWritesTooLarge announces bodies beyond the limit of each route, which are refused when they
// begin.
func TestWritesTooLarge(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		if writings[route.Method+" "+route.Path].call == nil {
			continue
		}
		limit := max(route.BodyMax, 1<<20)
		for _, path := range []string{route.Path, pathOf(route.Named, "r")} {
			c := w.dial(t)
			c.send(fmt.Sprintf(
				"%s %s HTTP/1.1\nHost: x\nAuthorization: %s\nContent-Type: application/x-ndjson\nContent-Length: %d\n\n{",
				route.Method, path, token("r", "git:write", "repo:write"), limit+1,
			))
			got := c.receive(route.Method)
			if got.StatusCode != http.StatusRequestEntityTooLarge ||
				!strings.Contains(got.body, strconv.FormatInt(limit, 10)) {
				t.Errorf("%s %s: status %d: %s", route.Method, path, got.StatusCode, got.body)
			}
		}
	}
}
