package api_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// short is a listener without descriptors, three times.
type short struct {
	net.Listener
	failed int
}

func (l *short) Accept() (net.Conn, error) {
	if l.failed < 3 {
		l.failed++
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func readiness(f *fixture) (int, string) {
	w := httptest.NewRecorder()
	f.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

// TestHeaderForms sends headers that two readers may understand differently.
func TestHeaderForms(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"POST /read": reader}, nil)
	authorization := "Authorization: " + token("r", "git:write")
	for name, test := range map[string]struct {
		header string
		status int
		says   string
	}{
		"chunks": {"Host: x\r\n" + authorization + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, ""},
		"Chunks": {"Host: x\r\n" + authorization + "\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", 200, ""},
		"identity": {
			"Host: x\r\n" + authorization + "\r\nTransfer-Encoding: identity\r\n\r\n", 400, "transfer-encoding",
		},
		"gzip": {
			"Host: x\r\n" + authorization + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "",
		},
		"one bare line":    {"Host: x\n" + authorization + "\r\nContent-Length: 0\r\n\r\n", 400, "carriage return"},
		"bare lines":       {"Host: x\n" + authorization + "\nContent-Length: 0\n\n", 400, ""},
		"a bare last line": {"Host: x\r\n" + authorization + "\r\nContent-Length: 0\r\n\n", 400, ""},
	} {
		c := f.dial(t)
		c.raw("POST /read HTTP/1.1\r\n" + test.header)
		if a := c.receive(http.MethodPost); a.StatusCode != test.status || !strings.Contains(a.body, test.says) {
			t.Errorf("%s: status %d: %s", name, a.StatusCode, a.body)
		}
	}
}

// TestBadRepositoryName creates repositories that cannot be.
func TestBadRepositoryName(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	for name, status := range map[string]int{"a b": 400, "../x": 400, "a.git": 400, "a//b": 400, "": 403, "org": 403} {
		got := w.do(call{"POST " + v1, name, ``}, nil)
		says := "is not a repository name"
		if status != 400 {
			says = "the token names no repository"
		}
		if got.status != status || !strings.Contains(string(got.body), says) {
			t.Errorf("%q: status %d: %s", name, got.status, got.body)
		}
	}
}

// The scopes that routes require of a token.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, func(c *api.Config) {
		c.Routes = []api.Route{
			{Method: "GET", Path: "/read", Scope: auth.GitRead, Denied: 401, Handler: respond(200, "read")},
			{Method: "POST", Path: "/read", Scope: auth.GitWrite, Denied: 403, Handler: respond(200, "written")},
			{Method: "POST", Path: "/post", Scope: auth.GitRead, Denied: 403, Handler: respond(200, "posted")},
			{Method: "GET", Path: "/org", Scope: auth.OrgRead, Denied: 401, Org: true, Handler: respond(200, "org")},
		}
	})
	tests := map[string]struct {
		method, target, token string
		status                int
		header                string // "Name: value" that the answer has
	}{
		"reads":                    {"GET", "/read", token("r", "git:read"), 200, ""},
		"write includes read":      {"GET", "/read", token("r", "git:write"), 200, ""},
		"no token":                 {"GET", "/read", "", 401, ""},
		"bad token":                {"GET", "/read", "Bearer x.y.z", 401, ""},
		"no scope":                 {"GET", "/read", token("r"), 401, ""},
		"other scope":              {"GET", "/read", token("r", "org:read", "repo:write"), 401, ""},
		"reader writes":            {"POST", "/read", token("r", "git:read"), 403, ""},
		"writes":                   {"POST", "/read", token("r", "git:write"), 200, ""},
		"no repository":            {"GET", "/read", token("", "git:read"), 401, ""},
		"no repository, write":     {"POST", "/read", token("", "git:write"), 403, ""},
		"repository org":           {"GET", "/read", token("org", "git:read"), 401, ""},
		"repository with dots":     {"GET", "/read", token("a/../b", "git:read"), 401, ""},
		"organization":             {"GET", "/org", token("", "org:read"), 200, ""},
		"organization, repository": {"GET", "/org", token("r", "git:read"), 401, ""},
		"unknown path":             {"GET", "/none", token("r", "git:read"), 404, ""},
		"unknown path, no token":   {"GET", "/none", "", 404, ""},
		"other method":             {"PUT", "/read", token("r", "git:write"), 405, "Allow: GET, HEAD, POST"},
		"other method, no token":   {"DELETE", "/read", "", 405, "Allow: GET, HEAD, POST"},
		"HEAD where GET is":        {"HEAD", "/read", token("r", "git:read"), 200, ""},
		"HEAD where GET is not":    {"HEAD", "/post", token("r", "git:read"), 405, "Allow: POST"},
		"strange method":           {"BREW", "/read", "", 405, "Allow: GET, HEAD, POST"},
		"CONNECT":                  {"CONNECT", "x:443", "", 400, ""},
		"asterisk":                 {"OPTIONS", "*", "", 400, ""},

		"clone": {
			"GET", "/a/b.git/info/refs?service=git-upload-pack", token("a/b", "git:read"), 200, "",
		},
		"clone, no token": {
			"GET", "/a/b.git/info/refs?service=git-upload-pack", "", 401, "Www-Authenticate: Basic",
		},
		"clone, other repository": {
			"GET", "/a/c.git/info/refs?service=git-upload-pack", token("a/b", "git:read"), 403, "",
		},
		"clone, other repository, scope": {"GET", "/a/c.git/info/refs?service=git-upload-pack", token("a/b"), 403, ""},
		"clone, no scope":                {"GET", "/a/b.git/info/refs?service=git-upload-pack", token("a/b"), 403, ""},
		"push, reader": {
			"GET", "/a/b.git/info/refs?service=git-receive-pack", token("a/b", "git:read"), 403, "",
		},
		"push":                {"POST", "/a/b.git/git-receive-pack", token("a/b", "git:write"), 200, ""},
		"push itself, reader": {"POST", "/a/b.git/git-receive-pack", token("a/b", "git:read"), 403, ""},
		"fetch":               {"POST", "/a/b+ephemeral.git/git-upload-pack", token("a/b", "git:read"), 200, ""},
		"fetch with GET":      {"GET", "/a/b.git/git-upload-pack", token("a/b", "git:read"), 405, "Allow: POST"},
		"advertise with POST": {"POST", "/a/b.git/info/refs", token("a/b", "git:read"), 405, "Allow: GET, HEAD"},
		"dumb":                {"GET", "/a/b.git/HEAD", token("a/b", "git:read"), 404, ""},
		"objects":             {"GET", "/a/b.git/objects/info/packs", token("a/b", "git:read"), 404, ""},
		"import":              {"POST", "/a/b+import.git/git-receive-pack", token("a/b", "git:write"), 200, ""},
		"health":              {"GET", "/healthz", "", 200, ""},
		"ready":               {"HEAD", "/readyz", "", 200, ""},
		"metrics":             {"GET", "/metrics", "", 200, ""},
		"health with POST":    {"POST", "/healthz", "", 405, "Allow: GET, HEAD"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			c.send(test.method + " " + test.target + " HTTP/1.1\nHost: x\n")
			if test.token != "" {
				c.send("Authorization: " + test.token + "\n")
			}
			c.send("Content-Length: 0\n\n")
			a := c.receive(test.method)
			if a.StatusCode != test.status {
				t.Errorf("status %d, want %d: %s", a.StatusCode, test.status, a.body)
			}
			if name, value, ok := strings.Cut(test.header, ": "); ok && a.Header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, a.Header.Get(name), value)
			}
		})
	}
}

