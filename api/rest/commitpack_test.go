package rest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
)

const oneFile = `"target_branch":"main","commit_message":"m",` + author + `,"files":[{"path":"a","content_id":"1"}]`

func TestCommitPack(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	fields := `"target_branch":"main","commit_message":"m",` + author + `,"ignored":{"x":1},"files":[
		{"path":"/bin/run","content_id":"r","mode":"100755","operation":"upsert"},
		{"path":"link","content_id":"l","mode":"120000"},
		{"path":"empty","content_id":"e"},
		{"path":"long","content_id":"b"}]`
	body := newPack(strings.ReplaceAll(fields, "\n", "")).
		chunk("b", "first ", false).chunk("r", "#!/bin/sh\n", true).chunk("b", "second", false).
		chunk("l", "bin/run", true).chunk("e", "", true).chunk("b", "", true)
	body.WriteString("\n  \n")
	answer := c.commitPack(body).want(http.StatusCreated)
	var done committed
	answer.decode(&done)
	if done.Commit.Branch != "main" || done.Commit.BlobCount == nil || *done.Commit.BlobCount != 4 ||
		done.Commit.PackBytes <= 0 {
		t.Errorf("commit is %s", answer.Body)
	}
	r := done.Result
	if r.Branch != "main" || r.OldSHA != strings.Repeat("0", 40) || r.NewSHA != done.Commit.SHA || !r.Success ||
		r.Status != "ok" || r.Message == nil || *r.Message != "" {
		t.Errorf("result is %s", answer.Body)
	}
	if got := answer.Header.Get("X-Repo-Sequence"); got != "2" {
		t.Errorf("X-Repo-Sequence is %q, want 2", got)
	}
	for path, want := range map[string]string{
		"bin/run": "#!/bin/sh\n", "link": "bin/run", "empty": "", "long": "first second",
	} {
		if got := c.call(c.door.File, http.MethodGet, "/?path="+path, nil).want(http.StatusOK); string(got.Body) != want {
			t.Errorf("%s holds %q, want %q", path, got.Body, want)
		}
	}
}

