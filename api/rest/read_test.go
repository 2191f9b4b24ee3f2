package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// seeded is a repository with three commits on main and one on dev.
func seeded(t *testing.T) (*client, []committed) {
	t.Helper()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	return c, []committed{
		c.commit("main", "README.md", "hello\n"),
		c.commit("main", "lib/a.go", "package a\n"),
		c.commit("main", "README.md", "hello again\n"),
		c.commit("dev", "lib/b.go", "package b\n"),
	}
}

func TestBranches(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	type page struct {
		Branches []struct {
			Cursor, Name string
			HeadSHA      string `json:"head_sha"`
			CreatedAt    string `json:"created_at"`
		}
		Next    string `json:"next_cursor"`
		HasMore bool   `json:"has_more"`
	}
	var first, second page
	c.call(c.door.Branches, http.MethodGet, "/?limit=1", nil).want(http.StatusOK).decode(&first)
	if len(first.Branches) != 1 || first.Branches[0].Name != "main" || !first.HasMore ||
		first.Next != first.Branches[0].Cursor {
		t.Fatalf("first page is %+v", first)
	}
	c.call(c.door.Branches, http.MethodGet, "/?cursor="+first.Next, nil).want(http.StatusOK).decode(&second)
	if len(second.Branches) != 1 || second.Branches[0].Name != "dev" || second.HasMore ||
		second.Next != second.Branches[0].Cursor {
		t.Fatalf("second page is %+v", second)
	}
	if second.Branches[0].HeadSHA != done[3].Commit.SHA {
		t.Errorf("dev is at %s, want %s", second.Branches[0].HeadSHA, done[3].Commit.SHA)
	}
	var none page
	c.call(c.door.Branches, http.MethodGet, "/?ephemeral=true", nil).want(http.StatusOK).decode(&none)
	if len(none.Branches) != 0 || none.Branches == nil || none.Next != "" {
		t.Errorf("ephemeral branches are %+v", none)
	}
	c.call(c.door.Branches, http.MethodGet, "/?ephemeral=yes", nil).refused(http.StatusBadRequest, "ephemeral")
	c.call(c.door.Branches, http.MethodGet, "/?cursor=bogus", nil).refused(http.StatusBadRequest, "cursor")
	c.as("nope").call(c.door.Branches, http.MethodGet, "/", nil).refused(http.StatusNotFound, "nope")
}

func TestCommits(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	type page struct {
		Commits []struct {
			SHA        string
			ParentSHAs []string `json:"parent_shas"`
			Message    string
			AuthorName string `json:"author_name"`
			Committer  string `json:"committer_email"`
			Date       string
		}
		Next    string `json:"next_cursor"`
		HasMore *bool  `json:"has_more"`
	}
	var first, second page
	c.call(c.door.Commits, http.MethodGet, "/?limit=2", nil).want(http.StatusOK).decode(&first)
	c.commit("main", "later", "pushed between two pages\n")
	c.call(c.door.Commits, http.MethodGet, "/?limit=2&cursor="+first.Next, nil).want(http.StatusOK).decode(&second)
	var ids []string
	for _, commit := range append(first.Commits, second.Commits...) {
		ids = append(ids, commit.SHA)
	}
	if want := []string{done[2].Commit.SHA, done[1].Commit.SHA, done[0].Commit.SHA}; !slices.Equal(ids, want) {
		t.Errorf("listed %v, want %v", ids, want)
	}
	root := second.Commits[0]
	if root.ParentSHAs == nil || len(root.ParentSHAs) != 0 || root.Message != "m" || root.AuthorName != "A" ||
		root.Committer != "a@example.com" {
		t.Errorf("the root is told as %+v", root)
	}
	if !strings.HasSuffix(root.Date, "Z") {
		t.Errorf("date %q is not UTC", root.Date)
	}
	if !*first.HasMore || *second.HasMore || second.Next != "" {
		t.Errorf("has_more is %v, then %v with cursor %q", *first.HasMore, *second.HasMore, second.Next)
	}
	c.call(c.door.Commits, http.MethodGet, "/?branch=nope", nil).refused(http.StatusNotFound, "nope")
	c.call(c.door.Commits, http.MethodGet, "/?cursor=bogus", nil).refused(http.StatusBadRequest, "cursor")
	c.call(c.door.Commits, http.MethodGet, "/?branch=main&ephemeral=true", nil).refused(http.StatusNotFound, "main")
}

