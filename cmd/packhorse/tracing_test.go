package main_test

import (
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceParent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// ask runs a call that creates something, with a traceparent, "" for none.
func ask(t *testing.T, url, token, parent, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	if parent != "" {
		request.Header.Set("Traceparent", parent)
		request.Header.Set("Tracestate", "vendor=1")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %s, %v", url, response.Status, err)
	}
}

// listener is a server that tells of the requests that it gets.
func listener(t *testing.T, status int) (url string, requests <-chan *http.Request) {
	t.Helper()
	got := make(chan *http.Request, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Clone(t.Context())
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// await returns the next request that a listener got.
func await(t *testing.T, requests <-chan *http.Request) *http.Request {
	t.Helper()
	select {
	case r := <-requests:
		return r
	case <-time.After(time.Minute):
		t.Fatal("no request")
		return nil
	}
}

// The trace of a request goes on to the webhooks and the upstream that it concerns, without an
// exporter as it came; a request without one leads to none.
func TestTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	receiver, deliveries := listener(t, http.StatusOK)
	far, syncs := listener(t, http.StatusNotFound)
	dir := t.TempDir()
	hook(t, dir, receiver)
	config := filepath.Join(dir, "orgs", packhorsetest.Org, "org.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, fmt.Appendf(text, "upstreams: {gitlab: %q}\n", far), 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, packhorsetest.Options{Dir: dir, Flags: []string{
		"--upstream-allow", "127.0.0.1", "--log-level", "error", "--upstream-retry", "1h",
		"--secret-key", write(t, "secret-key", strings.Repeat("k", 32)),
	}})
	token := create(t, server, "r")
	is := func(r *http.Request, parent, state string) {
		t.Helper()
		if got := r.Header; got.Get("Traceparent") != parent || got.Get("Tracestate") != state {
			t.Errorf("%s got %q and %q, want %q", r.URL, got.Get("Traceparent"), got.Get("Tracestate"), parent)
		}
	}
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, traceParent, string(commitPack("main", "", "a")))
	is(await(t, deliveries), traceParent, "vendor=1")
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, "", string(commitPack("main", "", "b")))
	is(await(t, deliveries), "", "")

	for name, parent := range map[string]string{"traced": traceParent, "plain": ""} {
		token, err := server.Token(t.Context(), name, "--scope", "repo:write")
		if err != nil {
			t.Fatal(err)
		}
		state := ""
		if parent != "" {
			state = "vendor=1"
		}
		ask(t, server.URL+"/api/v1/repos", token, parent,
			fmt.Sprintf(`{"base_repo":{"provider":"gitlab","owner":"ada","name":%q}}`, name))
		r := await(t, syncs)
		for !strings.HasPrefix(r.URL.Path, "/ada/"+name) { // of the sync before
			r = await(t, syncs)
		}
		is(r, parent, state)
	}
}

// collector is an OTLP collector on the loopback.
type collector struct {
	url   string
	mu    sync.Mutex
	spans []*tracepb.Span // guarded by mu
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unzipped
		}
		data, err := io.ReadAll(body)
		var request collectorpb.ExportTraceServiceRequest
		if err = errors.Join(err, proto.Unmarshal(data, &request)); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// tree returns a trace as lines, each with the span's path of names from the root, sorted.
func (c *collector) tree(trace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := make(map[string]*tracepb.Span)
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
	}
	var lines []string
	for _, s := range c.spans {
		if trace != "" && hex.EncodeToString(s.TraceId) != trace {
			continue
		}
		path := s.Name
		for above := byID[string(s.ParentSpanId)]; above != nil; above = byID[string(above.ParentSpanId)] {
			path = above.Name + " > " + path
		}
		lines = append(lines, path)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// A push, a clone and a commit by the API are trees of spans in the trace of their caller; the last
// ones are sent at the end. Without the flag nothing is.
func TestSpansAreSent(t *testing.T) {
	t.Parallel()
	receiver, deliveries := listener(t, http.StatusOK)
	dir := t.TempDir()
	hook(t, dir, receiver)
	to := newCollector(t)
	server := start(t, packhorsetest.Options{Dir: dir, Env: []string{"OTEL_BSP_SCHEDULE_DELAY=60000"}, Flags: []string{
		"--otlp-endpoint", to.url, "--trace-ratio", "0", "--upstream-allow", "127.0.0.1", "--log-level", "error",
	}})
	token := create(t, server, "r")
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 5, Commits: 5})
	remote := strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/r.git"
	id := func(n int) string { return fmt.Sprintf("%032x", n) }
	parent := func(n int) string { return "00-" + id(n) + "-b7ad6b7169203331-01" }
	traced := func(n int) []string { return []string{"-c", "http.extraHeader=Traceparent: " + parent(n)} }
	git.Git(append(traced(1), "push", "--quiet", remote, "refs/heads/main")...)
	await(t, deliveries)
	git.Git(append(traced(2), "clone", "--quiet", "--bare", "--depth", "1", remote, t.TempDir())...)
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, parent(3), string(commitPack("api", "main", "a")))
	told := await(t, deliveries).Header.Get("Traceparent")
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, "", string(commitPack("api2", "main", "a")))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	const transaction = " > ref transaction"
	for n, want := range map[int][]string{
		1: {
			"GET git/info/refs", "POST git/git-receive-pack", "POST git/git-receive-pack" + transaction,
			"POST git/git-receive-pack" + transaction + " > webhook delivery",
			"POST git/git-receive-pack" + transaction + " > webhook delivery > POST",
		},
		2: {
			"GET git/info/refs", "POST git/git-upload-pack", "POST git/git-upload-pack > pack generation",
			"POST git/git-upload-pack > pack plan",
		},
		3: {
			"POST /api/v1/repos/commit-pack", "POST /api/v1/repos/commit-pack" + transaction,
			"POST /api/v1/repos/commit-pack" + transaction + " > webhook delivery",
			"POST /api/v1/repos/commit-pack" + transaction + " > webhook delivery > POST",
		},
	} {
		if got := to.tree(id(n)); !slices.Equal(got, want) {
			t.Errorf("trace %d: %q, want %q", n, got, want)
		}
	}
	if !strings.HasPrefix(told, "00-"+id(3)+"-") || told == parent(3) || !strings.HasSuffix(told, "-01") {
		t.Errorf("the receiver of the webhook got %q", told)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, s := range to.spans {
		if trace := hex.EncodeToString(s.TraceId); trace != id(1) && trace != id(2) && trace != id(3) {
			t.Errorf("%s is of a trace that is not to be recorded", s.Name)
		}
		for _, a := range s.Attributes {
			if text := a.Value.GetStringValue(); strings.Contains(text, packhorsetest.Org) || strings.Contains(text, token) {
				t.Errorf("%s tells %s=%q", s.Name, a.Key, text)
			}
		}
	}
}

