package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// noteWritten is the answer to a change of notes.
type noteWritten struct {
	SHA        string
	TargetRef  string `json:"target_ref"`
	BaseCommit string `json:"base_commit"`
	NewRefSHA  string `json:"new_ref_sha"`
	Error      string
	Result     struct {
		Success         bool
		Status, Message string
	}
}

// addNote posts a note; fields is JSON without braces.
func (c *client) addNote(fields string) answer {
	c.t.Helper()
	return c.call(c.door.AddNote, http.MethodPost, "/api/v1/repos/notes", strings.NewReader("{"+fields+"}"))
}

func (c *client) deleteNote(fields string) answer {
	c.t.Helper()
	return c.call(c.door.DeleteNote, http.MethodDelete, "/api/v1/repos/notes", strings.NewReader("{"+fields+"}"))
}

func (c *client) note(query string) answer {
	c.t.Helper()
	return c.call(c.door.Note, http.MethodGet, "/api/v1/repos/notes?"+query, nil)
}

func TestNotes(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	sha := done[0].Commit.SHA
	for _, space := range []string{"", `,"ephemeral":true`} {
		query := "sha=" + sha
		if space != "" {
			query += "&ephemeral=true"
		}
		for _, ref := range []string{"", "reviews"} {
			fields := fmt.Sprintf(`"sha":%q,"ref":%q%s`, sha, ref, space)
			full, at := "refs/notes/commits", query
			if ref != "" {
				full, at = "refs/notes/reviews", query+"&ref=refs/notes/reviews"
			}
			var first, second, third noteWritten
			c.addNote(fields + `,"note":" good \n"`).want(http.StatusCreated).decode(&first)
			if first.SHA != sha || first.TargetRef != full || first.BaseCommit != "" || !first.Result.Success ||
				first.Result.Status != "ok" {
				t.Errorf("added %+v", first)
			}
			c.addNote(fields + fmt.Sprintf(`,"note":"better","action":"append","expected_ref_sha":%q`, first.NewRefSHA)).
				want(http.StatusCreated).decode(&second)
			var read struct {
				SHA, Note string
				RefSHA    string `json:"ref_sha"`
			}
			c.note(at).want(http.StatusOK).decode(&read)
			if read.SHA != sha || read.Note != " good\n\nbetter" || read.RefSHA != second.NewRefSHA ||
				second.BaseCommit != first.NewRefSHA {
				t.Errorf("read %+v after %+v", read, second)
			}
			c.deleteNote(fields).want(http.StatusOK).decode(&third)
			if third.BaseCommit != second.NewRefSHA || third.NewRefSHA == second.NewRefSHA || !third.Result.Success {
				t.Errorf("deleted %+v", third)
			}
			c.note(at).refused(http.StatusNotFound, "no note")
		}
	}
}

// TestNotesErrors provokes the errors of docs/api.md, "Errors", that are of notes.
func TestNotesErrors(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	sha := done[0].Commit.SHA
	about := fmt.Sprintf(`"sha":%q,"note":"n"`, sha)
	c.addNote(about).want(http.StatusCreated)
	unknown := strings.Repeat("1", 40)
	tests := map[string]struct {
		got    answer
		status int
		says   string
	}{
		"add without sha":  {c.addNote(`"note":"n"`), http.StatusBadRequest, "sha is required"},
		"add, short sha":   {c.addNote(`"sha":"abc","note":"n"`), http.StatusBadRequest, "sha: expected 40"},
		"add without note": {c.addNote(fmt.Sprintf(`"sha":%q`, sha)), http.StatusBadRequest, "note is required"},
		"add blanks": {
			c.addNote(fmt.Sprintf(`"sha":%q,"note":" \n"`, sha)), http.StatusBadRequest, "note is required",
		},
		"add, unknown action":     {c.addNote(about + `,"action":"edit"`), http.StatusBadRequest, "action: expected"},
		"add, wrong type":         {c.addNote(about + `,"author":"me"`), http.StatusBadRequest, `"author"`},
		"add, author without all": {c.addNote(about + `,"author":{"name":"A"}`), http.StatusBadRequest, "author: email"},
		"add, bad expectation":    {c.addNote(about + `,"expected_ref_sha":"x"`), http.StatusBadRequest, "expected_ref_sha"},
		"add, a branch as ref":    {c.addNote(about + `,"ref":"refs/heads/main"`), http.StatusBadRequest, "refs/notes/"},
		"add, bad ref":            {c.addNote(about + `,"ref":"a..b"`), http.StatusBadRequest, "ref:"},
		"add, no such commit":     {c.addNote(fmt.Sprintf(`"sha":%q,"note":"n"`, unknown)), http.StatusNotFound, "not found"},
		"add to a tree": {
			c.addNote(fmt.Sprintf(`"sha":%q,"note":"n"`, done[0].Commit.Tree)), http.StatusNotFound, "not found",
		},
		"delete without sha": {c.deleteNote(``), http.StatusBadRequest, "sha is required"},
		"delete, no note":    {c.deleteNote(fmt.Sprintf(`"sha":%q`, unknown)), http.StatusNotFound, "no note"},
		"read without sha":   {c.note(""), http.StatusBadRequest, "sha is required"},
		"read, no note":      {c.note("sha=" + unknown), http.StatusNotFound, "no note"},
		"read, another ref":  {c.note("sha=" + sha + "&ref=reviews"), http.StatusNotFound, "no note"},
		"read, ephemeral":    {c.note("sha=" + sha + "&ephemeral=maybe"), http.StatusBadRequest, "ephemeral"},
		"no such repository": {c.as("other").note("sha=" + sha), http.StatusNotFound, "not found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.got.t = t
			test.got.refused(test.status, test.says)
		})
	}
}

