package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"packhorse/api/auth"
	"packhorse/api/code"
)

// bearer sends a token with each request.
type bearer struct {
	token string
	base  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", b.token)
	return b.base.RoundTrip(r)
}

// speak connects the client of the official SDK.
func (f *fixture) speak(t *testing.T, token, version string) *mcp.ClientSession {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + f.address + "/mcp", HTTPClient: &http.Client{Transport: bearer{token, transport}},
		DisableStandaloneSSE: true, MaxRetries: -1,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect in version %q: %v", version, err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// use calls a tool.
func use(t *testing.T, s *mcp.ClientSession, name string, arguments map[string]any) *mcp.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// said is the text of a result.
func said(r *mcp.CallToolResult) string {
	var all strings.Builder
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			all.WriteString(c.Text)
		case *mcp.EmbeddedResource:
			all.WriteString(c.Resource.URI + "=" + c.Resource.Text + string(c.Resource.Blob))
		}
		all.WriteString("\n")
	}
	return all.String()
}

const (
	readTools = "describe_repository list_branches list_tags list_files read_file read_files grep log show_commit diff " +
		"diff_branches blame preview_merge"
	writeTools = " commit apply_patch merge cherry_pick revert land undo create_branch create_tag"
)

// TestMCPVersions connects in every version of the protocol, and lists tools by the scopes of the
// token.
func TestMCPVersions(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	lists := map[string]string{
		token("r", "git:read"):                readTools,
		token("r", "git:write"):               readTools + writeTools,
		token("org", "org:read"):              "list_repositories",
		token("", "org:read", "git:write"):    "list_repositories",
		token("r", "org:read", "git:read"):    "list_repositories " + readTools,
		token("r", "repo:write"):              "",
		token("gone", "git:read", "org:read"): "list_repositories " + readTools,
	}
	for _, version := range []string{"", "2026-07-28", "2025-11-25", "2025-06-18"} {
		for token, want := range lists {
			s := w.speak(t, token, version)
			got := s.InitializeResult()
			if agreed := got.ProtocolVersion; version != "" && agreed != version {
				t.Errorf("agreed on %q, asked for %q", agreed, version)
			}
			if got.ServerInfo == nil || got.ServerInfo.Name != "packhorse" || got.Instructions == "" ||
				got.Capabilities.Tools == nil || got.Capabilities.Resources != nil {
				t.Errorf("in %q: %+v", version, got)
			}
			listed, err := s.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatalf("in %q: %v", version, err)
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, tool.Name)
				schema, _ := tool.InputSchema.(map[string]any)
				if tool.Description == "" || schema["type"] != "object" || schema["additionalProperties"] != false ||
					tool.Annotations.ReadOnlyHint == strings.Contains(writeTools+" ", " "+tool.Name+" ") {
					t.Errorf("%s: %+v %+v", tool.Name, tool, tool.Annotations)
				}
			}
			if strings.Join(names, " ") != want {
				t.Errorf("in %q: tools %q, want %q", version, names, want)
			}
		}
	}
}

