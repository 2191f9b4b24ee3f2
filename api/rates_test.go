package api_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// limited is a server whose organization "acme" has an org.yaml, and whose rates follow a clock
// that the test moves.
type limited struct {
	*fixture
	tokens *auth.Verifier
	config string // the path of org.yaml
	nanos  atomic.Int64
}

func newLimited(t *testing.T, orgYAML string, routes map[string]api.Handler, edit func(*api.Config)) *limited {
	t.Helper()
	dir := t.TempDir()
	for _, org := range []string{"acme", "other"} {
		must(os.Mkdir(filepath.Join(dir, org), 0o755))
		must(os.WriteFile(filepath.Join(dir, org, "k.pem"), keys().public, 0o644))
	}
	l := &limited{config: filepath.Join(dir, "acme", "org.yaml")}
	must(os.WriteFile(l.config, []byte(orgYAML), 0o644))
	var err error
	l.tokens, err = auth.Open(auth.Options{Dir: dir})
	must(err)
	t.Cleanup(l.tokens.Close)
	l.nanos.Store(time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC).UnixNano())
	l.fixture = serve(t, routes, func(c *api.Config) {
		c.Tokens, c.Now = l.tokens, func() time.Time { return time.Unix(0, l.nanos.Load()) }
		if edit != nil {
			edit(c)
		}
	})
	return l
}

// becomes puts another org.yaml into force.
func (l *limited) becomes(orgYAML string) {
	must(os.WriteFile(l.config+".new", []byte(orgYAML), 0o644))
	must(os.Rename(l.config+".new", l.config))
	l.tokens.Reload()
}

// pass moves the clock.
func (l *limited) pass(d time.Duration) { l.nanos.Add(int64(d)) }

// limitedRequest is a request of "acme".
func limitedRequest(method, path, header, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\nHost: x\nAuthorization: %s\n%sContent-Length: %d\n\n%s",
		method, path, token("r", "git:read", "git:write"), header, len(body), body)
}

// An organization gets its burst and then its rate, over all ways to send requests together. What
// is refused takes nothing, and neither does what needs no token or has a bad one.
func TestRates(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "limits: {requests_per_second: 2, request_burst: 5}\n", map[string]api.Handler{
		"GET /get": respond(200, "got"), "GET /api/v1/repos/branches": respond(200, `{"branches":[]}`),
	}, func(c *api.Config) {
		for i := range c.Routes {
			if c.Routes[i].Path == "/get" {
				c.Routes[i].Named = "/api/repos/{n}/got"
			}
		}
	})
	c := l.dial(t)
	ask := func(text string) answer {
		t.Helper()
		method, _, _ := strings.Cut(text, " ")
		c.send(text)
		return c.receive(method)
	}
	everywhere := map[string]string{
		"by the token":       limitedRequest("GET", "/get", "", ""),
		"by the path":        limitedRequest("GET", "/api/repos/r/got", "", ""),
		"git":                limitedRequest("GET", "/r.git/info/refs?service=git-upload-pack", "", ""),
		"another repository": limitedRequest("GET", "/other.git/info/refs?service=git-upload-pack", "", ""),
		"MCP": limitedRequest("POST", "/mcp", "Content-Type: application/json\n",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_branches","arguments":{}}}`),
	}
	free := []string{
		"GET /healthz HTTP/1.1\nHost: x\n\n", "GET /readyz HTTP/1.1\nHost: x\n\n", "GET /metrics HTTP/1.1\nHost: x\n\n",
		"GET /none HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n",
		"GET /get HTTP/1.1\nHost: x\n\n",
		"GET /get HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "x\n\n",
	}
	others := "GET /get HTTP/1.1\nHost: x\nAuthorization: " + tokenOf("other", "r", "git:read") + "\n\n"
	everythingElse := func() {
		t.Helper()
		for _, text := range append(free, others) {
			if a := ask(text); a.StatusCode == http.StatusTooManyRequests {
				t.Errorf("%.40q: status %d: %s", text, a.StatusCode, a.body)
			}
		}
	}

	everythingElse()
	for name, text := range everywhere { // the burst
		if a := ask(text); a.StatusCode == http.StatusTooManyRequests {
			t.Errorf("%s: status %d: %s", name, a.StatusCode, a.body)
		}
	}
	const why = "too many requests: the organization may send 2 a second on average and 5 at once " +
		"(limits.requests_per_second and limits.request_burst in org.yaml)"
	for name, text := range everywhere {
		want, kind := `{"error":"`+why+`","code":"too_many_requests"}`+"\n", "application/json"
		if strings.Contains(text, ".git/") {
			want, kind = why, "text/plain"
		}
		a := ask(text)
		if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" ||
			a.body != want || a.Header.Get("Content-Type") != kind {
			t.Errorf("%s, above the rate: status %d, %v: %s", name, a.StatusCode, a.Header, a.body)
		}
	}
	everythingElse()

	passes := func(count int) { // and not one more
		t.Helper()
		for i := range count {
			if a := ask(everywhere["by the token"]); a.StatusCode != http.StatusOK {
				t.Errorf("request %d of %d: status %d: %s", i+1, count, a.StatusCode, a.body)
			}
		}
		if a := ask(everywhere["by the token"]); a.StatusCode != http.StatusTooManyRequests {
			t.Errorf("after %d requests: status %d", count, a.StatusCode)
		}
	}
	l.pass(499 * time.Millisecond)
	passes(0)
	l.pass(time.Millisecond)
	passes(1)
	l.pass(time.Hour)
	passes(5)
	l.shows(t, "rate_refusals_total 8")
	if log := l.log.String(); !strings.Contains(log, "status=429") || !strings.Contains(log, "code=too_many_requests") ||
		!strings.Contains(log, "limits.requests_per_second") {
		t.Errorf("the log:\n%s", log)
	}
}

