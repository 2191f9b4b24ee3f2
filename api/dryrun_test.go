package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// dry is a call as a dry run.
func dry(c call) call {
	const field = `"dry_run":true`
	object := `{"metadata":{`
	if strings.HasPrefix(c.body, `{"transaction":{`) {
		object = `{"transaction":{`
	}
	head, rest, lines := strings.Cut(c.body, object)
	trimmed := strings.TrimSpace(c.body)
	switch {
	case strings.HasPrefix(c.route, "DELETE "):
		c.route = withQuery(c.route, "dry_run=true")
	case lines:
		c.body = head + object + field + "," + rest
	case trimmed == "" || trimmed == "{}":
		c.body = "{" + field + "}"
	default:
		c.body = "{" + field + "," + strings.TrimPrefix(trimmed, "{")
	}
	return c
}

// rehearsed makes a write as a dry run, under a key, looks that it changed nothing, and makes it:
// the answers are the same.
func (w *writable) rehearsed(c call) {
	w.t.Helper()
	before := w.standingOf(c.repo)
	rehearsal := w.do(dry(c), nil, "Idempotency-Key", "rehearsal")
	rehearsal.done(w.t)
	if after := w.standingOf(c.repo); !maps.Equal(after, before) {
		w.t.Errorf("a dry run of %s changed %v to %v", c.route, before, after)
	}
	made := w.do(c, nil)
	made.done(w.t)
	var told, want map[string]any
	if err := json.Unmarshal(rehearsal.body, &told); err != nil {
		w.t.Fatalf("%s: %v: %s", c.route, err, rehearsal.body)
	}
	if told["dry_run"] != true {
		w.t.Errorf("the answer to a dry run of %s does not say so: %s", c.route, rehearsal.body)
	}
	delete(told, "dry_run")
	if made.status == http.StatusNoContent {
		return
	}
	if err := json.Unmarshal(made.body, &want); err != nil {
		w.t.Fatal(err)
	}
	if rehearsal.status != made.status { // what is drawn is not told
		for _, drawn := range []string{"repo_id", "id", "created_at"} {
			delete(want, drawn)
		}
	}
	delete(told, "repositories") // with the positions that a transaction reaches
	delete(want, "repositories")
	if !reflect.DeepEqual(told, want) {
		w.t.Errorf("%s made %s, and its dry run told %s", c.route, made.body, rehearsal.body)
	}
}

// standingOf is what clients see of a repository, and of all.
func (w *writable) standingOf(repo string) map[string]string {
	w.t.Helper()
	seen := make(map[string]string)
	for _, path := range []string{
		"/branches", "/branches?ephemeral=true", "/tags", "/tags?ephemeral=true", "/notes/refs", "/events",
	} {
		got := w.do(call{"GET " + v1 + path, repo, ""}, nil)
		seen[path] = string(got.body)
	}
	got := w.do(call{"GET /api/v1/repo", repo, ""}, nil)
	seen["repo"] = string(got.body)
	return seen
}

// A dry run is refused as the call would be, and a misspelt one in every way.
func TestDryRunRefusals(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	for name, test := range map[string]struct {
		call
		status int
		text   string
	}{
		"an expectation": {
			call{"POST " + v1 + "/commit-pack", "r", commitLines(
				`"dry_run":true,"expected_target_sha":"`+strings.Repeat("1", 40)+`",`, "f", "2")},
			409, "precondition_failed",
		},
		"a taken name": {
			call{"POST " + v1 + "/branches/create", "r", `{"dry_run":true,"target_branch":"main","base_branch":"main"}`},
			409, "already exists",
		},
		"the default branch": {
			call{"DELETE " + v1 + "/branches?dry_run=true", "r", `{"target_branch":"main"}`}, 409, "default branch",
		},
		"no flag": {
			call{"DELETE " + v1 + "/branches?dry_run=1", "r", `{"target_branch":"x"}`}, 400, "expected true or false",
		},
		"two answers": {
			call{"DELETE " + v1 + "/branches?dry_run=false", "r", `{"target_branch":"x","dry_run":true}`},
			400, "the query says false",
		},
		"in the query of a POST": {
			call{"POST " + v1 + "/branches/create?dry_run=true", "r", `{"target_branch":"x","base_branch":"main"}`},
			400, "a guard is not ignored",
		},
		"misspelt": {
			call{"POST " + v1 + "/branches/create", "r", `{"target_branch":"x","base_branch":"main","dryRun":true}`},
			400, "a guard is not ignored",
		},
	} {
		got := w.do(test.call, nil)
		if got.status != test.status || !strings.Contains(string(got.body), test.text) {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
}