// TestMCPTools calls every tool, and holds its answer against that of the API.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	author := map[string]any{"name": "A", "email": "a@example.com"}
	bearer := token("r", "git:write", "org:read")
	s := w.speak(t, bearer, "")
	changed := use(t, s, "commit", map[string]any{
		"target_branch": "main", "commit_message": "more", "author": author, "expected_target_sha": w.head,
		"files": []any{
			map[string]any{"path": "f", "text": "1\n2\n"},
			map[string]any{"path": "dir/bytes", "base64": "AP8=", "mode": "100755"},
			map[string]any{"path": "empty", "text": ""},
		},
	})
	var made struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		} `json:"commit"`
		Result struct {
			Old string `json:"old_sha"`
		} `json:"result"`
	}
	structured(t, changed, &made)
	if made.Result.Old != w.head {
		t.Fatalf("commit: %s", said(changed))
	}
	head := made.Commit.SHA
	for _, one := range []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"create_branch", map[string]any{"target_branch": "topic", "base_ref": w.head}, w.head},
		{"create_tag", map[string]any{"name": "v1", "target": head}, head},
		{"apply_patch", map[string]any{
			"target_branch": "topic", "commit_message": "patch", "author": author, "expected_target_sha": w.head,
			"patch": "--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+g\n",
		}, `"success":true`},
		{"apply_patch", map[string]any{
			"target_branch": "topic", "commit_message": "patch", "author": author,
			"patch_base64": base64.StdEncoding.EncodeToString([]byte("--- a/g\n+++ b/g\n@@ -1 +1 @@\n-g\n+\xff\n")),
		}, `"success":true`},
		{"merge", map[string]any{
			"source_branch": "topic", "target_branch": "main", "strategy": "merge", "commit_message": "merge",
			"author": author, "expected_target_sha": head,
		}, "merge_commit"},
		{"commit", map[string]any{
			"target_branch": "main", "commit_message": "less", "author": author,
			"files": []any{map[string]any{"path": "empty", "delete": true}},
		}, `"success":true`},
		{"commit", map[string]any{
			"target_branch": "main", "commit_message": "edit", "author": author,
			"files": []any{
				map[string]any{"path": "f", "edits": []any{map[string]any{"old": "2\n", "new": "3\n"}, map[string]any{"old": "\n", "new": "\n", "count": 2}}},
				map[string]any{"path": "moved", "move_from": "dir/bytes"},
				map[string]any{"path": "copied", "copy_from": "f", "edits": []any{map[string]any{"old": "1\n2", "new": "2\n2"}}},
			},
		}, `"blob_count":2`},
		{"read_file", map[string]any{"path": "f", "ref": "main"}, "1\n3\n"},
		{"read_file", map[string]any{"path": "copied", "ref": "main"}, "2\n2\n"},
		{"commit", map[string]any{
			"target_branch": "main", "commit_message": "as before", "author": author,
			"files": []any{
				map[string]any{"path": "f", "text": "1\n2\n"},
				map[string]any{"path": "dir/bytes", "move_from": "moved"},
				map[string]any{"path": "copied", "delete": true},
			},
		}, `"success":true`},
	} {
		if r := use(t, s, one.tool, one.arguments); r.IsError || !strings.Contains(said(r), one.want) {
			t.Fatalf("%s: %s", one.tool, said(r))
		}
	}
	for _, one := range []struct {
		tool      string
		arguments map[string]any
		route     string
		body      string
	}{
		{"list_repositories", map[string]any{"q": "R", "limit": 5}, "GET /api/v1/repos?q=R&limit=5", ""},
		{"describe_repository", nil, "GET /api/v1/repo", ""},
		{"list_branches", map[string]any{"limit": 1}, "GET /api/v1/repos/branches?limit=1", ""},
		{"list_tags", map[string]any{"ephemeral": false}, "GET /api/v1/repos/tags?ephemeral=false", ""},
		{"list_files", nil, "GET /api/v1/repos/files?limit=1000", ""},
		{
			"list_files",
			map[string]any{"path": "dir", "recursive": false, "limit": 1, "ref": "main"},
			"GET /api/v1/repos/files?path=dir&recursive=false&limit=1&ref=main", "",
		},
		{"grep", map[string]any{
			"pattern": "^2", "paths": []string{"f"}, "case_sensitive": false, "before": 1, "max_lines": 5, "limit": 3,
			"ref": "main", "extensions": nil, "exclude_globs": []string{"*.x"},
		}, "POST /api/v1/repos/grep", `{"query":{"pattern":"^2","case_sensitive":false},"paths":["f"],"ref":"main",` +
			`"context":{"before":1},"limits":{"max_lines":5},"pagination":{"limit":3},"file_filters":{"exclude_globs":["*.x"]}}`},
		{"log", map[string]any{"path": "f"}, "GET /api/v1/repos/commits?path=f", ""},
		{"show_commit", map[string]any{"sha": head}, "GET /api/v1/repos/commit?sha=" + head, ""},
		{
			"diff",
			map[string]any{"sha": head, "base_sha": w.head, "paths": []string{"f", "dir"}},
			"GET /api/v1/repos/diff?sha=" + head + "&baseSha=" + w.head + "&path=f&path=dir", "",
		},
		{
			"diff_branches",
			map[string]any{"branch": "topic", "base": "v1"},
			"GET /api/v1/repos/branches/diff?branch=topic&base=v1", "",
		},
		{"blame", map[string]any{"path": "f", "ranges": []string{"2,2"}}, "GET /api/v1/repos/blame?path=f&range=2,2", ""},
		{
			"preview_merge",
			map[string]any{"source_branch": "topic", "target_branch": "main"},
			"GET /api/v1/repos/merge/preview?source_branch=topic&target_branch=main", "",
		},
		// Refusals are those of the API, too.
		{"show_commit", map[string]any{"sha": "main"}, "GET /api/v1/repos/commit?sha=main", ""},
		{"blame", map[string]any{"path": "none"}, "GET /api/v1/repos/blame?path=none", ""},
		{"log", map[string]any{"limit": 0}, "GET /api/v1/repos/commits?limit=0", ""},
		{
			"create_branch",
			map[string]any{"target_branch": "topic", "base_branch": "main"},
			"POST /api/v1/repos/branches/create",
			`{"target_branch":"topic","base_branch":"main"}`,
		},
	} {
		method, target, _ := strings.Cut(one.route, " ")
		status, _, want := w.ask(t, method, target, bearer, one.body, nil)
		r := use(t, s, one.tool, one.arguments)
		got, err := json.Marshal(r.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(string(got), want) || r.IsError != (status >= 400) {
			t.Errorf("%s %v: error %t, %s\nthe API: %d %s", one.tool, one.arguments, r.IsError, got, status, want)
		}
		if text := strings.TrimSpace(want); !strings.Contains(said(r), text) {
			t.Errorf("%s: its text is %s, want %s", one.tool, said(r), text)
		}
		if r.IsError && !strings.HasPrefix(said(r), fmt.Sprint(status)) {
			t.Errorf("%s: the status %d is not told: %s", one.tool, status, said(r))
		}
	}
	for _, one := range []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"read_file", map[string]any{"path": "f"}, "1\n2\n\n"},
		{"read_file", map[string]any{"path": "f", "ref": w.head}, "1\n\n"},
		{"read_file", map[string]any{"path": "empty", "ref": "v1"}, "\n"},
		{"read_file", map[string]any{"path": "f", "offset": 2}, "2\n\n"},
		{"read_file", map[string]any{"path": "dir/bytes", "ref": "main"}, "packhorse:///dir/bytes?ref=main=\x00\xff\n"},
		{"read_file", map[string]any{"path": "f", "length": 2}, "1\n\nThis is the part of \"f\" from byte 0 up to byte 2 of 4. " +
			"To go on, call read_file with offset 2.\n"},
		{"read_file", map[string]any{"path": "f", "offset": 1, "length": 1}, "\n\nThis is the part of \"f\" from byte 1 up to " +
			"byte 2 of 4. To go on, call read_file with offset 2.\n"},
		{"read_files", map[string]any{"paths": []string{"f", "dir/bytes"}}, "packhorse:///f=1\n2\n\npackhorse:///dir/bytes=\x00\xff\n"},
		{
			"read_files",
			map[string]any{"paths": []string{"none", "f"}},
			"none: 404 Not Found: {\"error\":\"path \\\"none\\\" not found\",\"code\":\"path_not_found\"}\npackhorse:///f=1\n2\n\n",
		},
	} {
		if r := use(t, s, one.tool, one.arguments); r.IsError || said(r) != one.want {
			t.Errorf("%s %v: error %t, %q, want %q", one.tool, one.arguments, r.IsError, said(r), one.want)
		}
	}
}

