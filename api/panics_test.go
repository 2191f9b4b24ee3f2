package api_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
	"packhorse/odb/span"
	"packhorse/pack/object"
)

// trappedServer is a server with both doors over stores with a trap, and the repository own/er.
type trappedServer struct {
	*writable
	host *engine.Host
	trap odbtest.Trap
}

func newTrappedServer(t *testing.T) *trappedServer {
	t.Helper()
	s := &trappedServer{}
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	s.host = enginetest.OpenOver(t, s.trap.Keys(keys), s.trap.Files(files), engine.Config{SecretKey: secretKey})
	t.Cleanup(func() { must(s.host.Close(context.Background())) })
	git := githttp.New(githttp.Config{Host: s.host})
	s.writable = newWritableOn(t, s.host, func(c *api.Config) {
		c.Git = api.Git{Serve: git.Serve, Refuse: githttp.Refuse}
	})
	return s
}

// spring makes a call until it meets no panic any more, first with one in its first call of the
// stores, then in its second one, and so on. It returns the last answer, and how often it met one.
func (s *trappedServer) spring(c call) (got written, met int) {
	s.t.Helper()
	for n := int64(1); ; n++ {
		before := len(s.log.String())
		s.trap.Set(n)
		var whole bool
		got, whole = s.try(c)
		sprung := s.trap.Take()
		if !sprung {
			return got, met
		}
		met++
		told := got.status == http.StatusInternalServerError || git(c) && strings.Contains(string(got.body), "internal error")
		if whole && !told {
			s.t.Errorf("%s, a panic in call %d of the stores: %d: %s", c.route, n, got.status, got.body)
		}
		line := ""
		for said := range strings.Lines(s.log.String()[before:]) {
			if strings.Contains(said, "level=ERROR msg=panic ") {
				line += said
			}
		}
		for _, part := range []string{"request_id=" + got.id, "panic=" + odbtest.Trapped, "stack=\"goroutine ", "odbtest"} {
			if !strings.Contains(line, part) {
				s.t.Errorf("%s, a panic in call %d of the stores: %q is not in the log, which has %q", c.route, n, part, line)
			}
		}
	}
}

// git reports whether a call is of a git client.
func git(c call) bool { return strings.Contains(c.route, ".git/") }

// TestPanicsInCalls makes every call of a client and the requests of git, with a panic below each
// call of the stores in turn: that is 500, or an answer that is cut, and a line of the log with its
// stack. The same call succeeds at once afterwards. Nothing is held in the end, and connections are
// taken all the time.
func TestPanicsInCalls(t *testing.T) {
	t.Parallel()
	s := newTrappedServer(t)
	const repo = "own/er"
	values := answered{"FIRST": s.contracted()}
	met := 0
	for _, c := range contracts() {
		made := values.made(c)
		var got written
		if c.status/100 == 2 {
			var count int
			got, count = s.spring(made)
			met += count
		} else {
			got, _ = s.try(made)
		}
		if got.status != c.status {
			t.Fatalf("%s %s: status %d, want %d: %s", made.route, made.body, got.status, c.status, got.body)
		}
		values.keep(t, c, got.body)
	}
	tip := values["FIRST"]
	for _, c := range []call{
		{"GET /own/er.git/info/refs?service=git-upload-pack", repo, ""},
		{"GET /own/er.git/info/refs?service=git-receive-pack", repo, ""},
		{"POST /own/er.git/git-upload-pack", repo, requestText("want "+tip+" side-band-64k ofs-delta", "0000", "done")},
		{"POST /own/er.git/git-upload-pack", repo, requestText("want "+tip, "0000", "done")},
		{"POST /own/er.git/git-receive-pack", repo, pushText(tip)},
	} {
		got, count := s.spring(c)
		if got.status != http.StatusOK || strings.Contains(string(got.body), "error") {
			t.Errorf("%s: %d: %s", c.route, got.status, got.body)
		}
		met += count
	}
	if met < 200 {
		t.Errorf("only %d requests met a panic", met)
	}
	s.empty()
}

// pushText is a push that creates a branch at a commit that is there, with an empty pack.
func pushText(tip string) string {
	sum, err := hex.DecodeString("029d08823bd8a8eab510ad6ac75c823cfd3ed31e")
	must(err)
	return requestText(object.ZeroID.String()+" "+tip+" refs/heads/pushed\x00report-status", "0000") +
		"PACK\x00\x00\x00\x02\x00\x00\x00\x00" + string(sum)
}

// empty waits until nothing is held.
func (s *trappedServer) empty() {
	s.t.Helper()
	for tries := 0; s.host.ObjectStats().ViewCount > 0; tries++ {
		if tries == 100 {
			s.t.Errorf("%d views are open", s.host.ObjectStats().ViewCount)
			break
		}
		runtime.GC() // closes views that nobody can reach, in a goroutine of its own
		runtime.Gosched()
	}
	c := s.dial(s.t)
	c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
	a := c.receive(http.MethodGet)
	for _, none := range []string{
		"heavy_slots_used", "heavy_slots_waiting", "request_memory_bytes", "request_memory_waiting",
	} {
		if !strings.Contains(a.body, "packhorse_"+none+" 0\n") {
			s.t.Errorf("not 0: %s", none)
		}
	}
}

