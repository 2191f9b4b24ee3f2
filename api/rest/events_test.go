package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// eventsPage is the answer to GET /repos/events.
type eventsPage struct {
	Events []struct {
		Sequence, Index           uint64
		Ref, Before, After, Actor string
		Time                      time.Time
		Cause                     string
	}
	NextAfter *uint64 `json:"next_after"`
	HasMore   *bool   `json:"has_more"`
}

func (p *eventsPage) String() string {
	var all []string
	for _, e := range p.Events {
		all = append(all, fmt.Sprintf("%d.%d %s %.4s>%.4s", e.Sequence, e.Index, e.Ref, e.Before, e.After))
	}
	return fmt.Sprintf("%s; next %d, more %t", strings.Join(all, ", "), *p.NextAfter, *p.HasMore)
}

func (c *client) events(query string) *eventsPage {
	c.t.Helper()
	var p eventsPage
	c.call(c.door.Events, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return &p
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	a, b, d, e := done[0].Commit.SHA, done[1].Commit.SHA, done[2].Commit.SHA, done[3].Commit.SHA
	const main = "refs/heads/main"
	all := []string{
		fmt.Sprintf("2.0 %s 0000>%.4s", main, a), fmt.Sprintf("3.0 %s %.4s>%.4s", main, a, b),
		fmt.Sprintf("4.0 %s %.4s>%.4s", main, b, d), fmt.Sprintf("5.0 refs/heads/dev 0000>%.4s", e),
	}
	for query, want := range map[string]string{
		"":                  strings.Join(all, ", ") + "; next 5, more false",
		"after=0&limit=1":   all[0] + "; next 2, more true",
		"after=2&limit=2":   strings.Join(all[1:3], ", ") + "; next 4, more true",
		"after=4":           all[3] + "; next 5, more false",
		"after=4&wait=60":   all[3] + "; next 5, more false",
		"after=5":           "; next 5, more false",
		"after=5&wait=0":    "; next 5, more false",
		"after=3&limit=999": strings.Join(all[2:], ", ") + "; next 5, more false",
	} {
		if got := c.events(query).String(); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	first := c.events("").Events[0]
	if first.Actor != "tester" || first.Cause != "commit-pack" || first.Time.IsZero() ||
		first.Time.Location() != time.UTC {
		t.Errorf("the first event is %+v", first)
	}
	for query, says := range map[string]string{
		"after=-1": "after", "after=x": "after", "after=6": "journal", "limit=0": "limit", "wait=-1": "wait",
		"wait=1s": "wait",
	} {
		c.call(c.door.Events, http.MethodGet, "/?"+query, nil).refused(http.StatusBadRequest, says)
	}
	c.as("nope").call(c.door.Events, http.MethodGet, "/", nil).refused(http.StatusNotFound, "nope")
}

// heard is the result of a request that waited.
type heard struct {
	answer
	err error
}

// wait makes a request that waits, in a goroutine of its own. serving is the life of the server.
func (c *client) wait(ctx, serving context.Context, h handler, query string) <-chan heard {
	done := make(chan heard, 1)
	go func() {
		x := exchangetest.New(http.MethodGet, "/?"+query, nil)
		x.Ctx, x.ServingCtx = ctx, serving
		err := h(x, c.grant)
		if err != nil {
			rest.Refuse(x, err)
		}
		got, finishErr := x.Finish()
		done <- heard{answer{got, c.t}, errors.Join(err, finishErr)}
	}()
	return done
}

// A waiting request gets the next change, whichever of the two comes first.
func TestEventsWait(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	done := c.wait(t.Context(), t.Context(), c.door.Events, "after=5&wait=60")
	made := c.commit("main", "new", "text")
	var p eventsPage
	(<-done).want(http.StatusOK).decode(&p)
	if len(p.Events) != 1 || p.Events[0].After != made.Commit.SHA || *p.NextAfter != 6 {
		t.Errorf("heard %s", &p)
	}
	if p := c.events("after=6&wait=1"); len(p.Events) != 0 || *p.NextAfter != 6 || *p.HasMore {
		t.Errorf("after the wait: %s", p)
	}
}

// The end of the server, that of the client, and a deletion end the wait.
func TestEventsWaitEnds(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	const query = "after=5&wait=60"
	serving, stop := context.WithCancel(t.Context())
	stopped := c.wait(t.Context(), serving, c.door.Events, query)
	stop()
	if h := <-stopped; h.err != nil || h.Status != http.StatusOK || !strings.Contains(string(h.Body), `"events":[]`) {
		t.Errorf("the server stops: %v, %s", h.err, h.Body)
	}
	present, leave := context.WithCancel(t.Context())
	left := c.wait(present, t.Context(), c.door.Events, query)
	leave()
	if h := <-left; !errors.Is(h.err, context.Canceled) {
		t.Errorf("the client has gone: %v", h.err)
	}
	deleted := c.wait(t.Context(), t.Context(), c.door.Events, query)
	c.call(c.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK)
	if h := <-deleted; !errors.Is(h.err, engine.ErrNotFound) || h.Status != http.StatusNotFound {
		t.Errorf("the repository is gone: %v", h.err)
	}
}

// Events that the journal no longer holds differ from events that have not happened yet.
func TestEventsTrimmed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Now: func() time.Time { return now }})
	t.Cleanup(shut)
	c := &client{t: t, door: rest.New(rest.Config{Host: host}), grant: &auth.Grant{
		Org: enginetest.Org, Repo: "r", Scopes: auth.GitRead | auth.GitWrite,
	}}
	c.create("").want(http.StatusCreated)
	c.commit("main", "a", "1")
	now = now.AddDate(0, 0, 91)
	c.commit("main", "a", "2")
	for done, err := range host.Maintain(t.Context(), engine.MaintainOptions{}) {
		if err := errors.Join(err, done.Err); err != nil {
			t.Fatal(err)
		}
	}
	var gone struct {
		Error  string
		Oldest uint64
	}
	c.call(c.door.Events, http.MethodGet, "/?after=1&wait=60", nil).want(http.StatusGone).decode(&gone)
	if gone.Oldest != 3 || gone.Error == "" {
		t.Errorf("%+v", gone)
	}
	if p := c.events(fmt.Sprintf("after=%d", gone.Oldest-1)); len(p.Events) != 1 || p.Events[0].Sequence != 3 {
		t.Errorf("from the oldest on: %s", p)
	}
}