// TestMCPHistory previews a merge that conflicts, settles it, picks, reverts, lands and undoes, and
// looks at what was before. What is tried first changes nothing.
func TestMCPHistory(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	bearer := token("r", "git:write")
	s := w.speak(t, bearer, "")
	author := map[string]any{"name": "A", "email": "a@example.com"}
	var told struct {
		CommitSHA string `json:"commit_sha"`
		Token     string `json:"preview_token"`
		Commit    struct {
			SHA string `json:"commit_sha"`
		}
		Sources []struct{ Result string }
		Refs    []any
		DryRun  bool `json:"dry_run"`
	}
	call := func(tool string, arguments map[string]any) {
		t.Helper()
		told.Token, told.Refs, told.DryRun = "", nil, false
		structured(t, use(t, s, tool, arguments), &told)
	}
	write := func(branch, text string) string {
		t.Helper()
		call("commit", map[string]any{
			"target_branch": branch, "base_branch": "main", "commit_message": text, "author": author,
			"files": []any{map[string]any{"path": "f", "text": text + "\n"}},
		})
		return told.Commit.SHA
	}
	theirs := write("topic", "theirs")
	ours := write("main", "ours")
	call("preview_merge", map[string]any{"source_branch": "topic", "target_branch": "main"})
	merge := map[string]any{
		"preview_token": told.Token, "commit_message": "merge", "author": author, "dry_run": true,
		"resolutions": []any{map[string]any{"path": "f", "content": "both\n"}},
	}
	call("merge", merge)
	if tip := w.tips("r")["main"]; !told.DryRun || tip != ours {
		t.Fatalf("a dry run: %+v, main is at %s", told, tip)
	}
	delete(merge, "dry_run")
	call("merge", merge)
	merged := told.CommitSHA
	if got := said(use(t, s, "read_file", map[string]any{"path": "f"})); got != "both\n\n" || w.tips("r")["main"] != merged {
		t.Errorf("merged %q at %s, main is at %s", got, merged, w.tips("r")["main"])
	}
	call("revert", map[string]any{"commits": []string{merged}, "mainline": 1, "target_branch": "main", "author": author})
	if got := said(use(t, s, "read_file", map[string]any{"path": "f"})); got != "ours\n\n" {
		t.Errorf("reverted: %q", got)
	}
	call("cherry_pick", map[string]any{
		"commits": []string{theirs}, "target_branch": "main", "committer": author, "message_line": true,
		"resolutions": []any{map[string]any{"path": "f", "side": "theirs", "commit_index": 0}},
	})
	if got := said(use(t, s, "read_file", map[string]any{"path": "f"})); got != "theirs\n\n" {
		t.Errorf("picked: %q", got)
	}
	picked := told.CommitSHA
	write("one", "one")
	write("two", "two")
	call("land", map[string]any{
		"target_branch": "main", "author": author,
		"sources": []any{map[string]any{"ref": "one", "squash": true}, map[string]any{"ref": "two", "message": "m"}},
	})
	if len(told.Sources) != 2 || told.Sources[0].Result != "squash" || told.Sources[1].Result != "conflict" {
		t.Errorf("landed %+v", told.Sources)
	}
	sequence := w.sequence(t, bearer)
	if got := said(use(t, s, "read_file", map[string]any{"path": "f", "at": fmt.Sprint("seq:", sequence-1)})); got != "theirs\n\n" {
		t.Errorf("before it landed: %q", got)
	}
	call("undo", map[string]any{"sequence": sequence})
	if tip := w.tips("r")["main"]; tip != picked || len(told.Refs) != 1 {
		t.Errorf("undone %+v, main is at %s, want %s", told, tip, picked)
	}
}

