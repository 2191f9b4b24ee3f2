package rest_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
)

// diffChunk adds a chunk of a patch.
func (p *pack) diffChunk(data string, eof bool) *pack {
	encoded := base64.StdEncoding.EncodeToString([]byte(data))
	_, _ = fmt.Fprintf(p, "{\"diff_chunk\":{\"data\":%q,\"eof\":%v}}\n", encoded, eof) // never fails
	return p
}

func (c *client) diffCommit(body io.Reader, headers ...string) answer {
	c.t.Helper()
	return c.call(c.door.DiffCommit, http.MethodPost, "/", body,
		append([]string{"Content-Type", "application/x-ndjson"}, headers...)...)
}

const (
	onMain = `"target_branch":"main","commit_message":"m",` + author

	// again is a patch for the README.md of a seeded repository, and a new file.
	again = `diff --git a/README.md b/README.md
index 1a2b3c4..5d6e7f8 100644
--- a/README.md
+++ b/README.md
@@ -1 +1 @@
-hello again
+hello for ever
diff --git a/bin/run b/bin/run
new file mode 100755
--- /dev/null
+++ b/bin/run
@@ -0,0 +1 @@
+#!/bin/sh
`
)

func TestDiffCommit(t *testing.T) {
	t.Parallel()
	c, seeds := seeded(t)
	body := newPack(onMain+`,"expected_head_sha":"`+seeds[2].Commit.SHA+`"`).diffChunk(again[:50], false).
		diffChunk(again[50:], false)
	answer := c.diffCommit(body.diffChunk("", true)).want(http.StatusCreated)
	var done committed
	answer.decode(&done)
	if done.Commit.Branch != "main" || done.Commit.BlobCount != nil || done.Commit.PackBytes <= 0 ||
		answer.Header.Get("X-Repo-Sequence") != "6" {
		t.Errorf("commit at %s is %s", answer.Header.Get("X-Repo-Sequence"), answer.Body)
	}
	r := done.Result
	if r.OldSHA != seeds[2].Commit.SHA || r.NewSHA != done.Commit.SHA || !r.Success || r.Status != "ok" ||
		r.Message == nil || *r.Message != "" {
		t.Errorf("result is %s", answer.Body)
	}
	for path, want := range map[string]string{
		"README.md": "hello for ever\n", "bin/run": "#!/bin/sh\n", "lib/a.go": "package a\n",
	} {
		if got := c.call(c.door.File, http.MethodGet, "/?path="+path, nil).want(http.StatusOK); string(got.Body) != want {
			t.Errorf("%s holds %q, want %q", path, got.Body, want)
		}
	}
	back := "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-hello for ever\n+hello again\n"
	c.diffCommit(newPack(onMain).diffChunk(back, true), "Code-Storage-Agent", "x").want(http.StatusCreated).decode(&done)
	if done.Commit.BlobCount == nil || *done.Commit.BlobCount != 1 {
		t.Errorf("for the reference client blob_count is %v, want 1", done.Commit.BlobCount)
	}
}

// TestDiffCommitBranches begins branches by patches.
func TestDiffCommitBranches(t *testing.T) {
	t.Parallel()
	c, seeds := seeded(t)
	onto := func(fields string) committed {
		var done committed
		c.diffCommit(newPack(`"commit_message":"m",`+author+","+fields).diffChunk(again, true)).want(http.StatusCreated).
			decode(&done)
		return done
	}
	if done := onto(`"target_branch":"new","base_branch":"main"`); done.Result.OldSHA != strings.Repeat("0", 40) {
		t.Errorf("a new branch has old_sha %s", done.Result.OldSHA)
	}
	guarded := `"target_branch":"guarded","base_branch":"main","expected_head_sha":"` + seeds[2].Commit.SHA + `"`
	if done := onto(guarded); done.Commit.Branch != "guarded" {
		t.Errorf("target_branch is %s", done.Commit.Branch)
	}
	onto(`"target_branch":"e","base_branch":"main","ephemeral":true`)
	onto(`"target_branch":"main"`)
	empty := newClient(t)
	empty.create("").want(http.StatusCreated)
	first := "--- /dev/null\n+++ b/first\n@@ -0,0 +1 @@\n+1\n"
	empty.diffCommit(newPack(onMain).diffChunk(first, true)).want(http.StatusCreated)
}

