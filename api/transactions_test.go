package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const transactions = v1 + "/transactions"

// blob is a line with a whole content.
func blob(id, base64 string) string {
	return fmt.Sprintf("{\"blob_chunk\":{\"content_id\":%q,\"data\":%q,\"eof\":true}}\n", id, base64)
}

// commitTo is an operation that writes a file.
func commitTo(branch, path, content, more string) string {
	return fmt.Sprintf(`{"commit":{"target_branch":%q,"commit_message":"m",%s,"files":[{"path":%q,"content_id":%q}]%s}}`,
		branch, person, path, content, more)
}

// tips are the branches of a repository, as a client sees them.
func (w *writable) tips(repo string) map[string]string {
	w.t.Helper()
	var list struct {
		Branches []struct {
			Name string `json:"name"`
			SHA  string `json:"head_sha"`
		}
	}
	got := w.do(call{"GET " + v1 + "/branches", repo, ""}, nil)
	if err := json.Unmarshal(got.body, &list); err != nil {
		w.t.Fatal(err)
	}
	tips := make(map[string]string)
	for _, branch := range list.Branches {
		tips[branch.Name] = branch.SHA
	}
	return tips
}

// Every operation sees what those before it made, and all of them are one entry of the journal.
func TestTransaction(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	patch := "LS0tIGEvZgorKysgYi9mCkBAIC0xICsxIEBACi0xCisyCg==" // f: from 1 to 2
	body := transaction(
		`{"branch":{"action":"create","target_branch":"a","base_ref":"main","expected_target_sha":"`+strings.Repeat("0", 40)+`"}}`,
		commitTo("a", "g", "1", `,"expected_target_sha":"`+w.head+`"`),
		commitTo("main", "h", "2", ""),
		fmt.Sprintf(`{"merge":{"source_ref":"a","target_branch":"main","strategy":"merge","commit_message":"m",%s}}`, person),
		fmt.Sprintf(`{"patch":{"target_branch":"main","commit_message":"m",%s,"content_id":"p"}}`, person),
		`{"tag":{"action":"create","name":"v1","ref":"main~1"}}`,
		fmt.Sprintf(`{"restore":{"target_branch":"a","base_ref":"main",%s}}`, person),
		`{"note":{"object_ref":"main","note":"n"}}`,
		`{"note":{"object_ref":"main","note":"more","action":"append"}}`,
		fmt.Sprintf(`{"revert":{"commits":["main"],"target_branch":"main",%s}}`, person),
		fmt.Sprintf(`{"cherry_pick":{"commits":["main~1"],"target_branch":"main",%s}}`, person),
		`{"branch":{"action":"move","target_branch":"a","new_name":"a/b"}}`,
		`{"branch":{"action":"create","target_branch":"c","base_branch":"a/b"}}`,
		`{"branch":{"action":"delete","target_branch":"c"}}`,
	) + blob("1", "MQ==") + blob("p", patch) + blob("2", "Mg==")
	got := w.do(call{"POST " + transactions, "r", body}, nil)
	got.done(t)
	if got.sequence != "3" {
		t.Errorf("sequence %s", got.sequence)
	}
	var answer struct {
		Results []map[string]json.RawMessage
	}
	if err := json.Unmarshal(got.body, &answer); err != nil || len(answer.Results) != 14 {
		t.Fatalf("%v: %s", err, got.body)
	}
	var merged struct {
		Commit string `json:"commit_sha"`
		Result string
	}
	if err := json.Unmarshal(answer.Results[3]["merge"], &merged); err != nil || merged.Result != "merge_commit" {
		t.Errorf("%v: %s", err, answer.Results[3])
	}
	tips := w.tips("r")
	if len(tips) != 2 || tips["main"] == w.head || tips["a/b"] == "" {
		t.Errorf("%v", tips)
	}
	var page struct {
		Events []struct {
			Sequence int
			Cause    string
			Ref      string
		}
	}
	events := w.do(call{"GET " + v1 + "/events?after=2", "r", ""}, nil)
	if err := json.Unmarshal(events.body, &page); err != nil {
		t.Fatal(err)
	}
	moved := make(map[string]bool)
	for _, event := range page.Events {
		moved[event.Ref] = event.Sequence == 3 && event.Cause == "transaction"
	}
	want := map[string]bool{
		"refs/heads/main": true, "refs/heads/a/b": true, "refs/tags/v1": true, "refs/notes/commits": true,
	}
	if !maps.Equal(moved, want) {
		t.Errorf("%s", events.body)
	}
	for ref, files := range map[string]string{"main": "f g h", "v1": "f g h", "a/b": "f g h"} {
		got := w.do(call{"GET " + v1 + "/files?ref=" + ref, "r", ""}, nil)
		for name := range strings.FieldsSeq(files) {
			if !strings.Contains(string(got.body), fmt.Sprintf("%q", name)) {
				t.Errorf("%s: %s", ref, got.body)
			}
		}
	}
	if note := w.do(call{"GET " + v1 + "/notes?object_ref=main~2", "r", ""}, nil); !strings.Contains(string(note.body), `n\n\nmore`) {
		t.Errorf("%s", note.body)
	}
}

