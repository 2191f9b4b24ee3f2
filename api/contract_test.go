package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// clientCall is one call of a client that names the repository in the path and uses the newer names
// alone. Texts may hold $NAME, which stands for a value of an earlier answer.
type clientCall struct {
	// route is a method and a path, whole or behind /api/repos, where {n} stands for the repository.
	route string
	body  string // a second line and those behind it are the chunks of a stream
	// status is that of the answer; answer holds paths of fields, joined by dots, and the values that
	// they have. "*" is any value, which a field must have, and "-" says that there is no such field.
	status int
	answer map[string]string
	keep   map[string]string // names for fields of the answer
}

// split returns the method, and the path with what stands before it.
func (c clientCall) split() (method, base, path string) {
	method, path, _ = strings.Cut(c.route, " ")
	if !strings.HasPrefix(path, "/api/") {
		base = "/api/repos"
	}
	return method, base, path
}

// answered are values of earlier answers by name.
type answered map[string]string

// fill puts the values into a text.
func (a answered) fill(text string) string {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		text = strings.ReplaceAll(text, "$"+name, a[name])
	}
	return text
}

// made is a call as it is made, of the repository own/er.
func (a answered) made(c clientCall) call {
	const repo = "own/er"
	method, base, path := c.split()
	path = a.fill(strings.Replace(path, "{n}", url.PathEscape(repo), 1))
	return call{method + " " + base + path, repo, a.fill(c.body)}
}

// keep adds the values that a call keeps of its answer.
func (a answered) keep(t *testing.T, c clientCall, answer []byte) {
	t.Helper()
	for name, from := range c.keep {
		a[name] = field(t, answer, from)
	}
}