// TestCommitPackRefuses checks the rows of the specification's Errors table, and other faults of a
// body.
func TestCommitPackRefuses(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	with := func(changes ...string) string { // oneFile with text replaced
		return strings.NewReplacer(changes...).Replace(oneFile)
	}
	whole := func(fields string) io.Reader { return newPack(fields).chunk("1", "x", true) }
	tests := map[string]struct {
		body   io.Reader
		status int
		says   string
		word   string // result.status
	}{
		"empty body":           {strings.NewReader(""), 400, "empty", "invalid"},
		"blank lines":          {strings.NewReader("\n \n"), 400, "empty", "invalid"},
		"no JSON":              {strings.NewReader("hello\n"), 400, "JSON", "invalid"},
		"a chunk first":        {(&pack{}).chunk("1", "x", true), 400, "metadata", "invalid"},
		"metadata is a string": {strings.NewReader(`{"metadata":"x"}`), 400, "metadata", "invalid"},
		"wrong type":           {whole(with(`"m"`, `5`)), 400, "commit_message", "invalid"},
		"duplicate field": {
			whole(with(`"commit_message":"m"`, `"commit_message":"m","commit_message":"n"`)), 400, "commit_message", "invalid",
		},
		"deep": {
			strings.NewReader(`{"metadata":` + strings.Repeat(`{"x":`, 20000) + `1` + strings.Repeat(`}`, 20001)), 400,
			"JSON", "invalid",
		},
		"no target":               {whole(with(`"target_branch":"main",`, "")), 400, "target_branch", "invalid"},
		"target with refs/":       {whole(with(`"main"`, `"refs/heads/main"`)), 400, "target_branch", "invalid"},
		"bad target":              {whole(with(`"main"`, `"a..b"`)), 400, "target_branch", "invalid"},
		"no message":              {whole(with(`"commit_message":"m",`, "")), 400, "commit_message", "invalid"},
		"blank message":           {whole(with(`"m"`, `" "`)), 400, "commit_message", "invalid"},
		"no author":               {whole(with(author+",", "")), 400, "author", "invalid"},
		"no author name":          {whole(with(`"A"`, `""`)), 400, "author", "invalid"},
		"committer without email": {whole(oneFile + `,"committer":{"name":"C"}`), 400, "committer", "invalid"},
		"no files":                {whole(with(`[{"path":"a","content_id":"1"}]`, `[]`)), 400, "files", "invalid"},
		"files absent":            {whole(with(`,"files":[{"path":"a","content_id":"1"}]`, ``)), 400, "files", "invalid"},
		"no path":                 {whole(with(`"path":"a",`, "")), 400, "files[0].path", "invalid"},
		"bad path":                {whole(with(`"path":"a"`, `"path":"a/../b"`)), 400, "a/../b", "invalid"},
		"git folder":              {whole(with(`"path":"a"`, `"path":".git/hooks/x"`)), 400, ".git", "invalid"},
		"no content id":           {whole(with(`,"content_id":"1"`, "")), 400, "content_id", "invalid"},
		"bad mode":                {whole(with(`"content_id"`, `"mode":"100600","content_id"`)), 400, "mode", "invalid"},
		"tree mode":               {whole(with(`"content_id"`, `"mode":"040000","content_id"`)), 400, "mode", "invalid"},
		"bad operation": {
			whole(with(`"content_id"`, `"operation":"rename","content_id"`)), 400, "files[0].operation", "invalid",
		},
		"path twice": {
			whole(with(`{"path":"a","content_id":"1"}`, `{"path":"a","content_id":"1"},{"path":"/a","content_id":"1"}`)),
			400, "twice", "invalid",
		},
		"delete what is not": {
			newPack(with(`"content_id":"1"`, `"operation":"delete"`)), 400, "does not exist", "invalid",
		},
		"bad guard":             {whole(oneFile + `,"expected_head_sha":"abc"`), 400, "expected_head_sha", "invalid"},
		"ephemeral base alone":  {whole(oneFile + `,"ephemeral_base":true`), 400, "ephemeral_base", "invalid"},
		"unknown content":       {newPack(oneFile).chunk("2", "x", true), 400, `"2"`, "invalid"},
		"content never ends":    {newPack(oneFile).chunk("1", "x", false), 400, `"1"`, "invalid"},
		"content never comes":   {newPack(oneFile), 400, `"1"`, "invalid"},
		"chunk behind the last": {newPack(oneFile).chunk("1", "x", true).chunk("1", "y", true), 400, "ended", "invalid"},
		"bad base64": {io.MultiReader(
			newPack(oneFile), strings.NewReader(`{"blob_chunk":{"content_id":"1","data":"****","eof":true}}`),
		), 400, "base64", "invalid"},
		"base64 without padding": {io.MultiReader(
			newPack(oneFile), strings.NewReader(`{"blob_chunk":{"content_id":"1","data":"eA","eof":true}}`),
		), 400, "base64", "invalid"},
		"base64 with a line end": {io.MultiReader(
			newPack(oneFile), strings.NewReader(`{"blob_chunk":{"content_id":"1","data":"eH\nh4","eof":true}}`),
		), 400, "base64", "invalid"},
		"chunk too large": {newPack(oneFile).chunk("1", strings.Repeat("x", 4<<20+1), true), 400, "4194304", "invalid"},
		"line too long": {
			strings.NewReader(`{"metadata":{"commit_message":"` + strings.Repeat("x", 16<<20) + `"}}`), 413, "line", "invalid",
		},
		"garbage behind": {io.MultiReader(whole(oneFile), strings.NewReader("x")), 400, "JSON", "invalid"},
		"cut off": {
			io.MultiReader(whole(oneFile), iotest.ErrReader(exchange.ErrEndedEarly)), 400, "", "invalid",
		},
		"no such target": {whole(with(`"main"`, `"nope"`)), 404, "nope", "not_found"},
		"no such base":   {whole(with(`"main"`, `"new","base_branch":"nope"`)), 404, "nope", "not_found"},
		"stale guard": {
			whole(oneFile + `,"expected_head_sha":"` + done[0].Commit.SHA + `"`), 409, done[2].Commit.SHA, "precondition_failed",
		},
		"stale guard of a base": {
			whole(with(`"main"`, `"new","base_branch":"main"`) + `,"expected_head_sha":"` + done[0].Commit.SHA + `"`),
			409, done[2].Commit.SHA, "precondition_failed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := c.commitPack(test.body).refused(test.status, test.says)
			if r.Result == nil || r.Result.Success || r.Result.Status != test.word || r.Result.Message != r.Error {
				t.Errorf("result is %+v, want status %q", r.Result, test.word)
			}
			if test.word == "precondition_failed" && r.Result.OldSHA != done[2].Commit.SHA {
				t.Errorf("old_sha is %q, want the tip", r.Result.OldSHA)
			}
		})
	}
	c.as("nope").commitPack(whole(oneFile)).refused(http.StatusNotFound, "nope")
	c.call(c.door.CommitPack, http.MethodPost, "/", whole(oneFile), "Content-Type", "application/json").
		refused(http.StatusUnsupportedMediaType, "ndjson")

	var branches struct {
		Branches []struct {
			HeadSHA string `json:"head_sha"`
		}
	}
	c.call(c.door.Branches, http.MethodGet, "/", nil).want(http.StatusOK).decode(&branches)
	if len(branches.Branches) != 2 || branches.Branches[0].HeadSHA != done[2].Commit.SHA {
		t.Errorf("after refusals the branches are %+v", branches.Branches)
	}
}