// breaking is a log that panics once, at a message.
type breaking struct {
	slog.Handler
	message string
	broken  atomic.Bool
}

func (b *breaking) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == b.message && !b.broken.Swap(true) {
		panic("on purpose")
	}
	return b.Handler.Handle(ctx, r)
}

// breakingTracer panics in the first span, and traces nothing.
type breakingTracer struct{ broken atomic.Bool }

func (b *breakingTracer) Begin(span.Link, string, span.Kind) span.Recorder {
	if !b.broken.Swap(true) {
		panic("on purpose")
	}
	return untraced{}
}

type untraced struct{ span.Recorder }

func (untraced) Link() span.Link     { return span.Link{} }
func (untraced) Rename(string)       {}
func (untraced) Text(_, _ string)    {}
func (untraced) Count(string, int64) {}
func (untraced) End(error)           {}

// TestPanicOfATracer panics before a request has a guard of its own: its connection ends.
func TestPanicOfATracer(t *testing.T) {
	t.Parallel()
	tracer := &breakingTracer{}
	f := serve(t, map[string]api.Handler{"GET /y": respond(200, "y")}, func(c *api.Config) { c.Tracer = tracer })
	for _, want := range []int{500, 200} {
		c := f.dial(t)
		c.send("GET /y HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
		if a := c.receive(http.MethodGet); a.StatusCode != want {
			t.Errorf("status %d, want %d", a.StatusCode, want)
		}
		if want == 500 {
			c.closes()
		}
	}
	if said := f.log.String(); strings.Count(said, "msg=panic") != 1 || !strings.Contains(said, "breakingTracer") {
		t.Errorf("logged %s", said)
	}
}

// TestPanicsAround panics in what a request passes before and behind its handler, and in goroutines
// that handlers wait for.
func TestPanicsAround(t *testing.T) {
	t.Parallel()
	beside := func() error { return fmt.Errorf("read: %w", <-rescue.Beside(func() error { panic(exchange.ErrBusy) })) }
	broken := errors.New("on purpose")
	tests := map[string]struct {
		edit    func(c *api.Config)
		handler api.Handler
		status  int
		cut     bool
	}{
		"before the handler": {func(c *api.Config) { c.Writable = func() error { panic(broken) } }, respond(200, ""), 500, false},
		"behind the handler": {func(c *api.Config) {
			c.Logger = slog.New(&breaking{Handler: c.Logger.Handler(), message: "request"})
		}, respond(200, ""), 200, false},
		"beside the handler": {nil, func(exchange.Exchange, *auth.Grant) error { return beside() }, 500, false},
		"beside the answer": {nil, func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, half)
				return beside()
			})
			return nil
		}, 200, true},
		"as a report": {nil, func(x exchange.Exchange, _ *auth.Grant) error {
			x.Failed(beside())
			x.Respond(200, "text/plain", []byte("ng refs/heads/main"))
			return nil
		}, 200, false},
	}
	for name, test := range tests {
		for _, expects := range []string{"", "Expect: 100-continue\n"} {
			t.Run(name+" "+expects, func(t *testing.T) {
				t.Parallel()
				f := serve(t, map[string]api.Handler{"POST /x": test.handler, "GET /y": respond(200, "y")}, test.edit)
				c := f.dial(t)
				c.send("POST /x HTTP/1.1\nHost: x\nContent-Length: 0\n" + expects + "Authorization: " + token("r", "git:write") + "\n\n")
				a := c.receive(http.MethodPost)
				if a.StatusCode == http.StatusContinue {
					a = c.receive(http.MethodPost)
				}
				if a.StatusCode != test.status || (a.cut != nil) != test.cut {
					t.Errorf("status %d, cut %v", a.StatusCode, a.cut)
				}
				c = f.dial(t)
				c.send("GET /y HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
				if again := c.receive(http.MethodGet); again.body != "y" {
					t.Errorf("afterwards: %d", again.StatusCode)
				}
				said := f.log.String()
				if !strings.Contains(said, "msg=panic request_id="+a.Header.Get("X-Request-Id")) || strings.Count(said, "msg=panic") != 1 {
					t.Errorf("logged %s", said)
				}
				c = f.dial(t)
				c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
				if a := c.receive(http.MethodGet); !strings.Contains(a.body, "packhorse_panics_total 1\n") ||
					!strings.Contains(a.body, "packhorse_http_requests_in_flight 1\n") {
					t.Error("the panic is not counted, or its request is still in flight")
				}
			})
		}
	}
}