func TestCommitsOfPath(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	type page struct {
		Commits []struct{ SHA string }
		Next    string `json:"next_cursor"`
	}
	list := func(query string) (shas []string, next string) {
		t.Helper()
		var p page
		c.call(c.door.Commits, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
		for _, commit := range p.Commits {
			shas = append(shas, commit.SHA)
		}
		return shas, p.Next
	}
	first, second, third := done[0].Commit.SHA, done[1].Commit.SHA, done[2].Commit.SHA
	for query, want := range map[string][]string{
		"path=README.md":   {third, first},
		"path=lib":         {second},
		"path=/lib/":       {second},
		"path=lib/a.go":    {second},
		"path=lib/nope.go": nil,
		"path=":            {third, second, first},
	} {
		if got, next := list(query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%s: %v and cursor %q, want %v", query, got, next, want)
		}
	}
	got, next := list("path=README.md&limit=1")
	if !slices.Equal(got, []string{third}) || next == "" {
		t.Fatalf("first page is %v with cursor %q", got, next)
	}
	c.commit("main", "README.md", "pushed between two pages\n")
	if got, next := list("path=README.md&limit=1&cursor=" + next); !slices.Equal(got, []string{first}) || next != "" {
		t.Errorf("second page is %v with cursor %q, want %s", got, next, first)
	}
	c.call(c.door.Commits, http.MethodGet, "/?path=lib&cursor="+next, nil).refused(http.StatusBadRequest, "cursor")
	c.call(c.door.Commits, http.MethodGet, "/?path=README.mx&cursor="+next, nil).refused(http.StatusBadRequest, "cursor")
	c.call(c.door.Commits, http.MethodGet, "/?cursor="+next, nil).refused(http.StatusBadRequest, "cursor")
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	type page struct {
		Paths   []string
		Ref     string
		Entries []struct{ Path, Type, Mode string }
		Next    string `json:"next_cursor"`
		HasMore *bool  `json:"has_more"`
	}
	list := func(query string) page {
		var p page
		c.call(c.door.Files, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
		return p
	}
	entries := func(p page) string {
		var all []string
		for _, e := range p.Entries {
			all = append(all, e.Mode+" "+e.Type+" "+e.Path)
		}
		return strings.Join(all, ", ")
	}
	tests := map[string]struct{ query, paths, entries, ref string }{
		"default": {"", "README.md lib/a.go", "100644 blob README.md, 040000 tree lib, 100644 blob lib/a.go", "main"},
		"branch": {
			"ref=dev", "README.md lib/a.go lib/b.go",
			"100644 blob README.md, 040000 tree lib, 100644 blob lib/a.go, 100644 blob lib/b.go", "dev",
		},
		"full ref": {
			"ref=refs/heads/main", "README.md lib/a.go", "100644 blob README.md, 040000 tree lib, 100644 blob lib/a.go",
			"refs/heads/main",
		},
		"first commit": {"ref=" + done[0].Commit.SHA, "README.md", "100644 blob README.md", done[0].Commit.SHA},
		"short id":     {"ref=" + done[0].Commit.SHA[:9], "README.md", "100644 blob README.md", done[0].Commit.SHA[:9]},
		"flat":         {"recursive=false", "README.md", "100644 blob README.md, 040000 tree lib", "main"},
		"folder":       {"path=lib&ref=dev", "lib/a.go lib/b.go", "100644 blob lib/a.go, 100644 blob lib/b.go", "dev"},
		"file":         {"path=lib/a.go", "lib/a.go", "100644 blob lib/a.go", "main"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := list(test.query)
			if got := strings.Join(p.Paths, " "); got != test.paths || entries(p) != test.entries || p.Ref != test.ref {
				t.Errorf("got paths %q, entries %q, ref %q", got, entries(p), p.Ref)
			}
			if p.HasMore != nil {
				t.Error("a listing that is not paged has has_more")
			}
		})
	}
	t.Run("pages", func(t *testing.T) {
		var walked []string
		query := "limit=1&ref=dev"
		for range 10 {
			p := list(query)
			for _, e := range p.Entries {
				walked = append(walked, e.Path)
			}
			if !*p.HasMore {
				break
			}
			query = "limit=1&ref=dev&cursor=" + p.Next
			if len(walked) == 2 {
				c.commit("dev", "lib/a.go/x", "the folder changes between pages")
			}
		}
		if got := strings.Join(walked, " "); got != "README.md lib lib/a.go lib/b.go" {
			t.Errorf("pages hold %q", got)
		}
	})
	c.call(c.door.Files, http.MethodGet, "/?ref=nope", nil).refused(http.StatusNotFound, "nope")
	c.call(c.door.Files, http.MethodGet, "/?path=nope", nil).refused(http.StatusNotFound, "nope")
	c.call(c.door.Files, http.MethodGet, "/?ref="+strings.Repeat("0", 40), nil).refused(http.StatusNotFound, "000")
	c.call(c.door.Files, http.MethodGet, "/?limit=1&cursor=Zm9v", nil).refused(http.StatusBadRequest, "cursor")
	empty := c.as("empty")
	empty.create("").want(http.StatusCreated)
	empty.call(c.door.Files, http.MethodGet, "/", nil).refused(http.StatusNotFound, "main")
}

func TestMinSequence(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	c.call(c.door.Branches, http.MethodGet, "/", nil, "X-Min-Sequence", "5").want(http.StatusOK)
	c.call(c.door.Branches, http.MethodGet, "/", nil, "X-Min-Sequence", "soon").refused(http.StatusBadRequest,
		"X-Min-Sequence")
}

// TestLargeCommits lists commits with messages that are too large for a page in memory: they go out
// in pieces, one after the other.
func TestLargeCommits(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	messages := []string{}
	for i := range 4 {
		message := fmt.Sprintf("%d %s", i, strings.Repeat("long ", 60_000))
		p := newPack(fmt.Sprintf(`"target_branch":"main","commit_message":%q,%s,"files":[{"path":"x","content_id":"1"}]`,
			message, author))
		c.commitPack(p.chunk("1", fmt.Sprint(i), true)).want(http.StatusCreated)
		messages = append(messages, message)
	}
	var listed struct {
		Commits []struct{ SHA, Message string }
		HasMore bool `json:"has_more"`
	}
	got := c.call(c.door.Commits, http.MethodGet, "/", nil).want(http.StatusOK)
	got.decode(&listed)
	if len(listed.Commits) != len(messages)+3 || listed.HasMore {
		t.Fatalf("%d commits are listed", len(listed.Commits))
	}
	for i, message := range messages {
		if at := len(messages) - 1 - i; listed.Commits[at].Message != message {
			t.Errorf("commit %d has a message of %d bytes", at, len(listed.Commits[at].Message))
		}
	}
	if len(got.Chunks) < 4 {
		t.Errorf("the page went out in %d pieces", len(got.Chunks))
	}
	for _, piece := range got.Chunks {
		if len(piece) > 256<<10 {
			t.Errorf("a piece of %d bytes", len(piece))
		}
	}
	sha := listed.Commits[0].SHA
	var one commitOf
	c.call(c.door.Commit, http.MethodGet, "/?sha="+sha, nil).want(http.StatusOK).decode(&one)
	if one.Commit.Message != messages[3] {
		t.Errorf("alone it has a message of %d bytes", len(one.Commit.Message))
	}
}