// has waits until the collector has spans with all of these paths of names.
func (c *collector) has(t *testing.T, trace string, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got = c.tree(trace)
		if !slices.ContainsFunc(want, func(path string) bool { return !slices.Contains(got, path) }) {
			return
		}
	}
	t.Errorf("trace %q: %q, want %q", trace, got, want)
}

// A sync with an upstream and a call of a tool are spans below the request that led to them, and
// maintenance has traces of its own. What failed says so.
func TestSpansOfBackground(t *testing.T) {
	t.Parallel()
	far, _ := listener(t, http.StatusNotFound)
	dir := t.TempDir()
	config := filepath.Join(dir, "orgs", packhorsetest.Org, "org.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "upstreams: {gitlab: %q}\n", far), 0o600); err != nil {
		t.Fatal(err)
	}
	to := newCollector(t)
	server := start(t, packhorsetest.Options{Dir: dir, Env: []string{"OTEL_BSP_SCHEDULE_DELAY=20"}, Flags: []string{
		"--otlp-endpoint", to.url, "--upstream-allow", "127.0.0.1", "--log-level", "error", "--upstream-retry", "1h",
		"--maintenance-every", "50ms", "--secret-key", write(t, "secret-key", strings.Repeat("k", 32)),
	}})
	to.has(t, "", "maintenance round")
	const synced, called = "0af7651916cd43dd8448eb211c803200", "0af7651916cd43dd8448eb211c803201"
	parent := func(trace string) string { return "00-" + trace + "-b7ad6b7169203331-01" }
	token, err := server.Token(t.Context(), "far", "--scope", "repo:write,git:read")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, server.URL+"/api/v1/repos", token, parent(synced),
		`{"base_repo":{"provider":"gitlab","owner":"ada","name":"far"}}`)
	to.has(t, synced, "POST /api/v1/repos", "POST /api/v1/repos > upstream sync", "POST /api/v1/repos > upstream sync > GET")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_branches","arguments":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Traceparent": parent(called),
		"Accept": "application/json, text/event-stream",
	} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a call of a tool: %s, %v", response.Status, err)
	}
	to.has(t, called, "POST /mcp", "POST /mcp > GET /api/v1/repos/branches")
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, s := range to.spans {
		attributes := make(map[string]bool)
		for _, a := range s.Attributes {
			attributes[a.Key] = true
			if text := a.Value.GetStringValue(); strings.Contains(text, token) || strings.Contains(text, "ada") {
				t.Errorf("%s tells %s=%q", s.Name, a.Key, text)
			}
		}
		failed := s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
		switch s.Name {
		case "upstream sync":
			if !failed || !attributes["packhorse.repository.id"] || !attributes["packhorse.attempt"] {
				t.Errorf("a failed sync: %v", s)
			}
		case "maintenance round":
			if failed || !attributes["packhorse.repositories"] || len(s.ParentSpanId) > 0 {
				t.Errorf("a round: %v", s)
			}
		}
	}
}

// A collector that is away harms nothing, and is not waited for beyond a bound. Without the flag
// nothing is sent, whatever the environment says.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	to := newCollector(t)
	for name, options := range map[string]packhorsetest.Options{
		"away": {Flags: []string{"--otlp-endpoint", "http://127.0.0.1:1", "--log-level", "error"}},
		"off":  {Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.url, "OTEL_TRACES_SAMPLER=always_on"}},
	} {
		server := start(t, options)
		token := create(t, server, "r")
		ask(t, server.URL+"/api/v1/repos/commit-pack", token, traceParent, string(commitPack("main", "", "a")))
		if err := server.Stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := to.tree(""); len(got) != 0 {
		t.Errorf("without the flag: %q", got)
	}
	for _, flags := range [][]string{{"--otlp-endpoint", "127.0.0.1:4318"}, {"--trace-ratio", "2"}, {"--trace-ratio", "NaN"}} {
		got := packhorse(t, nil, append([]string{
			"serve", "--data", t.TempDir(), "--orgs", t.TempDir(), "--listen", "127.0.0.1:0",
		}, flags...)...)
		if got.status != 2 || !strings.Contains(got.errOut, flags[0]+":") || strings.Count(got.errOut, "packhorse: ") != 1 {
			t.Errorf("%v: %+v", flags, got)
		}
	}
}
