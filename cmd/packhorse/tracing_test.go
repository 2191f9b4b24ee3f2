package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceParent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// ask runs a call with a traceparent, "" for none.
func ask(t *testing.T, url, token, parent, body string, want int) {
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
	if err := response.Body.Close(); err != nil || response.StatusCode != want {
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
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, traceParent, string(commitPack("main", "", "a")), http.StatusCreated)
	is(await(t, deliveries), traceParent, "vendor=1")
	ask(t, server.URL+"/api/v1/repos/commit-pack", token, "", string(commitPack("main", "", "b")), http.StatusCreated)
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
			fmt.Sprintf(`{"base_repo":{"provider":"gitlab","owner":"ada","name":%q}}`, name), http.StatusCreated)
		r := await(t, syncs)
		for !strings.HasPrefix(r.URL.Path, "/ada/"+name) { // of the sync before
			r = await(t, syncs)
		}
		is(r, parent, state)
	}
}