// TestNotesConflicts checks the fields of a conflict beside its message.
func TestNotesConflicts(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	about := fmt.Sprintf(`"sha":%q,"note":"n"`, done[0].Commit.SHA)
	var first noteWritten
	c.addNote(about).want(http.StatusCreated).decode(&first)
	elsewhere := fmt.Sprintf(`,"expected_ref_sha":%q`, done[0].Commit.SHA)
	for name, test := range map[string]struct {
		got          answer
		status, base string
	}{
		"exists":       {c.addNote(about), "conflict", ""},
		"moved":        {c.addNote(about + `,"action":"append"` + elsewhere), "precondition_failed", first.NewRefSHA},
		"delete moved": {c.deleteNote(about + elsewhere), "precondition_failed", first.NewRefSHA},
	} {
		var told noteWritten
		test.got.want(http.StatusConflict).decode(&told)
		if told.Error == "" || told.Result.Message != told.Error || told.Result.Success ||
			told.Result.Status != test.status || told.BaseCommit != test.base {
			t.Errorf("%s: %+v", name, told)
		}
	}
}

func TestNotesRefs(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	for _, ref := range []string{"", "reviews/a", "reviews/b", "reviews/c", "builds"} {
		c.addNote(fmt.Sprintf(`"sha":%q,"note":"n","ref":%q`, done[0].Commit.SHA, ref)).want(http.StatusCreated)
	}
	c.addNote(fmt.Sprintf(`"sha":%q,"note":"n","ref":"apart","ephemeral":true`, done[0].Commit.SHA)).
		want(http.StatusCreated)
	list := func(query string) (names []string, prefix string) {
		for cursor, more := "", true; more; {
			var page struct {
				Refs       []struct{ Cursor, Ref, SHA string }
				Prefix     string
				NextCursor string `json:"next_cursor"`
				HasMore    bool   `json:"has_more"`
			}
			c.call(c.door.NotesRefs, http.MethodGet, "/?limit=2&"+query+"&cursor="+cursor, nil).want(http.StatusOK).decode(&page)
			for _, ref := range page.Refs {
				if len(ref.SHA) != 40 || ref.Cursor == "" {
					t.Errorf("listed %+v", ref)
				}
				names = append(names, strings.TrimPrefix(ref.Ref, "refs/notes/"))
			}
			prefix, cursor, more = page.Prefix, page.NextCursor, page.HasMore
			if more != (cursor != "") {
				t.Fatalf("has_more is %v beside next_cursor %q", more, cursor)
			}
		}
		return names, prefix
	}
	for query, want := range map[string]string{
		"":                          "[builds commits reviews/a reviews/b reviews/c] refs/notes/",
		"prefix=reviews/":           "[reviews/a reviews/b reviews/c] refs/notes/reviews/",
		"prefix=refs/notes/reviews": "[reviews/a reviews/b reviews/c] refs/notes/reviews",
		"prefix=notes/b":            "[builds] refs/notes/b",
		"prefix=none":               "[] refs/notes/none",
		"ephemeral=true":            "[apart] refs/notes/",
	} {
		names, prefix := list(query)
		if got := fmt.Sprint(names, " ", prefix); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	c.call(c.door.NotesRefs, http.MethodGet, "/?prefix=refs/heads/", nil).refused(http.StatusBadRequest, "prefix")
	c.call(c.door.NotesRefs, http.MethodGet, "/?cursor=xx", nil).refused(http.StatusBadRequest, "cursor")
}

// TestCustomNotesRefsOff looks at an organization that switched them off.
func TestCustomNotesRefsOff(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host, OrgConfig: func(org string) (*auth.OrgConfig, bool) {
		return &auth.OrgConfig{}, org == enginetest.Org
	}})
	c.create("{}").want(http.StatusCreated)
	about := fmt.Sprintf(`"sha":%q,"note":"n"`, c.commit("main", "a", "1").Commit.SHA)
	const says = "custom notes refs are not enabled"
	c.addNote(about+`,"ref":"reviews"`).refused(http.StatusBadRequest, says)
	c.deleteNote(about+`,"ref":"reviews"`).refused(http.StatusBadRequest, says)
	c.note("ref=reviews&"+"sha="+strings.Repeat("1", 40)).refused(http.StatusBadRequest, says)
	c.call(c.door.NotesRefs, http.MethodGet, "/", nil).refused(http.StatusBadRequest, says)
	c.addNote(about + `,"ref":"refs/notes/commits"`).want(http.StatusCreated)
}