// Another org.yaml changes the rate at once, and is no burst.
func TestRatesChange(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "", map[string]api.Handler{"GET /get": respond(200, "got")}, nil)
	c := l.dial(t)
	send := func() answer {
		c.send(get("/get"))
		return c.receive(http.MethodGet)
	}
	passes := func(count int, retry string) {
		t.Helper()
		for i := range count {
			if a := send(); a.StatusCode != http.StatusOK {
				t.Errorf("request %d of %d: status %d: %s", i+1, count, a.StatusCode, a.body)
			}
		}
		if a := send(); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != retry {
			t.Errorf("after %d requests: status %d, Retry-After %q, want %q", count, a.StatusCode, a.Header.Get("Retry-After"), retry)
		}
	}
	for range 20 {
		if a := send(); a.StatusCode != http.StatusOK {
			t.Errorf("without a rate: status %d", a.StatusCode)
		}
	}
	l.becomes("limits: {requests_per_second: 0.1}\n")
	passes(10, "10")
	l.becomes("limits: {requests_per_second: 0.1, request_burst: 100}\n")
	passes(0, "10")
	l.pass(4 * time.Second)
	passes(0, "6")
	l.becomes("limits: {requests_per_second: 100}\n") // which has a burst of 200, and 0.4 are there
	passes(0, "1")
	l.pass(500 * time.Millisecond)
	passes(50, "1")
	l.becomes("limits: {requests_per_second: 0}\n") // which is refused
	passes(0, "1")
	l.pass(time.Second)
	l.becomes("limits: {requests_per_second: 100, request_burst: 7}\n")
	passes(7, "1")
	l.becomes("")
	for range 20 {
		if a := send(); a.StatusCode != http.StatusOK {
			t.Errorf("without a rate again: status %d", a.StatusCode)
		}
	}
}

// A request is counted before its body is asked for, and once, also when its client waits for "100
// Continue".
func TestRatesBeforeBody(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "limits: {requests_per_second: 0.001, request_burst: 3}\n",
		map[string]api.Handler{"POST /read": reader}, nil)
	c := l.dial(t)
	expecting := "POST /read HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") +
		"\nExpect: 100-continue\nContent-Length: 3\n\n"
	for range 3 {
		c.send(expecting)
		if a := c.receive(http.MethodPost); a.StatusCode != http.StatusContinue {
			t.Fatalf("status %d before the body: %s", a.StatusCode, a.body)
		}
		c.send("abc")
		if a := c.receive(http.MethodPost); a.body != "3 <nil>" {
			t.Errorf("status %d: %s", a.StatusCode, a.body)
		}
	}
	for _, text := range []string{expecting, strings.Replace(expecting, "Expect: 100-continue\n", "", 1)} {
		c := l.dial(t)
		c.send(text + "a")
		if a := c.receive(http.MethodPost); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1000" {
			t.Errorf("above the rate: status %d, %v", a.StatusCode, a.Header)
		}
	}
}

// Git shows why it is refused.
func TestRatesOfGit(t *testing.T) {
	t.Parallel()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{})
	t.Cleanup(shut)
	enginetest.Create(t, host, "r")
	door := githttp.New(githttp.Config{Host: host})
	l := newLimited(t, "limits: {requests_per_second: 0.5, request_burst: 2}\n", nil, func(c *api.Config) {
		c.Git = api.Git{Serve: door.Serve, Refuse: githttp.Refuse}
	})
	url := fmt.Sprintf("http://t:%s@%s/r.git", strings.TrimPrefix(token("r", "git:write"), "Bearer "), l.address)
	const why = "remote: too many requests: the organization may send 0.5 a second on average and 2 at once"
	if got := run(t, t.TempDir(), "git", "ls-remote", url); strings.Contains(got, "remote: ") { // two requests
		t.Errorf("git says\n%s", got)
	}
	for _, args := range [][]string{{"ls-remote", url}, {"clone", url, "copy"}} {
		if got := run(t, t.TempDir(), "git", args...); !strings.Contains(got, why) {
			t.Errorf("git %s does not say %q, but\n%s", args[0], why, got)
		}
	}
}