// contracts are the calls in the order in which they are made, on the repository own/er, whose
// branch main has one commit, $FIRST.
func contracts() []clientCall {
	chunk := func(kind, data string) string {
		id := ""
		if kind == "blob_chunk" {
			id = `"content_id":"1",`
		}
		return fmt.Sprintf("\n{%q:{%s\"data\":%q,\"eof\":true}}", kind, id, base64.StdEncoding.EncodeToString([]byte(data)))
	}
	commit := func(fields, path, content string) string {
		return fmt.Sprintf(`{"metadata":{"commit_message":"m",%s,%s,"files":[{"path":%q,"content_id":"1"}]}}`, person, fields,
			path) + chunk("blob_chunk", content)
	}
	const patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n"
	result := map[string]string{
		"commit.commit_sha": "*", "commit.tree_sha": "*", "commit.target_branch": "topic", "result.target_branch": "topic",
		"result.branch": "topic", "result.old_sha": "*", "result.new_sha": "*", "result.success": "true", "result.status": "ok",
	}
	return []clientCall{
		{"POST", `{}`, 409, map[string]string{"error": "*"}, nil},
		{"GET ?q=%20WN%2FER%20", ``, 200, map[string]string{
			"repos.0.repo_name": "own/er", "repos.0.url": "own/er", "repos.0.repo_id": "*", "has_more": "false", "repos.1": "-",
		}, nil},
		{"GET /{n}", ``, 200, map[string]string{"repo_name": "own/er", "default_branch": "main", "created_at": "*"}, nil},

		{"POST /{n}/branches/create", `{"target_branch":"topic","base_ref":"main~0"}`, 201, map[string]string{
			"target_branch": "topic", "target_is_ephemeral": "false", "commit_sha": "$FIRST", "message": "*",
		}, nil},
		{"POST /{n}/branches/create", `{"target_branch":"topic","base_ref":"main"}`, 409, nil, nil},
		{
			"POST /{n}/commit-pack",
			commit(`"target_branch":"topic","expected_target_sha":"$FIRST","expected_head_sha":"`+strings.Repeat("0", 40)+`"`,
				"g", "g\n"), 201, result,
			map[string]string{"SECOND": "commit.commit_sha"},
		},
		{
			"POST /{n}/commit-pack", commit(`"target_branch":"topic","expected_target_sha":"$FIRST"`, "h", "h\n"), 409,
			map[string]string{
				"result.target_branch": "topic", "result.status": "precondition_failed", "result.old_sha": "$SECOND",
			},
			nil,
		},
		{
			"POST /{n}/commit-pack",
			commit(`"target_branch":"draft","target_is_ephemeral":true,"ephemeral":false,"base_branch":"topic"`, "h", "h\n"),
			201,
			map[string]string{"result.target_branch": "draft"},
			map[string]string{"DRAFT": "commit.commit_sha"},
		},
		{
			"POST /{n}/commit-pack",
			commit(`"target_branch":"next","base_branch":"draft","base_is_ephemeral":true`, "i", "i\n"),
			201,
			map[string]string{"result.target_branch": "next"},
			nil,
		},
		{
			"POST /{n}/commit-pack", commit(`"target_branch":"t","base_is_ephemeral":true`, "i", "i\n"), 400,
			map[string]string{"error": "base_is_ephemeral needs base_branch"},
			nil,
		},
		{
			"POST /{n}/commit-pack",
			`{"metadata":{"target_branch":"draft","target_is_ephemeral":true,"commit_message":"m",` + person + `,"files":[` +
				`{"path":"i","operation":"move","from":"h"},{"path":"j","operation":"copy","from":"h"},` +
				`{"path":"k","blob_sha":"` + oldBlob + `"},` +
				`{"path":"f","operation":"edit","edits":[{"old":"nowhere","new":"there","count":2}]}]}}` + "\n", 409,
			map[string]string{
				"edit.path": "f", "edit.index": "0", "edit.found": "0", "edit.expected": "2", "edit.overlaps": "false",
				"result.status": "conflict",
			},
			nil,
		},
		{
			"POST /{n}/diff-commit",
			`{"metadata":{"commit_message":"m",` + person + `,"target_branch":"topic","expected_target_sha":"$SECOND"}}` +
				chunk("diff_chunk", patch), 201, result,
			map[string]string{"THIRD": "commit.commit_sha"},
		},
		{
			"POST /{n}/restore-commit",
			`{"metadata":{` + person + `,"target_branch":"topic","base_ref":"topic~1","expected_target_sha":"$THIRD"}}`, 201,
			result, nil,
		},
		{
			"POST /{n}/restore-commit", `{"metadata":{` + person + `,"target_branch":"topic","base_ref":"topic~99"}}`, 404,
			map[string]string{"result.target_branch": "topic", "result.success": "false"},
			nil,
		},
		{
			"POST /{n}/transactions", transaction(`{"branch":{"action":"create","target_branch":"passing","base_ref":"topic"}}`,
				`{"branch":{"action":"delete","target_branch":"passing"}}`), 200,
			map[string]string{"pack_bytes": "0", "results": "*", "repositories": "*"},
			nil,
		},
		{
			"POST /api/transactions", transaction(`{"repo":"other","tag":{"action":"delete","name":"x"}}`), 400,
			map[string]string{"error": "operations[0].auth.token"},
			nil,
		},
		{
			"POST /{n}/branches/create", `{"target_branch":"topic","base_ref":"$THIRD","force":true}`, 200,
			map[string]string{"commit_sha": "$THIRD", "message": "branch moved"},
			nil,
		},

		{"GET /{n}/branch?name=topic", ``, 200, map[string]string{
			"branch.name": "topic", "branch.head_sha": "$THIRD", "branch.created_at": "*",
		}, nil},
		{"GET /{n}/branch?name=draft", ``, 404, map[string]string{"error": "ref not found"}, nil},
		{"GET /{n}/branch?name=draft&ephemeral=true", ``, 200, map[string]string{"branch.head_sha": "$DRAFT"}, nil},
		{"GET /{n}/branch", ``, 400, map[string]string{"error": "name is required"}, nil},
		{"GET /{n}/branches", ``, 200, map[string]string{"branches.0.name": "main", "has_more": "false"}, nil},

		{"POST /{n}/tags", `{"name":"release/v1","ref":"topic^"}`, 201, map[string]string{
			"name": "release/v1", "sha": "$SECOND", "message": "*",
		}, nil},
		{"POST /{n}/tags", `{"name":"t","ref":"main..topic"}`, 400, map[string]string{"error": "*"}, nil},
		{"GET /{n}/tag?name=release/v1", ``, 200, map[string]string{
			"tag.name": "release/v1", "tag.sha": "$SECOND", "tag.object_sha": "-",
		}, nil},
		{"GET /{n}/tag?name=none", ``, 404, map[string]string{"error": "ref not found"}, nil},
		{"GET /{n}/tags", ``, 200, map[string]string{"tags.0.name": "release/v1", "tags.0.sha": "$SECOND"}, nil},

		{"GET /{n}/commits?ref=topic~1&limit=1", ``, 200, map[string]string{
			"commits.0.sha": "$SECOND", "has_more": "true", "commits.1": "-",
		}, nil},
		{"GET /{n}/commits?ref=topic&branch=none", ``, 200, map[string]string{"commits.0.sha": "$THIRD"}, nil},
		{"GET /{n}/commit?ref=release/v1", ``, 200, map[string]string{"commit.sha": "$SECOND"}, nil},
		{"GET /{n}/commit?ref=draft&ephemeral=true", ``, 200, map[string]string{"commit.sha": "$DRAFT"}, nil},
		{"GET /{n}/diff?ref=topic&base_ref=topic~2&git_apply_compatible=true", ``, 200, map[string]string{
			"sha": "$THIRD", "base_sha": "$FIRST", "stats.files": "2", "complete": "true", "files.0.path": "f",
		}, nil},
		{
			"GET /{n}/diff?ref=draft&ref_is_ephemeral=true&base_ref=main&base_is_ephemeral=false", ``, 200,
			map[string]string{"sha": "$DRAFT", "base_sha": "$FIRST"},
			nil,
		},
		{
			"GET /{n}/diff?ref=topic&git_apply_compatible=7&gitApplyCompatible=true", ``, 400,
			map[string]string{"error": "git_apply_compatible"},
			nil,
		},
		{"GET /{n}/branches/diff?branch=topic&base=main", ``, 200, map[string]string{"branch": "topic"}, nil},
		{"GET /{n}/files?ref=topic~1", ``, 200, map[string]string{"paths.0": "f", "paths.1": "g"}, nil},
		{"POST /{n}/files/read", `{"ref":"topic","paths":["g"],"known":["$FIRST"]}`, 200, map[string]string{
			"commit_sha": "$THIRD", "tree_sha": "*", "ref": "topic",
		}, nil},
		{"GET /{n}/files/metadata?ref=topic", ``, 200, map[string]string{"files.0.last_commit_sha": "$THIRD"}, nil},
		{"GET /{n}/file?path=g&ref=HEAD", ``, 404, nil, nil},
		{"GET /{n}/file?path=g&ref=topic", ``, 200, nil, nil},
		{"HEAD /{n}/file?path=g&ref=topic", ``, 200, nil, nil},
		{"GET /{n}/blame?path=f&ref=topic", ``, 200, map[string]string{"lines.0.commit_sha": "$THIRD"}, nil},
		{"POST /{n}/grep", `{"ref":"topic^0","query":{"pattern":"g"}}`, 200, map[string]string{
			"matches.0.path": "g", "repo.commit": "$THIRD",
		}, nil},
		{"POST /{n}/archive", `{"ref":"topic"}`, 200, nil, nil},

		{"GET /{n}/merge/preview?source_ref=topic~1&target_branch=main", ``, 200, map[string]string{
			"source_ref": "topic~1", "source_branch": "topic~1", "source_tip_sha": "$SECOND", "status": "clean",
			"result": "fast_forward",
		}, nil},
		{
			"POST /{n}/merge", `{"source_ref":"topic~1","target_branch":"main","strategy":"ff_only","expected_target_sha":"$FIRST"}`,
			200,
			map[string]string{
				"source.ref": "topic~1", "source.branch": "topic~1", "source.sha": "$SECOND", "commit_sha": "$SECOND",
				"target.branch": "main", "target.old_sha": "$FIRST", "target.new_sha": "$SECOND", "result": "fast_forward",
			},
			nil,
		},

		{"POST /{n}/branches/create", `{"target_branch":"shown","base_ref":"$FIRST"}`, 201, nil, nil},
		{
			"GET /{n}/merge/preview?source_ref=topic&target_branch=shown", ``, 200,
			map[string]string{"result": "fast_forward"},
			map[string]string{"TOKEN": "preview_token"},
		},
		{
			"POST /{n}/merge", `{"preview_token":"$TOKEN"}`, 200,
			map[string]string{"result": "fast_forward", "source.ref": "topic", "target.branch": "shown", "commit_sha": "$THIRD"},
			nil,
		},
		{
			"POST /{n}/merge", `{"preview_token":"$TOKEN"}`, 409,
			map[string]string{"conflict_type": "target_moved"},
			nil,
		},
		{
			"POST /{n}/cherry-pick",
			`{"commits":["$FIRST"],"target_branch":"topic","message_line":true,"mainline":1,"empty":"keep",` + person + `}`,
			409,
			map[string]string{
				"conflict_type": "merge_conflict", "conflict_paths.0": "f", "commit_index": "0", "commit_sha": "$FIRST",
			},
			nil,
		},
		{
			"POST /{n}/cherry-pick",
			`{"commits":["$FIRST"],"target_branch":"shown","resolutions":[{"path":"f","content":"resolved\n"}],` + person + `}`,
			200,
			map[string]string{"result": "committed", "commits.0.source_sha": "$FIRST"},
			nil,
		},
		{
			"POST /{n}/land",
			`{"target_branch":"next","sources":[{"ref":"topic","message":"Land it","squash":true},{"ref":"shown"}],` + person + `}`,
			200,
			map[string]string{
				"sources.0.result": "squash", "sources.0.code": "-", "sources.1.result": "conflict",
				"sources.1.code": "merge_conflict", "sources.1.conflict_paths.0": "f",
				"sources.1.clashes.0.with": "source", "sources.1.clashes.0.index": "0",
			},
			nil,
		},
		{
			"POST /{n}/cherry-pick", `{"commits":["$DRAFT"],"target_branch":"topic","expected_target_sha":"$THIRD",` + person + `}`,
			200,
			map[string]string{
				"result": "committed", "target.branch": "topic", "target.old_sha": "$THIRD", "commits.0.source_sha": "$DRAFT",
			},
			map[string]string{"PICKED": "commit_sha"},
		},
		{
			"POST /{n}/revert", `{"commits":["topic"],"target_branch":"topic","expected_target_sha":"$PICKED",` + person + `}`, 200,
			map[string]string{"result": "committed", "target.old_sha": "$PICKED", "commits.0.source_sha": "$PICKED"},
			nil,
		},
		{"POST /{n}/branches/create", `{"target_branch":"topic","base_ref":"$THIRD","force":true}`, 200, nil, nil},

		{"POST /{n}/notes", `{"object_ref":"topic","note":"n","notes_ref":"reviews"}`, 201, map[string]string{
			"sha": "$THIRD", "notes_ref": "refs/notes/reviews", "target_ref": "refs/notes/reviews", "result.status": "ok",
		}, map[string]string{"NOTES": "new_ref_sha"}},
		{
			"POST /{n}/notes", `{"object_ref":"main","note":"n","notes_ref":"reviews","expected_notes_ref_sha":"$FIRST"}`, 409,
			map[string]string{
				"result.status": "precondition_failed", "notes_ref": "refs/notes/reviews", "sha": "$SECOND",
			},
			nil,
		},
		{"GET /{n}/notes?object_ref=topic&notes_ref=reviews", ``, 200, map[string]string{
			"sha": "$THIRD", "note": "n", "ref_sha": "$NOTES",
		}, nil},
		{"GET /{n}/notes/refs", ``, 200, map[string]string{"refs.0.ref": "refs/notes/reviews"}, nil},
		{
			"DELETE /{n}/notes", `{"object_ref":"topic","notes_ref":"reviews","expected_notes_ref_sha":"$NOTES"}`, 200,
			map[string]string{"notes_ref": "refs/notes/reviews", "base_commit": "$NOTES"},
			nil,
		},

		{"GET /{n}/events?limit=1", ``, 200, map[string]string{"has_more": "true", "events.0.sequence": "*"}, nil},
		{"GET /{n}/usage", ``, 200, map[string]string{"stored_bytes": "*", "refs": "*"}, nil},
		{"GET /api/events?limit=1", ``, 200, map[string]string{
			"has_more": "true", "events.0.event": "create", "next_cursor": "*",
		}, nil},
		{"POST /{n}/pull-upstream", `{}`, 409, nil, nil},
		{"DELETE /{n}/base", ``, 200, map[string]string{"message": "*"}, nil},
		{
			"POST /{n}/git-credentials", `{"username":"u","password":"p"}`, 201,
			map[string]string{"created_at": "*"},
			map[string]string{"CREDENTIAL": "id"},
		},
		{"PUT /{n}/git-credentials/$CREDENTIAL", `{"password":"q"}`, 200, map[string]string{"id": "$CREDENTIAL"}, nil},
		{"DELETE /{n}/git-credentials/$CREDENTIAL", ``, 204, nil, nil},

		{"DELETE /{n}/tags/release%2Fv1", ``, 200, map[string]string{"name": "release/v1", "message": "*"}, nil},
		{"DELETE /{n}/branches", `{"target_branch":"topic"}`, 200, map[string]string{
			"target_branch": "topic", "name": "topic", "message": "*", "ephemeral": "false",
		}, nil},
		{"PATCH /{n}", `{"default_branch":"next"}`, 200, map[string]string{"default_branch": "next"}, nil},
		{"PATCH /{n}", `{"name":"own/taken"}`, 409, nil, nil},
		{"POST /{n}/undo", `{"to":"seq:99999"}`, 400, map[string]string{"error": "has not come"}, nil},
		{"POST /{n}/undo", `{"to":"seq:2","refs":["topic"]}`, 200, map[string]string{
			"to_sequence": "2", "refs": "*",
		}, nil},
		{"DELETE /{n}", ``, 200, map[string]string{"repo_id": "*", "purge_at": "*", "message": "*"}, nil},
		{"GET /{n}", ``, 404, nil, nil},
		{"POST /{n}/undelete", ``, 200, map[string]string{"repo_name": "own/er", "repo_id": "*"}, nil},
		{"GET /{n}", ``, 200, map[string]string{"repo_name": "own/er"}, nil},
	}
}

