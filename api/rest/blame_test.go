package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// blamePage is an answer to a request for a blame.
type blamePage struct {
	Ref, Path string
	CommitSHA string `json:"commit_sha"`
	Lines     []blameLine
	// Of a part.
	HasMore    *bool  `json:"has_more"`
	NextCursor string `json:"next_cursor"`
}

type blameLine struct {
	Number         int    `json:"line_number"`
	CommitSHA      string `json:"commit_sha"`
	Original       int    `json:"original_line_number"`
	OriginalPath   string `json:"original_path"`
	Previous       string `json:"previous_commit_sha"`
	AuthorName     string `json:"author_name"`
	AuthorEmail    string `json:"author_email"`
	AuthorTime     string `json:"author_time"`
	CommitterName  string `json:"committer_name"`
	CommitterEmail string `json:"committer_email"`
	CommitterTime  string `json:"committer_time"`
	Summary        string
}

func (c *client) blame(query string) blamePage {
	c.t.Helper()
	var p blamePage
	c.call(c.door.Blame, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return p
}

func TestBlame(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	const text = "one\ntwo\nthree\n"
	first := c.commit("main", "dir/a", text).Commit.SHA
	second := c.commit("main", "dir/a", strings.Replace(text, "two", "2", 1)).Commit.SHA
	got := c.blame("path=dir/a")
	if got.Ref != "main" || got.Path != "dir/a" || got.CommitSHA != second || len(got.Lines) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{first, second, first} {
		line := got.Lines[i]
		if line.Number != i+1 || line.Original != i+1 || line.OriginalPath != "dir/a" || line.CommitSHA != want {
			t.Errorf("line %d is %+v, want it from %s", i+1, line, want)
		}
		if line.AuthorName == "" || line.AuthorEmail == "" || line.CommitterName == "" || line.CommitterEmail == "" ||
			line.Summary == "" {
			t.Errorf("line %d lacks something of its commit: %+v", i+1, line)
		}
		for _, when := range []string{line.AuthorTime, line.CommitterTime} {
			if _, err := time.Parse(time.RFC3339, when); err != nil {
				t.Error(err)
			}
		}
	}
	if got.Lines[1].Previous != first || got.Lines[0].Previous != "" {
		t.Errorf("what was before: %+v", got.Lines)
	}
	if got := c.blame("path=dir/a&ref=" + first); len(got.Lines) != 3 || got.Ref != first ||
		got.Lines[1].CommitSHA != first {
		t.Errorf("by its id: %+v", got)
	}
	if got := c.blame("path=/dir/a&range=3&range=1,1&range=1,1"); len(got.Lines) != 2 || got.Lines[0].Number != 1 ||
		got.Lines[1].Number != 3 {
		t.Errorf("two ranges: %+v", got)
	}
	if got := c.blame("path=dir/a&range=" + url.QueryEscape("/three/")); len(got.Lines) != 1 || got.Lines[0].Number != 3 {
		t.Errorf("a pattern: %+v", got)
	}
}

func TestBlameOfMoves(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	const moved, rest = "a line that tells enough to be found again\n",
		"another line, which stays where it has always been\nand a third\n"
	first := c.commit("main", "a", moved+rest).Commit.SHA
	second := c.commit("main", "a", rest+moved).Commit.SHA
	if got := c.blame("path=a"); got.Lines[2].CommitSHA != second {
		t.Errorf("without moves %+v", got.Lines[2])
	}
	if got := c.blame("path=a&detect_moves=true"); got.Lines[2].CommitSHA != first || got.Lines[2].Original != 1 {
		t.Errorf("with moves %+v", got.Lines[2])
	}
}

func TestBlameOfEphemeral(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	c.post(c.door.CreateBranch, `{"target_branch":"spike","base_branch":"dev","target_is_ephemeral":true}`).
		want(http.StatusCreated)
	if got := c.blame("path=lib/b.go&ref=spike&ephemeral=true"); got.CommitSHA != done[3].Commit.SHA ||
		len(got.Lines) != 1 {
		t.Errorf("%+v", got)
	}
	c.call(c.door.Blame, http.MethodGet, "/?path=lib/b.go&ref=spike", nil).refused(http.StatusNotFound, "spike")
}

func TestBlameRefusals(t *testing.T) {
	t.Parallel()
	c, _ := mixed(t)
	for query, want := range map[string]struct {
		status int
		words  string
	}{
		"":                                   {http.StatusBadRequest, "path"},
		"path=lib":                           {http.StatusBadRequest, "folder"},
		"path=mod":                           {http.StatusBadRequest, "submodule"},
		"path=README.md&detect_moves=yes":    {http.StatusBadRequest, "detect_moves"},
		"path=README.md&ephemeral=yes":       {http.StatusBadRequest, "ephemeral"},
		"path=README.md&range=99":            {http.StatusBadRequest, "only 1 line"},
		"path=README.md&range=0":             {http.StatusBadRequest, "0"},
		"path=README.md&range=x":             {http.StatusBadRequest, "x"},
		"path=README.md&range=%2Fnothing%2F": {http.StatusBadRequest, "matches"},
		"path=README.md&range=%2F%5C(a%5C)%5C1%2F":        {http.StatusBadRequest, "RE2"},
		"path=README.md" + strings.Repeat("&range=1", 17): {http.StatusBadRequest, "at most 16"},
		"path=nothing":               {http.StatusNotFound, "nothing"},
		"path=README.md/below":       {http.StatusNotFound, "below"},
		"path=README.md&ref=nowhere": {http.StatusNotFound, "nowhere"},
	} {
		c.call(c.door.Blame, http.MethodGet, "/?"+query, nil).refused(want.status, want.words)
	}
	c.as("nope").call(c.door.Blame, http.MethodGet, "/?path=a", nil).refused(http.StatusNotFound, "nope")
	if got := c.blame("path=lib/link"); len(got.Lines) != 1 {
		t.Errorf("a link has one line: %+v", got)
	}
	if got := c.blame("path=README.md" + strings.Repeat("&range=1", 16)); len(got.Lines) != 1 {
		t.Errorf("16 ranges: %+v", got)
	}
}
