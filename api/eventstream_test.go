package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// listener is a stream of events over a connection of its own.
type listener struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
	last  string // the id of the last event
}

// listen opens a stream behind an event.
func listen(t *testing.T, f *fixture, path, token, last string) *listener {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.address+path, nil)
	must(err)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", token)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	must(err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: status %d, %v", path, response.StatusCode, response.Header)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &listener{t: t, body: response.Body, lines: bufio.NewScanner(response.Body), last: last}
}

// next returns the next event in short, and "the end" when the stream has ended well.
func (l *listener) next() string {
	l.t.Helper()
	id := ""
	for l.lines.Scan() {
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			l.last = id
			var event struct {
				RepoName string `json:"repo_name"`
				Sequence int
				Ref      string
			}
			must(json.Unmarshal([]byte(value), &event))
			return fmt.Sprint(event.RepoName, " ", event.Sequence, " ", event.Ref)
		}
	}
	if err := l.lines.Err(); err != nil {
		l.t.Fatal(err)
	}
	return "the end"
}

// Clients hear of each commit over a connection that stays open, go on after a cut with the id of
// the last event, and see a clean end when the server stops.
func TestEventStreams(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	w := newWritableOn(t, host)
	commit := func(repo, name string) {
		t.Helper()
		w.do(call{"POST /api/v1/repos/commit-pack", repo, commitLines("", name, name)}, nil).done(t)
	}
	w.do(call{"POST /api/v1/repos", "s", ``}, nil).done(t)
	one := listen(t, w.fixture, "/api/v1/repos/events", token("r", "git:read"), "")
	all := listen(t, w.fixture, "/api/v1/events", token("org", "org:read"), "")
	expect := func(l *listener, want ...string) {
		t.Helper()
		for _, each := range want {
			if got := l.next(); got != each {
				t.Errorf("heard %q, want %q", got, each)
			}
		}
	}
	expect(one, " 2 refs/heads/main")
	expect(all, "r 1 ", "r 2 refs/heads/main", "s 1 ")
	commit("s", "a")
	expect(all, "s 2 refs/heads/main")
	commit("r", "b")
	expect(all, "r 3 refs/heads/main")
	expect(one, " 3 refs/heads/main")
	must(one.body.Close())
	must(all.body.Close())
	commit("r", "c")
	commit("s", "d")
	one = listen(t, w.fixture, "/api/v1/repos/events?after=0", token("r", "git:read"), one.last)
	all = listen(t, w.fixture, "/api/v1/events", token("org", "org:read"), all.last)
	expect(one, " 4 refs/heads/main")
	expect(all, "r 4 refs/heads/main", "s 3 refs/heads/main")
	if _, err := host.DeleteRepository(t.Context(), engine.Actor{Org: enginetest.Org}, "s"); err != nil {
		t.Fatal(err)
	}
	expect(all, "s 4 ")
	must(w.Shutdown(context.WithoutCancel(t.Context())))
	expect(one, "the end")
	expect(all, "the end")
}

// An organization has as many streams open as its memory has room for.
func TestEventStreamsHaveALimit(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	enginetest.Create(t, host, "r")
	f := serve(t, nil, func(c *api.Config) {
		c.Routes, c.Refuse = api.Routes(rest.New(rest.Config{Host: host})), rest.Refuse
		c.Limits.MemoryBytes, c.Limits.QueueWait = 512<<10, time.Millisecond
	})
	open := func() int {
		t.Helper()
		c := f.dial(t)
		c.send("GET /api/v1/events HTTP/1.1\nHost: x\nAccept: text/event-stream\nAuthorization: " +
			token("org", "org:read") + "\n\n")
		line, err := bufio.NewReader(c.Conn).ReadString('\n')
		must(err)
		_, status, _ := strings.Cut(line, " ")
		number, err := strconv.Atoi(status[:3])
		must(err)
		return number
	}
	var statuses []int
	for range 5 {
		statuses = append(statuses, open())
	}
	// A tenant has three quarters of what the organization has, which is half.
	if want := []int{200, 200, 200, 503, 503}; !slices.Equal(statuses, want) {
		t.Errorf("the statuses are %v, want %v", statuses, want)
	}
}