// A path has one meaning, or none.
func TestPaths(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /api/x": respond(200, "x")}, nil)
	tests := map[string]int{
		"/api/x":                         200,
		"/api/x?a=b&c=%2F":               200,
		"/api/%78":                       200,
		"http://elsewhere/api/x":         200,
		"/api/x/":                        404,
		"//api/x":                        404,
		"/api//x":                        404,
		"/API/x":                         404,
		"/api%2fx":                       400,
		"/api%2Fx":                       400,
		"/api%5cx":                       400,
		`/api\x`:                         400,
		"/api/./x":                       400,
		"/api/y/../x":                    400,
		"/api/%2e%2e/api/x":              400,
		"/api/%2E/x":                     400,
		"/api/%252e%252e/x":              400,
		"/api/%00x":                      400,
		"/api/x%0d%0aX-A:%20b":           400,
		"/api/%7fx":                      400,
		"/api/%":                         400,
		"/api/%7":                        400,
		"/api/%zz":                       400,
		"/api/x#y":                       400,
		"/api/x?a=%zz":                   400,
		"/api/x?a;b":                     400,
		"/" + strings.Repeat("x", 8<<10): 414,

		"/r.git/info/refs?service=git-upload-pack":                                200,
		"/r%2Bephemeral.git/info/refs?service=git-upload-pack":                    200,
		"/%72.git/info/refs?service=git-upload-pack":                              200,
		"/x/../r.git/info/refs?service=git-upload-pack":                           400,
		"/x%2f..%2fr.git/info/refs?service=git-upload-pack":                       400,
		"/r.git/../r.git/info/refs?service=git-upload-pack":                       400,
		"/r.git//info/refs?service=git-upload-pack":                               404,
		"//r.git/info/refs?service=git-upload-pack":                               404,
		"/r.git.git/info/refs?service=git-upload-pack":                            404,
		"/.git/info/refs?service=git-upload-pack":                                 404,
		"/r+other.git/info/refs?service=git-upload-pack":                          404,
		"/r+ephemeral+import.git/info/refs?service=git-upload-pack":               404,
		"/r .git/info/refs":                                                       400,
		"/1/2/3/4/5/6/7/8.git/info/refs?service=git-upload-pack":                  403,
		"/1/2/3/4/5/6/7/8/9.git/info/refs?service=git-upload-pack":                404,
		"/" + strings.Repeat("x", 200) + ".git/info/refs?service=git-upload-pack": 403,
		"/" + strings.Repeat("x", 201) + ".git/info/refs?service=git-upload-pack": 404,
		"/org.git/info/refs?service=git-upload-pack":                              404,
		"/r.lock.git/info/refs?service=git-upload-pack":                           404,
		"/r.git/info/refs?service=git-upload-pack%00":                             200,
		"/api/repos/r.git/info/refs?service=git-upload-pack":                      403,
		"/api/repos/r%2Fs.git/info/refs?service=git-upload-pack":                  404,
		"/r.git/git-upload-pack/":                                                 404,
	}
	for target, status := range tests {
		t.Run(fmt.Sprintf("%.60s", target), func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			c.send("GET " + target + " HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
			if a := c.receive(http.MethodGet); a.StatusCode != status {
				t.Errorf("status %d, want %d: %s", a.StatusCode, status, a.body)
			}
		})
	}
}