// TestDiffCommitRefuses checks the rows of the specification's Errors table, and other faults of a
// body.
func TestDiffCommitRefuses(t *testing.T) {
	t.Parallel()
	c, seeds := seeded(t)
	whole := func(fields string) io.Reader { return newPack(fields).diffChunk(again, true) }
	with := func(patch string) io.Reader { return newPack(onMain).diffChunk(patch, true) }
	fields := func(changes ...string) string { return strings.NewReplacer(changes...).Replace(onMain) }
	line := func(text string) io.Reader { return io.MultiReader(newPack(onMain), strings.NewReader(text)) }
	tests := map[string]struct {
		body   io.Reader
		status int
		says   string
		word   string // result.status
	}{
		"empty body":            {strings.NewReader(""), 400, "empty", "invalid"},
		"a chunk first":         {(&pack{}).diffChunk(again, true), 400, "metadata", "invalid"},
		"no target":             {whole(fields(`"target_branch":"main",`, "")), 400, "target_branch", "invalid"},
		"no message":            {whole(fields(`"commit_message":"m",`, "")), 400, "commit_message", "invalid"},
		"no author":             {whole(`"target_branch":"main","commit_message":"m"`), 400, "author", "invalid"},
		"bad guard":             {whole(onMain + `,"expected_head_sha":"abc"`), 400, "expected_head_sha", "invalid"},
		"no chunk":              {newPack(onMain), 400, "ended", "invalid"},
		"patch never ends":      {newPack(onMain).diffChunk(again, false), 400, "ended", "invalid"},
		"chunk behind the last": {newPack(onMain).diffChunk(again, true).diffChunk("", true), 400, "ended", "invalid"},
		"a blob_chunk":          {newPack(onMain).chunk("1", "x", true), 400, "diff_chunk", "invalid"},
		"bad base64":            {line(`{"diff_chunk":{"data":"****","eof":true}}`), 400, "base64", "invalid"},
		"wrong type":            {line(`{"diff_chunk":{"data":1,"eof":true}}`), 400, "data", "invalid"},
		"chunk too large":       {with(strings.Repeat("x", 4<<20+1)), 400, "4194304", "invalid"},
		"garbage behind":        {io.MultiReader(whole(onMain), strings.NewReader("x")), 400, "JSON", "invalid"},
		"cut off": {
			io.MultiReader(whole(onMain), iotest.ErrReader(exchange.ErrEndedEarly)), 400, "", "invalid",
		},
		"empty patch":   {with(""), 400, "empty", "precondition_failed"},
		"blank patch":   {with(" \n\n"), 400, "empty", "precondition_failed"},
		"no patch":      {with("hello\n"), 400, "no patch", "invalid"},
		"corrupt patch": {with(strings.Replace(again, "@@ -1 +1 @@", "@@ -1,2 +1 @@", 1)), 400, "line 5", "invalid"},
		"other content": {with(strings.Replace(again, "-hello again", "-hello", 1)), 400, "README.md", "conflict"},
		"no such file":  {with(strings.ReplaceAll(again, "README.md", "README")), 400, "does not exist", "conflict"},
		"file exists":   {with(strings.ReplaceAll(again, "bin/run", "lib/a.go")), 400, "exists already", "conflict"},
		"below a file":  {with(strings.ReplaceAll(again, "bin/run", "README.md/run")), 400, "is a file", "conflict"},
		"parent folder": {with(strings.ReplaceAll(again, "bin/run", "../run")), 400, "../run", "invalid"},
		"git folder":    {with(strings.ReplaceAll(again, "bin/run", ".git/run")), 400, ".git", "invalid"},
		"bad .gitmodules": {
			with("--- /dev/null\n+++ b/.gitmodules\n@@ -0,0 +1,2 @@\n+[submodule \"../x\"]\n+\turl = y\n"), 400, ".gitmodules",
			"invalid",
		},
		"no such target": {whole(fields(`"main"`, `"nope"`)), 404, "nope", "not_found"},
		"no such base":   {whole(fields(`"main"`, `"new","base_branch":"nope"`)), 404, "nope", "not_found"},
		"stale guard": {
			whole(onMain + `,"expected_head_sha":"` + seeds[0].Commit.SHA + `"`), 409, seeds[2].Commit.SHA,
			"precondition_failed",
		},
		"stale guard of a base": {
			whole(fields(`"main"`, `"new","base_branch":"main"`) + `,"expected_head_sha":"` + seeds[0].Commit.SHA + `"`),
			409, seeds[2].Commit.SHA, "precondition_failed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := c.diffCommit(test.body).refused(test.status, test.says)
			if r.Result == nil || r.Result.Success || r.Result.Status != test.word || r.Result.Message != r.Error {
				t.Errorf("result is %+v, want status %q", r.Result, test.word)
			}
		})
	}
	c.as("nope").diffCommit(whole(onMain)).refused(http.StatusNotFound, "nope")
	c.call(c.door.DiffCommit, http.MethodPost, "/", whole(onMain), "Content-Type", "application/json").
		refused(http.StatusUnsupportedMediaType, "ndjson")
	// Nothing has moved the branch.
	c.diffCommit(whole(onMain + `,"expected_head_sha":"` + seeds[2].Commit.SHA + `"`)).want(http.StatusCreated)
}