// sequence is the position of the last event.
func (w *writable) sequence(t *testing.T, token string) uint64 {
	t.Helper()
	_, _, body := w.ask(t, http.MethodGet, "/api/v1/repos/events?limit=100", token, "", nil)
	var page struct{ Events []struct{ Sequence uint64 } }
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Events) == 0 {
		t.Fatalf("%v: %s", err, body)
	}
	return page.Events[len(page.Events)-1].Sequence
}

// ask makes a request and reads its answer.
func (f *fixture) ask(
	t *testing.T, method, target, token, body string, header map[string]string,
) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.address+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	for name, value := range header {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(text)
}

func structured(t *testing.T, r *mcp.CallToolResult, out any) {
	t.Helper()
	text, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil || r.IsError {
		t.Fatalf("%v: %s", err, said(r))
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestMCPRefusals holds tools to the token: its scopes, its repository and its policy; and to the
// guards.
func TestMCPRefusals(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	author := map[string]any{"name": "A", "email": "a@example.com"}
	change := func(more map[string]any) map[string]any {
		all := map[string]any{
			"target_branch": "main", "commit_message": "m", "author": author,
			"files": []any{map[string]any{"path": "f", "text": "2"}},
		}
		maps.Copy(all, more)
		return all
	}
	mint := func(edit func(*auth.Claims)) string {
		claims := auth.Claims{
			Org: "acme", Subject: "ci", Repo: "r", Scopes: []string{"git:write"}, Expires: time.Now().Add(time.Hour),
		}
		edit(&claims)
		text, err := auth.Mint(keys().private, claims)
		must(err)
		return "Bearer " + text
	}
	all := mint(func(*auth.Claims) {})
	for name, one := range map[string]struct {
		token     string
		tool      string
		arguments map[string]any
		want      string
	}{
		"scope":            {token("r", "git:read"), "commit", change(nil), "401 Unauthorized: {\"error\":\"the token lacks the scope git:write\",\"code\":\"scope_missing\""},
		"scope of a read":  {token("r", "org:read"), "log", nil, "the token lacks the scope git:read"},
		"scope of the org": {all, "list_repositories", nil, "the token lacks the scope org:read"},
		"no repository":    {token("org", "git:read"), "log", nil, "the token names no repository"},
		"another one":      {token("other", "git:read"), "log", nil, "404 Not Found"},
		"policy": {
			mint(func(c *auth.Claims) { c.Refs = []auth.RefRule{{Pattern: "main", Ops: []string{"no-push"}}} }),
			"commit", change(nil), "denied by policy",
		},
		"policy for merges": {
			mint(func(c *auth.Claims) { c.Ops = []string{"no-push"} }), "create_tag",
			map[string]any{"name": "v", "target": w.head},
			"denied by policy",
		},
		"stale":             {all, "commit", change(map[string]any{"expected_target_sha": strings.Repeat("1", 40)}), "409 Conflict"},
		"unknown guard":     {all, "commit", change(map[string]any{"expected_sha": "x"}), `"expected_sha" is not known here`},
		"unknown in a pick": {all, "cherry_pick", map[string]any{"expected_head_sha": "x"}, `"expected_head_sha" is not known here`},
		"merge of nothing":  {all, "merge", map[string]any{"dry_run": true}, "400 Bad Request"},
		"a moment to come":  {all, "log", map[string]any{"at": "seq:99"}, "400 Bad Request"},
		"resolution":        {all, "merge", map[string]any{"resolutions": []any{map[string]any{"path": "f", "side": "mine"}}}, "expected one of ours, theirs, base"},
		"undo of nothing":   {all, "undo", map[string]any{"force": true}, "one of to and sequence"},
		"guard of a file":   {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "text": "", "expected_sha": "x"}}}), `"[0].expected_sha" is not known`},
		"guard of a person": {all, "commit", change(map[string]any{"author": map[string]any{"name": "A", "email": "a@b", "expected": 1}}), `"author": expected an object`},
		"missing":           {all, "blame", nil, `"path" is required`},
		"type":              {all, "log", map[string]any{"limit": "5"}, `"limit": expected an integer`},
		"type of a flag":    {all, "log", map[string]any{"ephemeral": "true"}, `"ephemeral": expected true or false`},
		"type of an array":  {all, "diff", map[string]any{"sha": "x", "paths": "f"}, `"paths": expected an array of strings`},
		"value":             {all, "merge", map[string]any{"source_branch": "a", "target_branch": "b", "strategy": "rebase"}, "expected one of merge, ff_only, ff_prefer"},
		"two contents":      {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "text": "", "base64": ""}}}), "exclude each other"},
		"no content":        {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f"}}}), "expected one of text, base64, edits"},
		"null content":      {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "text": nil}}}), "expected one of text, base64, edits"},
		"content, removed":  {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "text": "", "delete": true}}}), "expected one of text, base64, edits"},
		"two sources":       {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "move_from": "a", "copy_from": "b"}}}), "expected one of text, base64, edits"},
		"edit of a content": {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "text": "a", "edits": []any{}}}}), "expected one of text, base64, edits"},
		"edit of nothing":   {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "edits": []any{map[string]any{"new": "a"}}}}}), `"[0].old" is required`},
		"guard of an edit":  {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "edits": []any{map[string]any{"old": "a", "new": "b", "counts": 2}}}}}), `"[0].counts" is not known`},
		"edit not there":    {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "edits": []any{map[string]any{"old": "nowhere", "new": "b"}}}}}), "409 Conflict"},
		"not base64":        {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": "f", "base64": "A"}}}), "padded base64"},
		"no files":          {all, "commit", change(map[string]any{"files": []any{}}), "400 Bad Request"},
		"path":              {all, "commit", change(map[string]any{"files": []any{map[string]any{"path": ".git/x", "text": ""}}}), "400 Bad Request"},
		"many files":        {all, "commit", change(map[string]any{"files": make([]struct{}, 1001)}), "at most 1000 items"},
		"many paths":        {all, "diff", map[string]any{"sha": w.head, "paths": make([]string, 1001)}, "at most 1000 items"},
		"no patch":          {all, "apply_patch", map[string]any{"target_branch": "main", "commit_message": "m", "author": author}, "one of the arguments patch"},
		"offset":            {all, "read_file", map[string]any{"path": "f", "offset": -1}, "from 0 on"},
		"length":            {all, "read_file", map[string]any{"path": "f", "length": 0}, "from 1 on"},
		"past the end":      {all, "read_file", map[string]any{"path": "f", "offset": 99}, "416 Requested Range"},
		"no paths":          {all, "read_files", map[string]any{"paths": []string{}}, "expected 1 to 100 paths"},
		"none of them":      {all, "read_files", map[string]any{"paths": []string{"x"}}, "x: 404 Not Found"},
		"key":               {all, "create_tag", map[string]any{"name": "v", "target": w.head, "idempotency_key": "a b"}, "Idempotency-Key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := use(t, w.speak(t, one.token, "2025-11-25"), one.tool, one.arguments)
			plain := strings.ReplaceAll(said(r), `\"`, `"`)
			if !r.IsError || !strings.Contains(plain, one.want) {
				t.Errorf("error %t, %s, want %s", r.IsError, plain, one.want)
			}
			if one.tool == "read_files" && one.want == "x: 404 Not Found" || name == "past the end" {
				return // the answers of several calls, and one without a body
			}
			told, _ := r.StructuredContent.(map[string]any)
			if as, _ := told["code"].(string); code.Find(code.Code(as)) == nil || !strings.Contains(said(r), `"code":"`+as+`"`) {
				t.Errorf("code %q in %v, said %s", as, told, said(r))
			}
		})
	}
	t.Cleanup(func() {
		if tip := w.tip(t, all); tip != w.head {
			t.Errorf("main is at %s, and was at %s", tip, w.head)
		}
	})
}

