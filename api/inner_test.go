package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// TestMCPTruncation reads more than a tool returns: it is told, and can be read on.
func TestMCPTruncation(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	s := w.speak(t, token("r", "git:write"), "")
	large := "x" + strings.Repeat("ä", 700_000) // the limit lies within a letter
	w.do(call{"POST /api/v1/repos/commit-pack", "r", commitLines("", "large", large)}, nil).done(t)
	first := use(t, s, "read_file", map[string]any{"path": "large"})
	var text, note string
	if len(first.Content) == 2 {
		text, note = first.Content[0].(*mcp.TextContent).Text, first.Content[1].(*mcp.TextContent).Text
	}
	const end = 1<<20 - 1
	if text != large[:end] || !strings.Contains(note, fmt.Sprintf("up to byte %d of %d", end, len(large))) {
		t.Fatalf("%d bytes, %s", len(text), note)
	}
	if rest := use(t, s, "read_file", map[string]any{"path": "large", "offset": end}); said(rest) != large[end:]+"\n" {
		t.Errorf("%d bytes more, want %d", len(said(rest))-1, len(large)-end)
	}
	both := said(use(t, s, "read_files", map[string]any{"paths": []string{"f", "large", "f"}}))
	if !strings.Contains(both, `the part of "large"`) || !strings.Contains(both, `1 files were not read, from "f" on`) ||
		len(both) > 1<<20+1000 {
		t.Errorf("%d bytes: ...%s", len(both), both[max(0, len(both)-300):])
	}
	found := use(t, s, "grep", map[string]any{"pattern": "x"})
	if text := said(found); found.IsError || found.StructuredContent != nil || len(text) > 1<<20+500 ||
		!strings.Contains(text, "The answer was cut here") || !strings.Contains(text, "next_cursor") {
		t.Errorf("%d bytes, structured %t", len(text), found.StructuredContent != nil)
	}
}

// TestMCPWithin looks at what a call of the API has within a request: the ID of the request, a
// context that ends with it, a deadline, memory and slots that are given back, and its answer
// instead of a panic.
func TestMCPWithin(t *testing.T) {
	t.Parallel()
	began, ended := make(chan string, 1), make(chan error, 1)
	const v = "/api/v1/repos"
	routes := map[string]api.Handler{
		"GET " + v + "/branches": func(x exchange.Exchange, _ *auth.Grant) error {
			began <- x.RequestID()
			<-x.Context().Done()
			ended <- context.Cause(x.Context())
			return context.Cause(x.Context())
		},
		"GET " + v + "/tags": func(exchange.Exchange, *auth.Grant) error { panic("a bug") },
		"GET " + v + "/commits": func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(http.StatusOK, "application/json", func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, `{"half":`)
				return fmt.Errorf("damage")
			})
			return nil
		},
		"GET " + v + "/diff": func(x exchange.Exchange, _ *auth.Grant) error {
			<-x.Context().Done()
			return x.Context().Err()
		},
		"GET " + v + "/commit": func(x exchange.Exchange, _ *auth.Grant) error {
			if x.Header("Authorization") != "" || x.Header("User-Agent") != "" || x.BodyLength() != 0 {
				return fmt.Errorf("the headers are those of the request around it")
			}
			release, err := x.Slot(x.Context())
			if err != nil {
				return err
			}
			x.Respond(http.StatusOK, "application/json", []byte(`{"method":"`+x.Method()+`","path":"`+x.Path()+`"}`))
			release()
			_, err = x.Slot(x.Context()) // which the end of the request gives back
			return err
		},
	}
	f := serve(t, routes, func(c *api.Config) {
		c.Limits.AnswerWait, c.Limits.HeavySlots = 10*time.Millisecond, 2
		for i := range c.Routes {
			c.Routes[i].CostsBytes = 1 << 20
			c.Routes[i].Computes = strings.HasSuffix(c.Routes[i].Path, "/diff")
		}
	})
	bearer := token("r", "git:read")
	s := f.speak(t, bearer, "2025-11-25")
	sha := map[string]any{"sha": "x"}
	for range 5 {
		if r := use(t, s, "show_commit", sha); said(r) != `{"method":"GET","path":"/api/v1/repos/commit"}`+"\n" {
			t.Errorf("a call: %s", said(r))
		}
	}
	for tool, want := range map[string]string{
		"list_tags": "500 Internal Server Error", "log": "500 Internal Server Error", "diff": "504 Gateway Timeout",
	} {
		arguments := map[string]any{}
		if tool == "diff" {
			arguments = sha
		}
		if r := use(t, s, tool, arguments); !r.IsError || !strings.Contains(said(r), want) || strings.Contains(said(r), "half") {
			t.Errorf("%s: %s, want %s", tool, said(r), want)
		}
	}
	c := f.dial(t)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_branches"}}`
	c.send("POST /mcp HTTP/1.1\nHost: x\nAuthorization: " + bearer + "\nContent-Type: application/json\n" +
		fmt.Sprintf("Content-Length: %d\n\n", len(body)) + body)
	id := <-began
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the call went on without its client")
	}
	f.check(t, id)
}

// check waits until a request was logged, and looks at the lines with its ID.
func (f *fixture) check(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(f.log.String()) {
		if strings.Contains(line, "msg=request ") && strings.Contains(line, "request_id="+id+" ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], "within=/mcp") || !strings.Contains(lines[1], "path=/mcp") ||
		!strings.Contains(lines[1], "status=499") {
		t.Errorf("logged: %q", lines)
	}
}

// A write through a tool is refused while nothing can be written, and when the token has a policy
// that is not enforced.
func TestMCPWritable(t *testing.T) {
	t.Parallel()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{})
	t.Cleanup(shut)
	var refusing atomic.Bool
	w := newWritableOn(t, host, func(c *api.Config) {
		c.Writable = func() error {
			if refusing.Load() {
				return &exchange.Error{Status: http.StatusInsufficientStorage, Message: "the disk is full"}
			}
			return nil
		}
	})
	refusing.Store(true)
	s := w.speak(t, token("r", "git:write"), "")
	r := use(t, s, "create_tag", map[string]any{"name": "v", "target": w.head})
	if !r.IsError || !strings.Contains(said(r), "the disk is full") {
		t.Errorf("a write: %s", said(r))
	}
	if r := use(t, s, "log", nil); r.IsError {
		t.Errorf("a read: %s", said(r))
	}
	for _, counted := range []string{
		`http_requests_total{method="POST",route="/api/v1/repos/tags",status="507"}`,
		`http_requests_total{method="GET",route="/api/v1/repos/commits",status="200"}`,
	} {
		if got := w.metric(t, counted); got != "1" {
			t.Errorf("%s is %s", counted, got)
		}
	}
}
