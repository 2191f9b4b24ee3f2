package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/refs"
)

type tagPage struct {
	Tags []struct{ Cursor, Name, SHA string }
	Next *string `json:"next_cursor"`
	More *bool   `json:"has_more"`
}

func (c *client) tags(query string) tagPage {
	c.t.Helper()
	var page tagPage
	c.call(c.door.Tags, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&page)
	if page.Tags == nil || page.More == nil || *page.More != (page.Next != nil) {
		c.t.Fatalf("page %+v: tags is an array, has_more is there always and agrees with next_cursor", page)
	}
	return page
}

func (c *client) tag(name, target string) answer {
	c.t.Helper()
	return c.post(c.door.CreateTag, fmt.Sprintf(`{"name":%q,"target":%q}`, name, target))
}

func TestTags(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	if page := c.tags(""); len(page.Tags) != 0 || *page.More {
		t.Errorf("a repository without tags lists %+v", page)
	}
	want := []string{"a", "b/1", "b/2", "v1.0", "v1.1"}
	for i := range want { // created in another order than they are listed in
		name, target := want[len(want)-1-i], done[i%4].Commit.SHA
		got := c.tag(name, target).want(http.StatusCreated)
		var created struct{ Name, SHA, Message string }
		got.decode(&created)
		if created.Name != name || created.SHA != target || created.Message == "" || got.Header.Get("X-Repo-Sequence") == "" {
			t.Errorf("created %s", got.Body)
		}
	}
	c.post(c.door.CreateTag, `{"name":"spike","target":"`+done[0].Commit.SHA+`","ephemeral":true}`).
		want(http.StatusCreated)
	var names []string
	for query := "limit=2"; query != ""; {
		page := c.tags(query)
		query = ""
		for _, tag := range page.Tags {
			names = append(names, tag.Name)
		}
		if page.Next != nil {
			if *page.Next != page.Tags[len(page.Tags)-1].Cursor {
				t.Errorf("next_cursor of %+v is not that of its last tag", page)
			}
			query = "limit=2&cursor=" + *page.Next
			c.tag(fmt.Sprintf("a%d", len(names)), done[0].Commit.SHA).want(http.StatusCreated) // behind the cursor
		}
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("listed %v, want %v", names, want)
	}
	if page := c.tags("ephemeral=true"); len(page.Tags) != 1 || page.Tags[0].Name != "spike" {
		t.Errorf("ephemeral tags are %+v", page)
	}

	got := c.remove(c.door.DeleteTag, `{"name":"b/1"}`).want(http.StatusOK)
	var deleted struct{ Name, Message string }
	got.decode(&deleted)
	if deleted.Name != "b/1" || deleted.Message == "" || got.Header.Get("X-Repo-Sequence") == "" {
		t.Errorf("deleted %s", got.Body)
	}
	c.tag("b/1/c", done[0].Commit.SHA).want(http.StatusCreated)
	for _, bad := range []string{"limit=0", "limit=x", "cursor=@@", "cursor=Yg", "ephemeral=maybe"} {
		c.call(c.door.Tags, http.MethodGet, "/?"+bad, nil).refused(http.StatusBadRequest, bad[:5])
	}
	c.as("nope").call(c.door.Tags, http.MethodGet, "/", nil).refused(http.StatusNotFound, "nope")
}

// TestTagsRefuse checks the rows of the specification's Errors table that are the handlers', and
// other faults.
func TestTagsRefuse(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	commit := done[0].Commit.SHA
	c.tag("v1", commit).want(http.StatusCreated)
	target := `,"target":"` + commit + `"`
	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"no body":             {``, 400, "JSON object"},
		"no name":             {`{"target":"` + commit + `"}`, 400, "name is required"},
		"no target":           {`{"name":"x"}`, 400, "target is required"},
		"wrong type":          {`{"name":"x","target":7}`, 400, "target"},
		"name with refs/":     {`{"name":"refs/tags/x"` + target + `}`, 400, "refs/"},
		"bad name":            {`{"name":"a..b"` + target + `}`, 400, "name"},
		"name with a space":   {`{"name":"a b"` + target + `}`, 400, "name"},
		"name like an id":     {`{"name":"` + commit + `"` + target + `}`, 400, "object ID"},
		"short target":        {`{"name":"x","target":"` + commit[:12] + `"}`, 400, "target"},
		"upper-case target":   {`{"name":"x","target":"` + strings.Repeat("A", 40) + `"}`, 400, "target"},
		"a branch for target": {`{"name":"x","target":"main"}`, 400, "target"},
		"unknown commit":      {`{"name":"x","target":"` + strings.Repeat("1", 40) + `"}`, 404, "1111"},
		"no commit":           {`{"name":"x","target":"` + done[0].Commit.Tree + `"}`, 404, done[0].Commit.Tree},
		"exists":              {`{"name":"v1"` + target + `}`, 409, "already exists"},
		"below a tag":         {`{"name":"v1/x"` + target + `}`, 409, "refs/tags/v1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			c.post(c.door.CreateTag, test.body).refused(test.status, test.says)
		})
	}
	c.as("nope").tag("x", commit).refused(http.StatusNotFound, "nope")
	c.bound("refs/tags/*", refs.NoPush).tag("x", commit).refused(http.StatusForbidden, "denied by policy")
	c.bound("refs/tags/*", refs.NoForcePush).remove(c.door.DeleteTag, `{"name":"v1"}`).refused(http.StatusForbidden,
		"denied by policy")
	c.remove(c.door.DeleteTag, ``).refused(http.StatusBadRequest, "JSON object")
	c.remove(c.door.DeleteTag, `{}`).refused(http.StatusBadRequest, "name is required")
	c.remove(c.door.DeleteTag, `{"name":"refs/tags/v1"}`).refused(http.StatusBadRequest, "refs/")
	c.remove(c.door.DeleteTag, `{"name":"x"}`).refused(http.StatusNotFound, "x")
	c.as("nope").remove(c.door.DeleteTag, `{"name":"v1"}`).refused(http.StatusNotFound, "nope")
	if page := c.tags(""); len(page.Tags) != 1 {
		t.Errorf("after refusals the tags are %+v", page)
	}
}