// tip is that of the only branch.
func (w *writable) tip(t *testing.T, token string) string {
	t.Helper()
	client := http.Client{}
	r, err := http.NewRequest(http.MethodGet, "http://"+w.address+"/api/v1/repos/branches", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", token)
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // nothing was written
	var page struct {
		Branches []struct {
			SHA string `json:"head_sha"`
		}
	}
	if err := json.NewDecoder(a.Body).Decode(&page); err != nil || len(page.Branches) != 1 {
		t.Fatalf("%v: %+v", err, page)
	}
	return page.Branches[0].SHA
}

// An idempotency key makes a repeated call of a tool write once.
func TestMCPIdempotency(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	s := w.speak(t, token("r", "git:write"), "")
	change := map[string]any{
		"target_branch": "main", "commit_message": "m", "author": map[string]any{"name": "A", "email": "a@example.com"},
		"files": []any{map[string]any{"path": "f", "text": "2"}}, "idempotency_key": "once",
	}
	first, again := use(t, s, "commit", change), use(t, s, "commit", change)
	if first.IsError || said(first) != said(again) {
		t.Errorf("first %s, then %s", said(first), said(again))
	}
	change["commit_message"] = "another"
	if other := use(t, s, "commit", change); !other.IsError || !strings.HasPrefix(said(other), "409") {
		t.Errorf("another request with the key: %s", said(other))
	}
}

// TestMCPMessages sends messages that no proper client sends, and looks at the answers as they are.
func TestMCPMessages(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	read := token("r", "git:read")
	modern := func(method, params, meta string, more ...string) (string, map[string]string) {
		header := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
		for i := 0; i < len(more); i += 2 {
			header[more[i]] = more[i+1]
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{%s}}}`, method, params, meta), header
	}
	const proper = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	type request struct {
		body   string
		header map[string]string
	}
	of := func(body string, header map[string]string) request { return request{body, header} }
	plain := func(body string, header ...string) request {
		all := map[string]string{}
		for i := 0; i < len(header); i += 2 {
			all[header[i]] = header[i+1]
		}
		return request{body, all}
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, one := range map[string]struct {
		request
		status int
		want   string
	}{
		"ping":                 {plain(ping), 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		"id of text":           {plain(strings.Replace(ping, "1", `"a\u0062"`, 1)), 200, `"id":"ab"`},
		"notification":         {plain(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), 202, ""},
		"null id":              {plain(strings.Replace(ping, "1", "null", 1)), 400, "-32600"},
		"long id":              {plain(strings.Replace(ping, "1", `"`+strings.Repeat("x", 300)+`"`, 1)), 400, "-32600"},
		"broken id":            {plain(strings.Replace(ping, "1", "1e999", 1)), 400, "-32600"},
		"unknown version, cut": {plain(ping, "Mcp-Protocol-Version", strings.Repeat("é", 30)+"x"), 400, "-32022"},
		"array id":             {plain(strings.Replace(ping, "1", "[]", 1)), 400, "-32600"},
		"version":              {plain(`{"jsonrpc":"1.0","id":1,"method":"ping"}`), 400, "-32600"},
		"empty":                {plain(``), 400, "-32700"},
		"null":                 {plain(`null`), 400, "-32600"},
		"batch":                {plain(`[` + ping + `]`), 400, "-32600"},
		"two":                  {plain(ping + ping), 400, "-32700"},
		"twice":                {plain(`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`), 400, "given twice"},
		"twice, inside":        {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","name":"commit"}}`), 400, "given twice"},
		"deep":                 {plain(strings.Repeat(`{"a":`, 40)), 400, "nested deeper"},
		"no UTF-8":             {plain("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"), 400, "-32700"},
		"answer":               {plain(`{"jsonrpc":"2.0","id":1,"result":{}}`), 400, "-32600"},
		"params":               {plain(`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`), 400, "-32600"},
		"meta":                 {plain(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":3}}`), 400, "-32602"},
		"method":               {plain(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`), 200, "-32601"},
		"discover, old":        {plain(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`), 200, "-32601"},
		"initialize":           {plain(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`), 200, "protocolVersion is required"},
		"initialize, null":     {plain(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":null}`), 200, "protocolVersion is required"},
		"initialize, older":    {plain(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`), 200, `"protocolVersion":"2025-11-25"`},
		"cursor":               {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`), 200, "-32602"},
		"no tool":              {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`), 200, "name is required"},
		"no params":            {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), 200, "name is required"},
		"unknown tool":         {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}`), 200, "unknown tool"},
		"arguments":            {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","arguments":[]}}`), 200, "-32602"},
		"null arguments":       {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","arguments":null}}`), 200, `"structuredContent"`},
		"null argument":        {plain(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","arguments":{"limit":null}}}`), 200, `"structuredContent"`},
		"too large":            {plain(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`), 413, "request body"},
		"content type":         {plain(ping, "Content-Type", "text/plain"), 415, "application/json"},
		"charset":              {plain(ping, "Content-Type", "Application/JSON; charset=utf-8"), 200, `"result"`},
		"origin":               {plain(ping, "Origin", "https://evil.example"), 403, "evil.example"},
		"null origin":          {plain(ping, "Origin", "null"), 403, "Origin"},
		"origin's port":        {plain(ping, "Host", "git.example:8080", "Origin", "http://git.example"), 403, "Origin"},
		"same origin":          {plain(ping, "Host", "git.example", "Origin", "https://Git.example:443"), 200, `"result"`},
		"same port":            {plain(ping, "Host", "git.example:8080", "Origin", "http://git.example:8080"), 200, `"result"`},
		"unknown version":      {plain(ping, "Mcp-Protocol-Version", "2024-11-05"), 400, `"requested":"2024-11-05"`},
		"future version":       {plain(ping, "Mcp-Protocol-Version", "2027-01-01"), 400, "-32022"},
		"version, agreed on":   {plain(ping, "Mcp-Protocol-Version", "2025-06-18"), 200, `"result"`},

		"modern":               {of(modern("tools/list", "", proper)), 200, `"resultType":"complete"`},
		"modern discovery":     {of(modern("server/discover", "", proper)), 200, `"supportedVersions":["2026-07-28"`},
		"modern call":          {of(modern("tools/call", `"name":"log",`, proper, "Mcp-Name", "log")), 200, `"structuredContent"`},
		"modern ping":          {of(modern("ping", "", proper)), 404, "-32601"},
		"modern initialize":    {of(modern("initialize", "", proper)), 404, "-32601"},
		"modern, no meta":      {of(modern("tools/list", "", "")), 400, "-32602"},
		"modern, no abilities": {of(modern("tools/list", "", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)), 400, "-32602"},
		"modern, other method": {of(modern("tools/list", "", proper, "Mcp-Method", "ping")), 400, "-32020"},
		"modern, other tool":   {of(modern("tools/call", `"name":"log",`, proper, "Mcp-Name", "diff")), 400, "-32020"},
		"modern, no header": {
			plain(`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{` + proper + `}}}`), 400, "-32020",
		},
		"modern, other header": {of(modern("tools/list", "", proper, "Mcp-Protocol-Version", "2025-11-25")), 400, "-32020"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
			maps.Copy(header, one.header)
			status, _, body := w.ask(t, http.MethodPost, "/mcp", read, one.body, header)
			if status != one.status || !strings.Contains(body, one.want) || one.want == "" && body != "" {
				t.Errorf("%d %s, want %d with %s", status, body, one.status, one.want)
			}
		})
	}
	for _, token := range []string{"", "Bearer x.y.z", "Bearer " + strings.Repeat("x", 50)} {
		status, header, body := w.ask(t, http.MethodPost, "/mcp", token, ping, map[string]string{"Content-Type": "application/json"})
		if status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("with %.12q: %d %v %s", token, status, header, body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodOptions} {
		status, header, _ := w.ask(t, method, "/mcp", read, "", nil)
		if status != http.StatusMethodNotAllowed || header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: %d, allowed %q", method, status, header.Get("Allow"))
		}
	}
}