// Headers that are too long, or mean two things.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"POST /read": reader}, nil)
	good := "Host: x\nAuthorization: " + token("r", "git:write") + "\n"
	tests := map[string]struct {
		headers string
		status  int
	}{
		"good":                  {good + "Content-Length: 0\n", 200},
		"31 KiB":                {good + "X-A: " + strings.Repeat("x", 30<<10) + "\n", 200},
		"33 KiB":                {good + "X-A: " + strings.Repeat("x", 33<<10) + "\n", 431},
		"endless":               {good + strings.Repeat("X-A: b\n", 10000), 431},
		"no host":               {"Authorization: x\n", 400},
		"two hosts":             {good + "Host: y\n", 400},
		"two tokens":            {good + "authorization: " + token("r", "git:write") + "\n", 400},
		"two types":             {good + "Content-Type: a/b\nContent-Type: a/c\n", 400},
		"two encodings":         {good + "Content-Encoding: gzip\nContent-Encoding: gzip\n", 400},
		"two idempotency keys":  {good + "Idempotency-Key: a\nIDEMPOTENCY-KEY: b\n", 400},
		"two chunkings":         {good + "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", 400},
		"length and chunks":     {good + "Content-Length: 0\nTransfer-Encoding: chunked\n", 400},
		"chunks and length":     {good + "Transfer-Encoding: chunked\nContent-Length: 0\n", 400},
		"length and identity":   {good + "Content-Length: 0\nTransfer-Encoding: identity\n", 400},
		"length with a sign":    {good + "Content-Length: +0\n", 400},
		"length in hexadecimal": {good + "Content-Length: 0x0\n", 400},
		"length, list":          {good + "Content-Length: 0, 0\n", 400},
		"length, huge":          {good + "Content-Length: 99999999999999999999\n", 400},
		"space before a colon":  {good + "Content-Length : 0\n", 400},
		"folded":                {good + "X-A: b\n c\n", 400},
		"no colon":              {good + "X-A\n", 400},
		"zero byte":             {good + "X-A: \x00\n", 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			c.send("POST /read HTTP/1.1\n" + test.headers + "\n")
			if a := c.receive(http.MethodPost); a.StatusCode != test.status {
				t.Errorf("status %d, want %d: %s", a.StatusCode, test.status, a.body)
			}
		})
	}
}

// HTTP/1.1 is the only protocol.
func TestProtocols(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		c.TLS = tlsConfig()
		c.TLS.NextProtos = []string{"h2"}
	})
	for offered, want := range map[string]string{"h2,http/1.1": "http/1.1", "": ""} {
		// The certificate was made above.
		c, err := tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true, NextProtos: strings.FieldsFunc(offered,
			func(r rune) bool { return r == ',' })})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != want {
			t.Errorf("of %q the server chose %q", offered, got)
		}
		_ = c.Close()
	}
	// The certificate was made above.
	if c, err := tls.Dial(
		"tcp", f.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	); err == nil {
		t.Error("a client that speaks h2 only is served")
		_ = c.Close()
	}

	plain := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, nil)
	for request, status := range map[string]int{
		"PRI * HTTP/2.0\n\nSM\n\n":                      505,
		"GET /get HTTP/1.0\nHost: x\n\n":                505,
		"GET /get HTTP/1.0\nConnection: keep-alive\n\n": 505,
		"GET /get HTTP/9.9\nHost: x\n\n":                505,
		"GET /get\n\n":                                  400,
		"GET  /get HTTP/1.1\nHost: x\n\n":               400,
	} {
		c := plain.dial(t)
		c.send(request)
		if a := c.receive(http.MethodGet); a.StatusCode != status {
			t.Errorf("%q: status %d, want %d", request, a.StatusCode, status)
		}
		_ = c.Close()
	}
}