// contracted is a server with the repositories own/er and own/taken, and the one commit of the
// first.
func contracted(t *testing.T) (w *writable, first string) {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{SecretKey: secretKey})
	t.Cleanup(shut)
	w = newWritableOn(t, host)
	return w, w.contracted()
}

// contracted creates the repositories of contracts, and returns the one commit.
func (w *writable) contracted() (first string) {
	t := w.t
	t.Helper()
	for _, name := range []string{"own/er", "own/taken"} {
		w.do(call{"POST /api/repos", name, ``}, nil).done(t)
		w.tokens.Store(fmt.Sprint(name, []string(nil)),
			strings.TrimPrefix(token(name, "git:write", "repo:write", "org:read"), "Bearer "))
	}
	made := w.do(call{"POST " + v1 + "/commit-pack", "own/er", commitLines("", "f", "1\n")}, nil)
	made.done(t)
	return field(t, made.body, "commit.commit_sha")
}

// TestClientContract makes every call of the family where the path names the repository, with the
// newer names, as published clients make them. HEAD is asked for wherever GET is.
func TestClientContract(t *testing.T) {
	t.Parallel()
	w, first := contracted(t)
	values := answered{"FIRST": first}
	const repo = "own/er"
	looked := make(map[string]bool)
	for _, c := range contracts() {
		method, base, path := c.split()
		template, _, _ := strings.Cut(path, "?")
		looked[method+" "+base+template] = true
		made := values.made(c)
		route := made.route
		got := w.do(made, nil)
		if got.status != c.status {
			t.Fatalf("%s %s: status %d, want %d: %s", route, c.body, got.status, c.status, got.body)
		}
		if path, ok := strings.CutPrefix(route, "GET "); ok {
			w.headLikeGet(t, path, "Bearer "+w.token(repo, nil))
		}
		for name, want := range c.answer {
			value := field(t, got.body, name)
			if value == values.fill(want) || want == "*" && value != "-" || name == "error" && strings.Contains(value, want) {
				continue
			}
			t.Errorf("%s %s: %s is %q, want %q: %s", route, c.body, name, value, values.fill(want), got.body)
		}
		values.keep(t, c, got.body)
	}
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		name := route.Method + " " + strings.NewReplacer("{id}", "$CREDENTIAL", "{name}", "release%2Fv1").Replace(route.Named)
		if !looked[name] {
			t.Errorf("%s is not looked at", name)
		}
	}
}

// field is the value at a path of JSON, "-" without one.
func field(t *testing.T, body []byte, path string) string {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Errorf("%v in %s", err, body)
		return "-"
	}
	for part := range strings.SplitSeq(path, ".") {
		switch at := value.(type) {
		case map[string]any:
			inner, ok := at[part]
			if !ok {
				return "-"
			}
			value = inner
		case []any:
			var index int
			if _, err := fmt.Sscan(part, &index); err != nil || index >= len(at) {
				return "-"
			}
			value = at[index]
		default:
			return "-"
		}
	}
	return fmt.Sprint(value)
}
