package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/pack/object"
)

// operationsOf is a commit-pack of file operations without contents.
func operationsOf(operations string) *pack {
	return newPack(`"target_branch":"main","commit_message":"m",` + author + `,"files":[` + operations + `]`)
}

func blobSHA(content string) string {
	id, err := object.Hash(object.TypeBlob, []byte(content))
	if err != nil {
		panic(err)
	}
	return id.String()
}

func TestFileOperations(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commitPack(newPack(`"target_branch":"main","commit_message":"m",`+author+`,"files":[`+
		`{"path":"lib/a","content_id":"a","mode":"100755"},{"path":"b","content_id":"b"},{"path":"c","content_id":"c"}]`).
		chunk("a", "one two two", true).chunk("b", "b", true).chunk("c", "\xff\x00c", true)).want(http.StatusCreated)
	var done committed
	c.commitPack(operationsOf(`{"path":"b","operation":"copy","from":"c","edits":[{"old":"\u0000","new":"\u00e4","count":1}],"content_id":null},` +
		`{"path":"src","operation":"move","from":"/lib"},` +
		`{"path":"lib/a","blob_sha":"` + blobSHA("b") + `","mode":"100644"},` +
		`{"path":"c","operation":"edit","edits":[{"old":"c","new":"d"},{"old":"d","new":""}],"mode":"120000"}`)).
		want(http.StatusCreated).decode(&done)
	if *done.Commit.BlobCount != 2 {
		t.Errorf("blob_count is %d, want 2 edited files", *done.Commit.BlobCount)
	}
	for path, want := range map[string]string{"src/a": "one two two", "lib/a": "b", "b": "\xff\u00e4c", "c": "\xff\x00"} {
		if got := c.call(c.door.File, http.MethodGet, "/?path="+path, nil).want(http.StatusOK); string(got.Body) != want {
			t.Errorf("%s holds %q, want %q", path, got.Body, want)
		}
	}
}

