package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// keyedWrite is a write that an idempotency key makes once.
type keyedWrite struct {
	name        string
	handler     handler
	method      string
	body, other string // other is another request, for which the key is taken
	twin        int    // the status of body under a second key, when the first has done its work
}

// keyedWrites are the writes of the door that change something, as a seeded repository can take
// them, in this order.
func keyedWrites(c *client, done []committed) []keyedWrite {
	pack := func(content string) string {
		fields := `"target_branch":"main","commit_message":"m",` + author + `,"files":[{"path":"once","content_id":"1"}]`
		return newPack(fields).chunk("1", content, true).String()
	}
	diff := func(content string) string {
		return newPack(`"target_branch":"main","commit_message":"m",`+author).
			diffChunk("--- a/once\n+++ b/once\n@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+"+content+"\n", true).String()
	}
	edit := func(old string) string {
		return newPack(`"target_branch":"main","commit_message":"m",` + author +
			`,"files":[{"path":"once","operation":"edit","edits":[{"old":"` + old + `","new":"3"}]}]`).String()
	}
	restore := func(branch string) string {
		return fmt.Sprintf(`{"metadata":{"target_branch":%q,"target_commit_sha":%q,%s}}`, branch, done[0].Commit.SHA, author)
	}
	branch := func(name string) string { return fmt.Sprintf(`{"target_branch":%q,"base_branch":"main"}`, name) }
	tag := func(name string) string { return fmt.Sprintf(`{"name":%q,"target":%q}`, name, done[0].Commit.SHA) }
	note := func(action string) string {
		return fmt.Sprintf(`{"sha":%q,"note":"n","action":%q}`, done[0].Commit.SHA, action)
	}
	return []keyedWrite{
		{"commit-pack", c.door.CommitPack, http.MethodPost, pack("1"), pack("2"), http.StatusCreated},
		{"diff-commit", c.door.DiffCommit, http.MethodPost, diff("2"), diff("3"), http.StatusBadRequest},
		{"edit", c.door.CommitPack, http.MethodPost, edit("2"), edit("n"), http.StatusConflict},
		{"restore-commit", c.door.RestoreCommit, http.MethodPost, restore("main"), restore("dev"), http.StatusCreated},
		{"create branch", c.door.CreateBranch, http.MethodPost, branch("x"), branch("y"), http.StatusConflict},
		{"delete branch", c.door.DeleteBranch, http.MethodDelete, `{"name":"dev"}`, `{"name":"x"}`, http.StatusNotFound},
		{"create tag", c.door.CreateTag, http.MethodPost, tag("v1"), tag("v2"), http.StatusConflict},
		{"delete tag", c.door.DeleteTag, http.MethodDelete, `{"name":"v1"}`, `{"name":"v2"}`, http.StatusNotFound},
		{"add note", c.door.AddNote, http.MethodPost, note("add"), note("append"), http.StatusConflict},
		{"delete note", c.door.DeleteNote, http.MethodDelete, note("add"), note("append"), http.StatusNotFound},
		{"delete", c.door.DeleteRepository, http.MethodDelete, ``, ` `, http.StatusConflict},
		{"create", c.door.CreateRepository, http.MethodPost, `{}`, `{"default_branch":"x"}`, http.StatusConflict},
	}
}

// TestWritesOnce sends every write again under its key: the answer is, byte for byte, the first
// one, whatever others wrote in between.
func TestWritesOnce(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	for i, w := range keyedWrites(c, done) {
		key := fmt.Sprint("k", i)
		send := func(body, key string) answer {
			return c.call(w.handler, w.method, "/", strings.NewReader(body), "Content-Type", "application/x-ndjson",
				"Idempotency-Key", key)
		}
		first := send(w.body, key)
		sequence := first.Header.Get("X-Repo-Sequence")
		if first.Status >= 300 || sequence == "" {
			t.Fatalf("%s: status %d, X-Repo-Sequence %q: %s", w.name, first.Status, sequence, first.Body)
		}
		send(w.body, "twin"+key).want(w.twin)
		again := send(w.body, key).want(first.Status)
		if string(again.Body) != string(first.Body) || again.Header.Get("X-Repo-Sequence") != sequence {
			t.Errorf("%s: replayed %s at %s, first was %s at %s", w.name, again.Body, again.Header.Get("X-Repo-Sequence"),
				first.Body, sequence)
		}
		send(w.other, key).refused(http.StatusConflict, "idempotency key")
		send(w.body, "with space").refused(http.StatusBadRequest, "Idempotency-Key")
		send(w.body, strings.Repeat("k", 256)).refused(http.StatusBadRequest, "Idempotency-Key")
	}
}

// TestWritesAwait checks X-Min-Sequence for writes as for reads: the state that they build on
// exists.
func TestWritesAwait(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	for _, w := range keyedWrites(c, done)[:6] {
		send := func(sequence string) answer {
			return c.call(w.handler, w.method, "/", strings.NewReader(w.body), "Content-Type", "application/x-ndjson",
				"X-Min-Sequence", sequence)
		}
		send("soon").refused(http.StatusBadRequest, "X-Min-Sequence")
		if got := send("5"); got.Status >= 300 {
			t.Errorf("%s: status %d: %s", w.name, got.Status, got.Body)
		}
	}
	c.call(c.door.Tags, http.MethodGet, "/", nil, "X-Min-Sequence", "11").want(http.StatusOK)
}