// TestDiffCommitUnusualLines sends chunks in shapes that only the strict decoder takes.
func TestDiffCommitUnusualLines(t *testing.T) {
	t.Parallel()
	for _, format := range []string{
		`{"diff_chunk":{"data":"%s","eof":true}}`,
		` { "diff_chunk" : { "data" : "%s" , "eof" : true } } `,
		`{"other":1,"diff_chunk":{"eof":true,"data":"%s","content_id":"x"}}`,
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			c, _ := seeded(t)
			chunk := fmt.Sprintf(format, base64.StdEncoding.EncodeToString([]byte(again)))
			c.diffCommit(io.MultiReader(newPack(onMain), strings.NewReader(chunk))).want(http.StatusCreated)
		})
	}
}

// TestDiffCommitFailingBody never commits an incomplete body.
func TestDiffCommitFailingBody(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	body := newPack(onMain).diffChunk(again, true).String()
	for size := range len(body) {
		broken := io.MultiReader(strings.NewReader(body[:size]), iotest.ErrReader(errors.New("broken")))
		if got := c.diffCommit(broken); got.Status == http.StatusCreated {
			t.Fatalf("%d of %d bytes made a commit", size, len(body))
		}
	}
	c.diffCommit(strings.NewReader(body)).want(http.StatusCreated)
}

// TestDiffCommitMany lets patches for lines of one file race: each is applied again to the present
// tip, and none is lost.
func TestDiffCommitMany(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	const writers = 8
	var content strings.Builder
	for i := range writers {
		fmt.Fprintf(&content, "before %d\nline %d\nafter %d\n", i, i, i)
	}
	c.commit("main", "f", content.String())
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			patch := fmt.Sprintf("--- a/f\n+++ b/f\n@@ -%d,3 +%d,4 @@\n before %d\n-line %d\n+done %d\n+more\n after %d\n",
				3*i+1, 3*i+1, i, i, i, i)
			if got := c.diffCommit(newPack(onMain).diffChunk(patch, true)); got.Status != http.StatusCreated {
				t.Errorf("writer %d: status %d: %s", i, got.Status, got.Body)
			}
		})
	}
	group.Wait()
	got := c.call(c.door.File, http.MethodGet, "/?path=f", nil).want(http.StatusOK)
	for i := range writers {
		if !strings.Contains(string(got.Body), fmt.Sprintf("before %d\ndone %d\nmore\nafter %d\n", i, i, i)) {
			t.Errorf("the patch of writer %d is lost: %s", i, got.Body)
		}
	}
}
