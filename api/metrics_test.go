package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/refs"
)

// scrape returns the lines of /metrics.
func (f *fixture) scrape(t *testing.T) string {
	t.Helper()
	c := f.dial(t)
	c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
	return c.receive(http.MethodGet).body
}

// shows fails the test unless the metrics have all of the lines.
func (f *fixture) shows(t *testing.T, lines ...string) {
	t.Helper()
	metrics := f.scrape(t)
	for _, line := range lines {
		if !strings.Contains(metrics, "\npackhorse_"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if t.Failed() {
		t.Log(metrics)
	}
}

// Durations are told by route, method and class of the status, in buckets that double.
func TestDurations(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{
		"GET /x": respond(200, "got"), "POST /x": respond(201, "made"),
		"PUT /x": func(exchange.Exchange, *auth.Grant) error { return errors.New("on purpose") },
	}, func(c *api.Config) { c.Version = "1.2" })
	for _, method := range []string{"GET", "GET", "POST", "PUT", "DELETE"} {
		c := f.dial(t)
		c.send(method + " /x HTTP/1.1\nHost: x\nContent-Length: 0\nAuthorization: " + token("r", "git:read", "git:write") + "\n\n")
		c.receive(method)
	}
	const of = `http_request_duration_seconds_count{method=`
	f.shows(t,
		of+`"GET",route="/x",status_class="2xx"} 2`, of+`"POST",route="/x",status_class="2xx"} 1`,
		of+`"PUT",route="/x",status_class="5xx"} 1`, of+`"DELETE",route="none",status_class="4xx"} 1`,
		`http_requests_in_flight 1`, // the scrape
	)
	metrics := f.scrape(t)
	for _, bound := range []string{`"0.0005"`, `"0.001"`, `"0.002"`, `"32.768"`, `"65.536"`, `"+Inf"`} {
		if !strings.Contains(metrics, `packhorse_http_request_duration_seconds_bucket{method="POST",route="/x",status_class="2xx",le=`+bound) {
			t.Errorf("no bucket up to %s", bound)
		}
	}
	if !strings.Contains(metrics, `packhorse_build_info{goversion="go`) || !strings.Contains(metrics, `version="1.2"} 1`) {
		t.Error("no build")
	}
}

// A git operation is told with its outcome, also where the status of the answer is 200, and with
// the bytes that it took.
func TestGitOperations(t *testing.T) {
	t.Parallel()
	serveGit := func(x exchange.Exchange, path exchange.GitPath, _ *auth.Grant) error {
		if path.Repo == "none" {
			return errors.New("on purpose")
		}
		_, _ = io.Copy(io.Discard, x.Body())
		switch path.Repo {
		case "cloned":
			x.Operation(exchange.Fetch)
			x.Operation(exchange.Clone) // replaces it
			x.Respond(http.StatusOK, "text/plain", []byte(strings.Repeat("x", 3000)))
		case "refused":
			x.Operation(exchange.Push)
			x.Refused(&refs.DeniedError{Name: "refs/heads/main", Op: refs.NoPush})
			x.Respond(http.StatusOK, "text/plain", []byte("ng"))
		case "failed":
			x.Operation(exchange.Push)
			return errors.New("on purpose")
		case "cut":
			x.Operation(exchange.Push)
			x.Stream(http.StatusOK, "text/plain", func(context.Context, io.Writer) error { return io.ErrUnexpectedEOF })
		}
		return nil
	}
	f := serve(t, nil, func(c *api.Config) { c.Git.Serve = serveGit })
	for _, repo := range []string{"cloned", "refused", "failed", "none", "cut"} {
		c := f.dial(t)
		c.send("POST /" + repo + ".git/git-receive-pack HTTP/1.1\nHost: x\nContent-Length: 5\nAuthorization: " +
			token(repo, "git:read", "git:write") + "\n\nhello")
		if repo == "cut" {
			_, _ = io.ReadAll(c.Reader)
		} else {
			c.receive(http.MethodPost)
		}
	}
	const of = `git_operation_duration_seconds_count{operation=`
	f.shows(t,
		of+`"clone",result="ok"} 1`, of+`"push",result="refused"} 1`, of+`"push",result="failed"} 1`, of+`"push",result="cut"} 1`,
		`git_operation_sent_bytes_sum{operation="clone"} 3000`, `git_operation_sent_bytes_bucket{operation="clone",le="1024"} 0`,
		`git_operation_sent_bytes_bucket{operation="clone",le="8192"} 1`,
		`git_operation_received_bytes_sum{operation="push"} 15`,
		`policy_denials_total{op="no-push"} 1`,
	)
	if strings.Contains(f.scrape(t), `operation="fetch"`) {
		t.Error("an operation that was replaced counts")
	}
}

// Refused tokens are counted by their reason, and denials by their op, whatever text a token has.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{
		"GET /x": func(exchange.Exchange, *auth.Grant) error { return &refs.DeniedError{Name: "a", Op: "no-such-op"} },
	}, nil)
	for _, header := range []string{
		"", "Bearer x.y.z", "Digest x", token("r", "git:read") + "x", token("r", "git:read"), tokenOf("nobody", "r", "git:read"),
	} {
		c := f.dial(t)
		line := "Authorization: " + header + "\n"
		if header == "" {
			line = ""
		}
		c.send("GET /x HTTP/1.1\nHost: x\n" + line + "\n")
		c.receive(http.MethodGet)
	}
	const of = `token_refusals_total{reason=`
	f.shows(t, of+`"missing"} 1`, of+`"malformed"} 2`, of+`"scheme"} 1`, of+`"signature"} 1`, of+`"expired"} 0`,
		`policy_denials_total{op="other"} 1`, `policy_denials_total{op="no-write"} 0`)
}

// Waits for slots and memory are told.
func TestQueueTimes(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{
		"GET /x": func(x exchange.Exchange, _ *auth.Grant) error {
			for range 2 {
				release, err := x.Slot(x.Context())
				if err != nil {
					return err
				}
				release()
			}
			release, err := x.Reserve(x.Context(), 1)
			if err != nil {
				return err
			}
			release()
			x.Respond(http.StatusOK, "text/plain", nil)
			return nil
		},
	}, nil)
	c := f.dial(t)
	c.send("GET /x HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
	c.receive(http.MethodGet)
	f.shows(t, `request_queue_seconds_count{queue="slots"} 2`, `request_queue_seconds_count{queue="memory"} 1`)
}