// Neither the log nor the metrics contain a secret, and the metrics have no names.
func TestLogAndMetrics(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{
		"GET /get": respond(200, "got"), "GET /panic": func(exchange.Exchange, *auth.Grant) error { panic("on purpose") },
	}, nil)
	header := token("team/secretrepo", "git:read")
	secret := strings.TrimPrefix(header, "Bearer ")
	for _, target := range []string{
		"/get?token=" + secret, "/panic", "/team/secretrepo.git/info/refs?service=git-upload-pack", "/none/" + secret[:20],
	} {
		c := f.dial(t)
		c.send("GET " + target + " HTTP/1.1\nHost: x\nAuthorization: " + header + "\nCookie: " + secret + "\n\n")
		c.receive(http.MethodGet)
	}
	c := f.dial(t)
	c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
	metrics := c.receive(http.MethodGet).body
	for _, line := range []string{
		`packhorse_http_requests_total{method="GET",route="/get",status="200"} 1`,
		`packhorse_http_requests_total{method="GET",route="git/info/refs",status="200"} 1`,
		`packhorse_http_requests_total{method="GET",route="none",status="404"} 1`,
		`packhorse_panics_total 1`,
		`packhorse_heavy_slots_used 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(metrics, "secret") || strings.Contains(metrics, "acme") {
		t.Errorf("the metrics name somebody:\n%s", metrics)
	}
	log := f.log.String()
	if strings.Contains(log, secret) {
		t.Errorf("the log holds a token:\n%s", log)
	}
	for _, want := range []string{"org=acme", "repo=team/secretrepo", "status=200", "request_id=", "sub=ci", "kid=k"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	unhealthy := serve(t, nil, func(c *api.Config) {
		c.Private = true
		c.Ready = func() error { return fmt.Errorf("the disk of %s is full", "secret") }
		c.Logger = slog.New(slog.DiscardHandler)
	})
	if status, text := readiness(unhealthy); status != 503 || strings.Contains(text, "secret") {
		t.Errorf("ready with status %d: %q", status, text)
	}
	for target, status := range map[string]int{"/metrics": 404, "/debug/pprof/": 404, "/healthz": 200, "/readyz": 503} {
		c := unhealthy.dial(t)
		c.send("GET " + target + " HTTP/1.1\nHost: x\n\n")
		if a := c.receive(http.MethodGet); a.StatusCode != status {
			t.Errorf("%s: status %d, want %d", target, a.StatusCode, status)
		}
	}
	for target, status := range map[string]int{
		"/metrics": 200, "/debug/pprof/": 200, "/healthz": 200, "/readyz": 503, "/api/v1/repos": 404,
	} {
		w := httptest.NewRecorder()
		unhealthy.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != status {
			t.Errorf("%s on the private listener: status %d, want %d", target, w.Code, status)
		}
	}
}

func TestBadTables(t *testing.T) {
	t.Parallel()
	good := api.Route{Method: "GET", Path: "/x", Scope: auth.GitRead, Denied: 401, Handler: respond(200, "")}
	for name, edit := range map[string]func(r *api.Route){
		"no scope":   func(r *api.Route) { r.Scope = 0 },
		"no status":  func(r *api.Route) { r.Denied = 0 },
		"bad status": func(r *api.Route) { r.Denied = 404 },
		"no handler": func(r *api.Route) { r.Handler = nil },
		"twice":      func(*api.Route) {},
	} {
		bad := good
		bad.Method = "POST"
		if name == "twice" {
			bad.Method = "GET"
		}
		edit(&bad)
		_, err := api.NewServer(api.Config{
			Tokens: &auth.Verifier{}, Refuse: refuseJSON, Routes: []api.Route{good, bad},
			Git: api.Git{Serve: func(exchange.Exchange, exchange.GitPath, *auth.Grant) error { return nil }, Refuse: refuseJSON},
		})
		if err == nil {
			t.Errorf("%s: the table is accepted", name)
		}
	}
}