// A transaction of which one operation fails changes nothing, and says which one and why.
func TestTransactionFailures(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	w.do(call{"POST " + v1 + "/commit-pack", "r", commitLines(`"base_branch":"main",`, "f", "2")}, nil).done(t)
	w.do(createBranch("side", ""), nil).done(t)
	w.do(call{"POST " + v1 + "/commit-pack", "r", commitLines("", "f", "3")}, nil).done(t)
	onSide := strings.Replace(commitLines("", "f", "4"), `"main"`, `"side"`, 1)
	w.do(call{"POST " + v1 + "/commit-pack", "r", onSide}, nil).done(t)
	first := commitTo("main", "new", "1", "")
	content := blob("1", "MQ==")
	many := make([]string, 10_000)
	for i := range many {
		many[i] = `{"tag":{"action":"create","name":"x","ref":"main"}}`
	}
	stale := `,"expected_target_sha":"` + strings.Repeat("1", 40) + `"`
	for name, test := range map[string]struct {
		body, route string
		status      int
		texts       []string
	}{
		"stale":    {body: transaction(first, commitTo("main", "x", "2", stale)) + content + blob("2", ""), status: 409, texts: []string{`"operation":1`, "not at the expected"}},
		"conflict": {body: transaction(first, fmt.Sprintf(`{"merge":{"source_ref":"side","target_branch":"main","strategy":"merge","commit_message":"m",%s}}`, person)) + content, status: 409, texts: []string{`"operation":1`, `"merge_conflict"`, `"conflict_paths":["f"]`}},
		"an empty pick": {
			body:   transaction(first, fmt.Sprintf(`{"cherry_pick":{"commits":["main~1"],"target_branch":"main",%s}}`, person)) + content,
			status: 409, texts: []string{`"operation":1`, `"conflict_type":"empty"`, `"commit_index":0`},
		},
		"not forward": {
			body:   transaction(first, `{"merge":{"source_ref":"side","target_branch":"main","strategy":"ff_only"}}`) + content,
			status: 412, texts: []string{`"operation":1`},
		},
		"a branch twice": {body: transaction(first, `{"branch":{"action":"create","target_branch":"b","base_ref":"main"}}`,
			`{"branch":{"action":"create","target_branch":"b","base_ref":"main"}}`) + content, status: 409, texts: []string{`"operation":2`, "already exists"}},
		"a cycle": {body: transaction(first, `{"branch":{"action":"create","target_branch":"b","base_ref":"main"}}`,
			`{"branch":{"action":"move","target_branch":"b","new_name":"side"}}`) + content, status: 409, texts: []string{`"operation":2`, "already exists"}},
		"its own name": {
			body: transaction(first, `{"branch":{"action":"move","target_branch":"side","new_name":"side"}}`) + content, status: 409,
			texts: []string{`"operation":1`, `branch \"side\" already exists`},
		},
		"its own name, and gone": {
			body: transaction(first, `{"branch":{"action":"move","target_branch":"none","new_name":"none"}}`) + content, status: 404,
			texts: []string{`"operation":1`, "not found"},
		},
		"the default branch": {
			body:   transaction(first, `{"branch":{"action":"move","target_branch":"main","new_name":"x"}}`) + content,
			status: 409, texts: []string{`"operation":1`, "default branch"},
		},
		"a missing tag":     {body: transaction(first, `{"tag":{"action":"delete","name":"none"}}`) + content, status: 404, texts: []string{`"operation":1`}},
		"a name below":      {body: transaction(first, `{"branch":{"action":"create","target_branch":"side/x","base_ref":"main"}}`) + content, status: 409, texts: []string{`"operation":1`}},
		"no content":        {body: transaction(first), status: 400, texts: []string{`"operation":0`, "has not ended"}},
		"a foreign content": {body: transaction(first) + content + blob("9", ""), status: 400, texts: []string{"no operation has the content_id"}},
		"a shared content":  {body: transaction(first, commitTo("main", "x", "1", "")) + content, status: 400, texts: []string{`"operation":1`, "that of operations[0]"}},
		"two kinds":         {body: transaction(`{"tag":{"action":"create","name":"x","ref":"main"},"note":{"object_ref":"main","note":"n"}}`), status: 400, texts: []string{`"operation":0`, "expected one of", "got tag and note"}},
		"no kind":           {body: transaction(`{}`), status: 400, texts: []string{"expected one of", "got none"}},
		"nothing":           {body: transaction(), status: 400, texts: []string{"must not be empty"}},
		"ten thousand":      {body: transaction(many...), status: 413, texts: []string{"operations", "1000"}},
		"an inner dry run":  {body: transaction(commitTo("main", "x", "1", `,"dry_run":true`)) + content, status: 400, texts: []string{"whole transaction"}},
		"a guard":           {body: transaction(`{"tag":{"action":"create","name":"x","ref":"main","expected_tip":"x"}}`), status: 400, texts: []string{`a guard is not ignored; this call understands \"dry_run, expected_head_sha, expected_notes_ref_sha, expected_ref_sha, expected_sha, expected_target_sha\""`}},
		"a repository":      {body: transaction(`{"repo":"r","tag":{"action":"create","name":"x","ref":"main"}}`), status: 400, texts: []string{"repo and auth"}},
		"empty":             {body: "", status: 400, texts: []string{"empty"}},
		"no transaction":    {body: `{"metadata":{}}`, status: 400, texts: []string{"must hold transaction"}},
	} {
		before := w.standingOf("r")
		got := w.do(call{"POST " + transactions, "r", test.body}, nil)
		if got.status != test.status {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
		for _, text := range test.texts {
			if !strings.Contains(string(got.body), text) {
				t.Errorf("%s: %q is not in %s", name, text, got.body)
			}
		}
		if after := w.standingOf("r"); !maps.Equal(after, before) {
			t.Errorf("%s changed %v to %v", name, before, after)
		}
	}
}

// Branches change their names in a circle, by way of a third one.
func TestTransactionRenames(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	w.do(createBranch("a", ""), nil).done(t)
	w.do(call{"POST " + v1 + "/commit-pack", "r", commitLines("", "f", "2")}, nil).done(t)
	w.do(createBranch("b", ""), nil).done(t)
	before := w.tips("r")
	move := func(from, to, expected string) string {
		return fmt.Sprintf(`{"branch":{"action":"move","target_branch":%q,"new_name":%q,"expected_target_sha":%q}}`, from, to,
			expected)
	}
	w.do(call{"POST " + transactions, "r", transaction(
		move("a", "free", before["a"]), move("b", "a", before["b"]), move("free", "b", before["a"]),
	)}, nil).done(t)
	after := w.tips("r")
	if after["a"] != before["b"] || after["b"] != before["a"] || len(after) != len(before) {
		t.Errorf("%v, and were %v", after, before)
	}
}

// inRepo is an operation that creates a branch in a repository, by a token.
func inRepo(repo, branch, bearer string) string {
	auth := ""
	if bearer != "" {
		auth = fmt.Sprintf(`,"auth":{"token":%q}`, strings.TrimPrefix(bearer, "Bearer "))
	}
	return fmt.Sprintf(`{"repo":%q%s,"branch":{"action":"create","target_branch":%q,"base_ref":"main"}}`, repo, auth, branch)
}

// A transaction in several repositories changes all of them, once, or none.
func TestOrgTransaction(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	names := []string{"r"}
	for i := range 15 {
		names = append(names, fmt.Sprint("r", i))
		w.do(call{"POST " + v1, names[i+1], ""}, nil).done(t)
		w.do(call{"POST " + v1 + "/commit-pack", names[i+1], commitLines("", "f", "1")}, nil).done(t)
	}
	const org = "POST /api/v1/transactions"
	var operations []string
	for _, name := range names {
		bearer := token(name, "git:write")
		if name == "r" {
			bearer = ""
		}
		operations = append(operations, inRepo(name, "x", bearer), inRepo(name, "y", ""))
	}
	key := []string{"Idempotency-Key", "k"}
	first := w.do(call{org, "r", transaction(operations...)}, nil, key...)
	first.done(t)
	if again := w.do(call{org, "r", transaction(operations...)}, nil, key...); string(again.body) != string(first.body) {
		t.Errorf("first %s, then %s", first.body, again.body)
	}
	for _, name := range names {
		if tips := w.tips(name); tips["x"] != tips["main"] || len(tips) != 3 {
			t.Errorf("%s has %v", name, tips)
		}
	}
	w.undoPart(t, names)
	before := []map[string]string{w.standingOf("r"), w.standingOf("r0"), w.standingOf("r1")}
	good := token("r0", "git:write")
	w.do(call{"POST " + v1, "seventeenth", ""}, nil).done(t)
	for name, test := range map[string]struct {
		operations []string
		status     int
		text       string
	}{
		"the last one fails": {append(operations[2:4:4], inRepo("r", "z", ""), inRepo("r0", "x", "")), 409, `"operation":0`},
		"no token":           {[]string{inRepo("r", "z", ""), inRepo("r0", "z", "")}, 400, "operations[1].auth.token: required"},
		"of another":         {[]string{inRepo("r", "z", ""), inRepo("r1", "z", good)}, 403, "for another repository"},
		"of another, first":  {[]string{inRepo("r1", "z", good), inRepo("r", "z", "")}, 403, "operations[0].auth.token: the token is for another repository"},
		"of another organization": {
			[]string{inRepo("r", "z", ""), inRepo("r0", "z", tokenOf("other", "r0", "git:write"))},
			403,
			"operations[1].auth.token: the repository must be one of the same organization",
		},
		"all of another organization": {
			[]string{inRepo("r0", "z", tokenOf("other", "r0", "git:write"))}, 403, "one of the same organization",
		},
		"a token of nothing": {[]string{inRepo("r", "z", ""), strings.Replace(inRepo("r0", "z", "x"), `"x"`, `""`, 1)}, 400, "operations[1].auth.token is required in auth"},
		"without the scope":  {[]string{inRepo("r", "z", ""), inRepo("r0", "z", token("r0", "git:read"))}, 403, "lacks the scope"},
		"two tokens":         {[]string{inRepo("r0", "z", good), inRepo("r0", "q", token("r0", "git:write", "git:read"))}, 400, "another one for repository"},
		"no such repository": {[]string{inRepo("r", "z", ""), inRepo("none", "z", token("none", "git:write"))}, 404, `"operation":1`},
		"a bad token":        {[]string{inRepo("r", "z", ""), inRepo("r0", "z", "x.y.z")}, 401, "operations[1].auth.token"},
		"no name":            {[]string{`{"tag":{"action":"create","name":"x","ref":"main"}}`}, 400, "repo is required"},
		"seventeen":          {append(slices.Clip(operations), inRepo("seventeenth", "z", token("seventeenth", "git:write"))), 413, "16"},
	} {
		got := w.do(call{org, "r", transaction(test.operations...)}, nil)
		if got.status != test.status || !strings.Contains(string(got.body), test.text) {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
		for i, repo := range []string{"r", "r0", "r1"} {
			if now := w.standingOf(repo); !maps.Equal(now, before[i]) {
				t.Errorf("%s changed %s from %v to %v", name, repo, before[i], now)
			}
		}
	}
	if got := w.do(call{org, "org", transaction(inRepo("r0", "later", good))}, nil); got.status != http.StatusOK {
		t.Errorf("with the token of the organization: status %d: %s", got.status, got.body)
	}
}

// TestTransactionStory rehearses, makes and repeats a transaction over two repositories, in one of
// which a path is closed to the token.
func TestTransactionStory(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	w.do(call{"POST " + v1, "bound", ""}, nil).done(t)
	w.do(call{"POST " + v1 + "/commit-pack", "bound", commitLines("", "f", "1")}, nil).done(t)
	bound := pathToken("bound", ".github/**")
	in := func(repo, auth, operation string) string {
		return fmt.Sprintf(`{"repo":%q%s,%s`, repo, auth, operation[1:])
	}
	body := func(path string, dry bool) string {
		operations := transaction(
			in("r", "", `{"branch":{"action":"create","target_branch":"topic","base_ref":"main"}}`),
			in("r", "", commitTo("topic", "g", "1", "")),
			in("bound", fmt.Sprintf(`,"auth":{"token":%q}`, bound), commitTo("main", "docs/a", "2", "")),
			in("bound", "", commitTo("main", path, "3", "")),
			in("r", "", `{"tag":{"action":"create","name":"v1","ref":"topic"}}`),
		)
		if dry {
			operations = strings.Replace(operations, `{"transaction":{`, `{"transaction":{"dry_run":true,`, 1)
		}
		return operations + blob("1", "MQ==") + blob("2", "Mg==") + blob("3", "Mw==")
	}
	standing := func() []map[string]string { return []map[string]string{w.standingOf("r"), w.standingOf("bound")} }
	unmoved := func(what string, before []map[string]string) {
		t.Helper()
		if now := standing(); !reflect.DeepEqual(now, before) {
			t.Errorf("%s moved %v to %v", what, before, now)
		}
	}
	const org = "POST /api/v1/transactions"
	before := standing()
	for _, dry := range []bool{true, false} {
		for range 2 { // a refusal is no answer that a key keeps
			got := w.do(call{org, "r", body(".github/ci.yml", dry)}, nil, "Idempotency-Key", "story")
			var told struct {
				Error, Code string
				Operation   *int
			}
			if err := json.Unmarshal(got.body, &told); err != nil {
				t.Fatal(err)
			}
			if got.status != http.StatusForbidden || told.Code != "policy_denied" || told.Operation == nil || *told.Operation != 3 ||
				!strings.Contains(told.Error, ".github/ci.yml") {
				t.Errorf("a closed path, dry %v: status %d: %s", dry, got.status, got.body)
			}
			unmoved("a closed path", before)
		}
	}
	rehearsed := w.do(call{org, "r", body("docs/b", true)}, nil, "Idempotency-Key", "story")
	rehearsed.done(t)
	unmoved("a dry run", before)
	made := w.do(call{org, "r", body("docs/b", false)}, nil, "Idempotency-Key", "story")
	made.done(t)
	after := standing()
	if tips := w.tips("r"); tips["topic"] == w.head || tips["topic"] == "" || tips["main"] != w.head {
		t.Errorf("tips %v", tips)
	}
	for i, repo := range []string{"r", "bound"} {
		if reflect.DeepEqual(after[i], before[i]) {
			t.Errorf("nothing has moved in %s: %s", repo, made.body)
		}
	}
	again := w.do(call{org, "r", body("docs/b", false)}, nil, "Idempotency-Key", "story")
	if again.status != made.status || string(again.body) != string(made.body) {
		t.Errorf("first %s, then status %d: %s", made.body, again.status, again.body)
	}
	other := w.do(call{org, "r", body("docs/c", false)}, nil, "Idempotency-Key", "story")
	if other.status != http.StatusConflict || !strings.Contains(string(other.body), `"idempotency_key_reused"`) {
		t.Errorf("another request under the key: status %d: %s", other.status, other.body)
	}
	unmoved("a key that comes again", after)
}

// undoPart takes the last transaction, one of all repositories, back in the last of them, and puts
// it there again: its events and the answer name the others.
func (w *writable) undoPart(t *testing.T, names []string) {
	t.Helper()
	type position struct {
		RepoID   string `json:"repo_id"`
		Sequence uint64 `json:"sequence"`
	}
	type told struct {
		Sequence  uint64
		Elsewhere []position
	}
	var here uint64
	for i, name := range names {
		var page struct{ Events []told }
		if err := json.Unmarshal(w.do(call{"GET " + v1 + "/events?limit=100", name, ""}, nil).body, &page); err != nil {
			t.Fatal(err)
		}
		last := page.Events[len(page.Events)-1]
		if here = last.Sequence; len(last.Elsewhere) != len(names)-1 {
			t.Errorf("%s: %+v", name, last)
		}
		for _, event := range page.Events {
			if event.Sequence != here && event.Elsewhere != nil {
				t.Errorf("%s, repository %d: %+v", name, i, event)
			}
		}
	}
	name := names[len(names)-1]
	undo := call{"POST " + v1 + "/undo", name, fmt.Sprintf(`{"sequence":%d}`, here)}
	rehearsed := undo
	rehearsed.body = fmt.Sprintf(`{"sequence":%d,"dry_run":true}`, here)
	for _, c := range []call{rehearsed, undo} {
		var undone told
		got := w.do(c, nil)
		got.done(t)
		if err := json.Unmarshal(got.body, &undone); err != nil {
			t.Fatal(err)
		}
		if len(undone.Elsewhere) != len(names)-1 || undone.Elsewhere[0].RepoID == "" || undone.Elsewhere[0].Sequence == 0 {
			t.Errorf("%s: %s", c.body, got.body)
		}
	}
	if tips := w.tips(name); len(tips) != 1 {
		t.Errorf("%s has %v", name, tips)
	}
	again := w.do(call{"POST " + v1 + "/undo", name, fmt.Sprintf(`{"sequence":%d}`, here+1)}, nil)
	if again.done(t); strings.Contains(string(again.body), "elsewhere") || len(w.tips(name)) != 3 {
		t.Errorf("%s; branches %v", again.body, w.tips(name))
	}
}