func TestCommitPackOnce(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	guarded := oneFile + `,"expected_head_sha":"` + done[2].Commit.SHA + `"`
	keyed := func(fields, content string) answer {
		return c.commitPack(newPack(fields).chunk("1", content, true), "Idempotency-Key", "k")
	}
	first := keyed(guarded, "x").want(http.StatusCreated)
	again := keyed(guarded, "x").want(http.StatusCreated)
	if string(again.Body) != string(first.Body) ||
		again.Header.Get("X-Repo-Sequence") != first.Header.Get("X-Repo-Sequence") {
		t.Errorf("replayed %s, first was %s", again.Body, first.Body)
	}
	keyed(guarded, "y").refused(http.StatusConflict, "key")
}

// TestCommitPackUnusualLines sends chunks in shapes that only the strict decoder takes.
func TestCommitPackUnusualLines(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	for i, line := range []string{
		`{"blob_chunk":{"content_id":"1","data":"eA==","eof":true}}`,
		` { "blob_chunk" : { "content_id" : "1" , "data" : "eA==" , "eof" : true } } `,
		`{"blob_chunk":{"eof":true,"data":"eA\u003d=","content_id":"\u0031"}}`,
		`{"other":[],"blob_chunk":{"content_id":"1","data":"eA==","eof":true,"more":null}}`,
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c.commitPack(io.MultiReader(newPack(oneFile), strings.NewReader(line))).want(http.StatusCreated)
			if got := c.call(c.door.File, http.MethodGet, "/?path=a", nil).want(http.StatusOK); string(got.Body) != "x" {
				t.Errorf("content is %q", got.Body)
			}
		})
	}
}

// TestCommitPackFailingBody never commits an incomplete body.
func TestCommitPackFailingBody(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	body := newPack(oneFile).chunk("1", "x", true).String()
	for size := range len(body) {
		broken := io.MultiReader(strings.NewReader(body[:size]), iotest.ErrReader(errors.New("broken")))
		if got := c.commitPack(broken); got.Status == http.StatusCreated {
			t.Fatalf("%d of %d bytes made a commit", size, len(body))
		}
	}
	c.commitPack(strings.NewReader(body)).want(http.StatusCreated)
}
