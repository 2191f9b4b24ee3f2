package api_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"packhorse/api"
)

// logLine returns the line of the log about a path.
func (f *fixture) logLine(t *testing.T, path string) string {
	t.Helper()
	for line := range strings.Lines(f.log.String()) {
		if strings.Contains(line, "msg=request ") && strings.Contains(line, "path="+path+" ") {
			return line
		}
	}
	t.Fatalf("nothing about %s is logged:\n%s", path, f.log)
	return ""
}

// A refused request is logged with the reason, and with the user agent of the client.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{
		"GET /get": respond(200, "got"), "GET /refused": respond(200, "got"), "POST /post": reader,
	}, nil)
	tests := map[string]struct{ request, want string }{
		"/refused": {
			"GET /refused HTTP/1.1\nHost: x\nUser-Agent: git/2.39.5\n\n",
			`user_agent=git/2.39.5 code=token_missing error="missing authorization header"`,
		},
		"/absent": {get("/absent"), `code=endpoint_not_found error="no such path"`},
		"/post": {
			"POST /post HTTP/1.1\nHost: x\nContent-Length: 0\nAuthorization: " + token("r", "git:read") + "\n\n",
			`code=scope_missing error="the token lacks the scope`,
		},
		"/healthz": {
			"DELETE /healthz HTTP/1.1\nHost: x\nUser-Agent: " + strings.Repeat("u", 1000) + "\n\n",
			`user_agent=` + strings.Repeat("u", 300) + ` code=method_not_allowed error="method not allowed"`,
		},
	}
	for path, test := range tests {
		c := f.dial(t)
		c.send(test.request)
		c.receive(http.MethodGet)
		c.get() // the line is written before the next request is read
		if line := f.logLine(t, path); !strings.Contains(line, test.want) {
			t.Errorf("logged %swant %s", line, test.want)
		}
	}
	if line := f.logLine(t, "/get"); strings.Contains(line, "proxy=") {
		t.Errorf("a direct client has a proxy: %s", line)
	}
}

// The log has the client that a trusted proxy names, and the proxy; other proxies are not trusted.
func TestClientBehindProxyIsLogged(t *testing.T) {
	t.Parallel()
	const request = "GET /healthz HTTP/1.1\nHost: x\nX-Forwarded-For: 203.0.113.9\nX-Forwarded-For: 198.51.100.1\n\n"
	for name, test := range map[string]struct {
		trusted string
		want    string
	}{
		"trusted":     {"127.0.0.0/8", "remote=198.51.100.1 "},
		"not trusted": {"10.0.0.0/8", "remote=127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
				c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(test.trusted)}
			})
			c := f.dial(t)
			c.send(request)
			c.receive(http.MethodGet)
			c.get()
			line := f.logLine(t, "/healthz")
			if !strings.Contains(line, test.want) || strings.Contains(line, " proxy=127.0.0.1:") != (name == "trusted") {
				t.Errorf("logged %swant %s", line, test.want)
			}
		})
	}
}