// TestFileOperationsRefused names the field that is wrong.
func TestFileOperationsRefused(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	id := strings.Repeat("1", 40)
	tests := map[string]struct{ operation, says string }{
		"move without from":   {`{"path":"x","operation":"move"}`, "files[1].from is required"},
		"move from nothing":   {`{"path":"x","operation":"move","from":""}`, "files[1].from is required"},
		"copy without from":   {`{"path":"x","operation":"copy","from":null}`, "files[1].from is required"},
		"move without path":   {`{"operation":"move","from":"a"}`, "files[1].path"},
		"move with a content": {`{"path":"x","operation":"move","from":"a","content_id":"1"}`, "files[1].content_id"},
		"copy with a blob":    {`{"path":"x","operation":"copy","from":"a","blob_sha":"` + id + `"}`, "files[1].blob_sha"},
		"move with a mode":    {`{"path":"x","operation":"move","from":"a","mode":"100644"}`, "files[1].mode"},
		"upsert from":         {`{"path":"x","from":"a","content_id":"1"}`, "files[1].from"},
		"upsert with edits":   {`{"path":"x","content_id":"1","edits":[]}`, "files[1].edits"},
		"upsert of nothing":   {`{"path":"x"}`, "files[1].content_id"},
		"two contents":        {`{"path":"x","content_id":"1","blob_sha":"` + id + `"}`, "files[1].blob_sha"},
		"a short id":          {`{"path":"x","blob_sha":"1111111"}`, "files[1].blob_sha"},
		"no id":               {`{"path":"x","blob_sha":""}`, "files[1].blob_sha"},
		"zeros":               {`{"path":"x","blob_sha":"` + strings.Repeat("0", 40) + `"}`, "files[1].blob_sha"},
		"a blob as submodule": {`{"path":"x","blob_sha":"` + id + `","mode":"160000"}`, "files[1].mode"},
		"delete from":         {`{"path":"x","operation":"delete","from":"a"}`, "files[1].from"},
		"delete a blob":       {`{"path":"x","operation":"delete","blob_sha":"` + id + `"}`, "files[1].blob_sha"},
		"edit of nothing":     {`{"path":"x","operation":"edit"}`, "files[1].edits is required"},
		"no edits":            {`{"path":"x","operation":"edit","edits":[]}`, "files[1].edits"},
		"edit from":           {`{"path":"x","operation":"edit","from":"a","edits":[{"old":"a","new":"b"}]}`, "files[1].from"},
		"edit with a content": {`{"path":"x","operation":"edit","content_id":"1","edits":[{"old":"a","new":"b"}]}`, "files[1].content_id"},
		"edit of a submodule": {`{"path":"x","operation":"edit","mode":"160000","edits":[{"old":"a","new":"b"}]}`, "files[1].mode"},
		"no old":              {`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b"},{"new":"b"}]}`, "files[1].edits[1].old"},
		"empty old":           {`{"path":"x","operation":"edit","edits":[{"old":"","new":"b"}]}`, "files[1].edits[0].old"},
		"no new":              {`{"path":"x","operation":"edit","edits":[{"old":"a"}]}`, "files[1].edits[0].new"},
		"null for new":        {`{"path":"x","operation":"edit","edits":[{"old":"a","new":null}]}`, "files[1].edits[0].new"},
		"count of 0":          {`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b","count":0}]}`, "files[1].edits[0].count"},
		"half a count":        {`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b","count":1.5}]}`, "count"},
		"a count as text":     {`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b","count":"1"}]}`, "files.1.edits.0.count"},
		"no UTF-8":            {`{"path":"x","operation":"edit","edits":[{"old":"` + "\xff" + `","new":"b"}]}`, "UTF-8"},
		"half a surrogate":    {`{"path":"x","operation":"edit","edits":[{"old":"\ud800","new":"b"}]}`, "surrogate"},
		"edits as an object":  {`{"path":"x","operation":"edit","edits":{"old":"a","new":"b"}}`, "edits"},
		"a misspelt count": {
			`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b","counts":2}]}`, "files[1].edits[0].counts is not known",
		},
		"a misspelt field": {`{"path":"x","operation":"move","from":"a","form":"b"}`, "files[1].form is not known"},
		"a guard in an edit": {
			`{"path":"x","operation":"edit","edits":[{"old":"a","new":"b","expected_count":2}]}`, "expected_count",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.commitPack(operationsOf(`{"path":"y","content_id":"1"},`+test.operation).chunk("1", "y", true)).refused(400, test.says)
		})
	}
}

// TestFailedEdit tells which edit fails, and how.
func TestFailedEdit(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commit("main", "a", "aba aba")
	for old, want := range map[string]string{
		"b":     `"edit":{"expected":1,"found":2,"index":1,"overlaps":false,"path":"a"}`,
		"x":     `"edit":{"expected":1,"found":0,"index":1,"overlaps":false,"path":"a"}`,
		"a a":   ``,
		"aba a": ``,
	} {
		answer := c.commitPack(operationsOf(fmt.Sprintf(
			`{"path":"a","operation":"edit","edits":[{"old":"aba aba","new":"aba aba"},{"old":%q,"new":"-"}],"mode":"100755"}`, old)))
		if want == "" {
			answer.want(http.StatusCreated)
			c.commit("main", "a", "aba aba")
			continue
		}
		refused := answer.refused(http.StatusConflict, `path "a": edits[1]`)
		if refused.Result.Status != "conflict" || !strings.Contains(string(answer.Body), want) {
			t.Errorf("%q: %s, want %s", old, answer.Body, want)
		}
	}
}

// TestManyEdits refuses more edits than a request may have, in all files together.
func TestManyEdits(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	edits := strings.TrimSuffix(strings.Repeat(`{"old":"a","new":"a"},`, 5_000), ",")
	operation := `{"path":"a%d","operation":"edit","edits":[` + edits + `%s]}`
	body := fmt.Sprintf(operation+","+operation, 1, "", 2, `,{"old":"a","new":"a"}`)
	c.commitPack(operationsOf(body)).refused(http.StatusRequestEntityTooLarge, "edits of all files")
}
