package api_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/odb/space"
)

// TestWritable refuses exactly the writes while writes are paused.
func TestWritable(t *testing.T) {
	t.Parallel()
	var refusal atomic.Pointer[error]
	refuse := func(err error) { refusal.Store(&err) }
	refuse(nil)
	f := serve(t, nil, func(c *api.Config) {
		c.Writable = func() error { return *refusal.Load() }
		c.Figures = []api.Figure{
			{Name: "answer", Help: "A gauge.", Value: func() float64 { return 42 }},
			{Name: "asked_total", Help: "A counter.", Counter: true, Value: func() float64 { return 7 }},
		}
		c.Routes = []api.Route{
			{Method: "GET", Path: "/x", Scope: auth.GitRead, Denied: 401, Handler: respond(200, "read")},
			{Method: "POST", Path: "/x", Scope: auth.GitWrite, Denied: 401, Handler: respond(200, "written")},
			{Method: "DELETE", Path: "/x", Scope: auth.RepoWrite, Denied: 401, Handler: respond(200, "deleted")},
			{Method: "POST", Path: "/search", Scope: auth.GitRead, Denied: 401, Handler: respond(200, "found")},
			{Method: "GET", Path: "/secrets", Scope: auth.RepoWrite, Denied: 401, Handler: respond(200, "read")},
		}
	})
	all := token("r", "git:write", "repo:write")
	requests := []struct {
		target, token string
		status        int // while nothing can be written; 0: that of the refusal
	}{
		{"GET /x", all, 200},
		{"POST /x", all, 0},
		{"POST /x", token("r", "git:read"), 401},
		{"DELETE /x", all, 0},
		{"POST /search", all, 200},
		{"GET /secrets", all, 200},
		{"GET /r.git/info/refs?service=git-upload-pack", all, 200},
		{"POST /r.git/git-upload-pack", all, 200},
		{"GET /r.git/info/refs?service=git-receive-pack", all, 0},
		{"POST /r.git/git-receive-pack", all, 0},
		{"GET /healthz", "", 200},
		{"GET /readyz", "", 200},
		{"GET /metrics", "", 200},
	}
	for _, state := range []struct {
		err    error
		status int
		ready  string
	}{
		{nil, 200, ""},
		{space.ErrShort, 507, "writes are paused"},
		{space.ErrRecovering, 503, "full at the start"},
		{nil, 200, ""},
	} {
		refuse(state.err)
		for _, r := range requests {
			method, target, _ := strings.Cut(r.target, " ")
			c := f.dial(t)
			c.send(method + " " + target + " HTTP/1.1\nHost: x\nAuthorization: " + r.token + "\nContent-Length: 0\n\n")
			a := c.receive(method)
			want := r.status
			if want == 0 || state.err == nil && want == 200 {
				want = state.status
			}
			if a.StatusCode != want {
				t.Errorf("%v: %s: %d %s, want %d", state.err, r.target, a.StatusCode, a.body, want)
			}
			if r.status == 0 && state.err != nil && !strings.Contains(a.body, state.ready) {
				t.Errorf("%v: %s: told %q", state.err, r.target, a.body)
			}
			if state.status == 503 && r.status == 0 && a.Header.Get("Retry-After") == "" {
				t.Errorf("%v: %s: no Retry-After", state.err, r.target)
			}
			if target == "/metrics" && !strings.Contains(a.body, "packhorse_answer 42\n") {
				t.Error("the gauge is not shown")
			}
			if target == "/metrics" &&
				!strings.Contains(a.body, "# TYPE packhorse_asked_total counter\npackhorse_asked_total 7\n") {
				t.Error("the counter is not shown")
			}
		}
		if status, text := readiness(f); status != 200 || !strings.HasPrefix(text, "ready") ||
			!strings.Contains(text, state.ready) {
			t.Errorf("%v: readyz: %d %q", state.err, status, text)
		}
	}
}
