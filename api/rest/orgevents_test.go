package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// orgEventsPage is the answer to GET /events.
type orgEventsPage struct {
	Events []struct {
		Cursor, Event             string
		RepoID                    string `json:"repo_id"`
		RepoName                  string `json:"repo_name"`
		Sequence                  uint64
		Index                     *uint64
		Ref, Before, After, Actor string
		Time                      time.Time
		Cause                     string
	}
	NextCursor *string `json:"next_cursor"`
	HasMore    *bool   `json:"has_more"`
}

func (p *orgEventsPage) lines() []string {
	var lines []string
	for _, e := range p.Events {
		line := fmt.Sprintf("%s %s %d %s", e.Event, e.RepoName, e.Sequence, e.Cause)
		if e.Index != nil {
			line += fmt.Sprintf(" %d %s %.4s>%.4s", *e.Index, e.Ref, e.Before, e.After)
		}
		lines = append(lines, line)
	}
	return lines
}

func (c *client) orgEvents(query string) *orgEventsPage {
	c.t.Helper()
	var p orgEventsPage
	c.call(c.door.OrgEvents, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return &p
}

func TestOrgEvents(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	if p := c.orgEvents(""); len(p.Events) != 0 || *p.NextCursor != "" || *p.HasMore {
		t.Errorf("before the first event: %+v", p)
	}
	other, gone := c.as("other"), c.as("gone")
	for _, each := range []*client{c, other, gone} {
		each.create("").want(http.StatusCreated)
	}
	a := c.commit("main", "a", "1").Commit.SHA
	gone.commit("main", "a", "1")
	b := other.commit("main", "b", "2").Commit.SHA
	gone.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK)
	d := c.commit("main", "d", "3").Commit.SHA
	want := []string{
		"create r 1 create", "create other 1 create",
		fmt.Sprintf("ref r 2 commit-pack 0 refs/heads/main 0000>%.4s", a),
		fmt.Sprintf("ref other 2 commit-pack 0 refs/heads/main 0000>%.4s", b),
		"delete gone 3 delete",
		fmt.Sprintf("ref r 3 commit-pack 0 refs/heads/main %.4s>%.4s", a, d),
	}
	all := c.orgEvents("")
	if got := all.lines(); !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
	for i, e := range all.Events {
		if p := c.orgEvents("limit=100&cursor=" + e.Cursor); !slices.Equal(p.lines(), want[i+1:]) {
			t.Errorf("after event %d: %q", i, p.lines())
		}
		if e.Actor != "tester" || e.Time.IsZero() || e.Time.Location() != time.UTC || len(e.RepoID) != 36 {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	var paged []string
	for cursor, more := "", true; more; {
		p := c.orgEvents("limit=1&cursor=" + cursor)
		paged = append(paged, p.lines()...)
		cursor, more = *p.NextCursor, *p.HasMore
	}
	if !slices.Equal(paged, want) {
		t.Errorf("in pages of one: %q", paged)
	}
	if p := c.orgEvents("cursor=latest"); len(p.Events) != 0 || *p.NextCursor != *all.NextCursor {
		t.Errorf("at the end: %q, %s", p.lines(), *p.NextCursor)
	}
	cursor := all.Events[2].Cursor
	for query, says := range map[string]string{
		"cursor=x": "cursor", "cursor=" + cursor[1:]: "cursor", "cursor=" + cursor + "A": "cursor", "cursor=LATEST": "cursor",
		"limit=0": "limit", "wait=x": "wait",
	} {
		c.call(c.door.OrgEvents, http.MethodGet, "/?"+query, nil).refused(http.StatusBadRequest, says)
	}
	elsewhere := newClient(t)
	elsewhere.create("").want(http.StatusCreated)
	elsewhere.call(elsewhere.door.OrgEvents, http.MethodGet, "/?cursor="+cursor, nil).
		refused(http.StatusGone, "another store")
}

// A waiting request gets the next event of any repository, and ends with the server.
func TestOrgEventsWait(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	query := "wait=60&cursor=" + *c.orgEvents("").NextCursor
	serving, stop := context.WithCancel(t.Context())
	stopped := c.wait(t.Context(), serving, c.door.OrgEvents, query)
	stop()
	if h := <-stopped; h.err != nil || !strings.Contains(string(h.Body), `"events":[]`) {
		t.Errorf("the server stops: %v, %s", h.err, h.Body)
	}
	present, leave := context.WithCancel(t.Context())
	left := c.wait(present, t.Context(), c.door.OrgEvents, query)
	leave()
	if h := <-left; !errors.Is(h.err, context.Canceled) {
		t.Errorf("the client has gone: %v", h.err)
	}
	told := c.wait(t.Context(), t.Context(), c.door.OrgEvents, query)
	c.as("new").create("").want(http.StatusCreated)
	var p orgEventsPage
	(<-told).want(http.StatusOK).decode(&p)
	if got := p.lines(); !slices.Equal(got, []string{"create new 1 create"}) {
		t.Errorf("told %q", got)
	}
}

// Events that are no longer kept are refused with the cursor to go on from.
func TestOrgEventsTrimmed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Now: func() time.Time { return now }})
	t.Cleanup(shut)
	c := &client{t: t, door: rest.New(rest.Config{Host: host}), grant: &auth.Grant{
		Org: enginetest.Org, Repo: "r", Scopes: auth.GitRead | auth.GitWrite | auth.OrgRead,
	}}
	c.create("").want(http.StatusCreated)
	c.commit("main", "a", "1")
	all := c.orgEvents("")
	now = now.AddDate(0, 0, 91)
	c.commit("main", "a", "2")
	for done, err := range host.Maintain(t.Context(), engine.MaintainOptions{}) {
		if err := errors.Join(err, done.Err); err != nil {
			t.Fatal(err)
		}
	}
	var gone struct{ Error, Oldest string }
	c.call(c.door.OrgEvents, http.MethodGet, "/?cursor="+all.Events[0].Cursor, nil).want(http.StatusGone).decode(&gone)
	if gone.Oldest != all.Events[1].Cursor || gone.Error == "" {
		t.Errorf("%+v", gone)
	}
	for _, query := range []string{"", "cursor=" + gone.Oldest} {
		if p := c.orgEvents(query); len(p.Events) != 1 || p.Events[0].Sequence != 3 {
			t.Errorf("%s: %q", query, p.lines())
		}
	}
}
