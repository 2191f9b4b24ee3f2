package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// The origins that a server takes, and what it says about others.
func TestCheckOrigins(t *testing.T) {
	t.Parallel()
	for list, says := range map[string]string{
		"":                        "",
		"*":                       "",
		"https://app.example.com": "",
		"http://localhost:5173 https://a.example https://[::1]:8443": "",

		"* https://app.example.com":    "expected * alone",
		"https://app.example.com/":     "expected https://app.example.com",
		"https://APP.example.com":      "expected https://app.example.com",
		"https://app.example.com:443":  "expected https://app.example.com",
		"http://localhost:":            "expected http://localhost",
		"https://u:p@app.example.com":  "expected https://app.example.com",
		"https://app.example.com/?x#y": "expected https://app.example.com",
		"app.example.com":              "expected one as in",
		"localhost:5173":               "expected one as in",
		"ftp://app.example.com":        "expected one as in",
		"https://":                     "expected one as in",
		"https://*.example.com:x":      "expected one as in",
		"null":                         "expected one as in",
	} {
		err := api.CheckOrigins(strings.Fields(list))
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", list, err, says)
		}
	}
}

// Browsers ask before they let a page send a token. They get their answer without one, for any path
// of the API and of git, and nothing is run.
func TestPreflight(t *testing.T) {
	t.Parallel()
	routes := map[string]api.Handler{
		"GET /api/v1/repos": func(exchange.Exchange, *auth.Grant) error {
			t.Error("a preflight was taken for a request")
			return nil
		},
		"GET /other": respond(http.StatusOK, "other"),
	}
	with := func(origins ...string) *fixture {
		return serve(t, routes, func(c *api.Config) { c.Origins = origins })
	}
	some, every, none := with("https://a.example", "http://localhost:5173"), with("*"), with()
	for name, test := range map[string]struct {
		server               *fixture
		path, origin, method string
		status               int
		allowed, vary        string
	}{
		"allowed":          {some, "/api/v1/repos", "https://a.example", "PATCH", 204, "https://a.example", "Origin"},
		"another":          {some, "/api/v1/repos", "http://localhost:5173", "GET", 204, "http://localhost:5173", "Origin"},
		"a path of no one": {some, "/api/repos/x%2Fy/nothing", "https://a.example", "GET", 204, "https://a.example", "Origin"},
		"git":              {some, "/x/y.git/git-upload-pack", "https://a.example", "POST", 204, "https://a.example", "Origin"},
		"any":              {every, "/api/v1/repos", "https://b.example", "GET", 204, "*", ""},
		"any, null":        {every, "/x.git/info/refs", "null", "GET", 204, "*", ""},

		"not allowed":   {some, "/api/v1/repos", "https://b.example", "GET", 403, "", "Origin"},
		"null":          {some, "/api/v1/repos", "null", "GET", 403, "", "Origin"},
		"a part of it":  {some, "/api/v1/repos", "https://a.example.evil", "GET", 403, "", "Origin"},
		"other letters": {some, "/api/v1/repos", "https://A.example", "GET", 403, "", "Origin"},
		"no origin":     {some, "/api/v1/repos", "", "GET", 405, "", "Origin"},
		"no method":     {some, "/api/v1/repos", "https://a.example", "", 405, "https://a.example", "Origin"},
		"metrics":       {every, "/metrics", "https://a.example", "GET", 405, "", ""},
		"health":        {every, "/healthz", "https://a.example", "GET", 405, "", ""},
		"tools":         {every, "/mcp", "https://a.example", "POST", 405, "", ""},
		"another path":  {every, "/other", "https://a.example", "GET", 405, "", ""},
		"no flag":       {none, "/api/v1/repos", "https://a.example", "GET", 405, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.server.dial(t)
			header := "OPTIONS " + test.path + " HTTP/1.1\nHost: x\nAccess-Control-Request-Headers: authorization\n"
			if test.origin != "" {
				header += "Origin: " + test.origin + "\n"
			}
			if test.method != "" {
				header += "Access-Control-Request-Method: " + test.method + "\n"
			}
			c.send(header + "\n")
			a := c.receive(http.MethodOptions)
			if a.StatusCode != test.status || a.Header.Get("Access-Control-Allow-Origin") != test.allowed ||
				a.Header.Get("Vary") != test.vary {
				t.Errorf("status %d, %v: %s", a.StatusCode, a.Header, a.body)
			}
			if _, ok := a.Header["Access-Control-Allow-Credentials"]; ok {
				t.Error("credentials are allowed")
			}
			methods, headers := a.Header.Get("Access-Control-Allow-Methods"), a.Header.Get("Access-Control-Allow-Headers")
			if test.status == http.StatusNoContent {
				if !strings.Contains(methods, test.method) || !strings.Contains(headers, "Authorization, ") ||
					!strings.Contains(headers, "Idempotency-Key, ") || a.Header.Get("Access-Control-Max-Age") == "" || a.body != "" {
					t.Errorf("%v %q", a.Header, a.body)
				}
			} else if methods+headers != "" {
				t.Errorf("it allows %q, %q", methods, headers)
			}
		})
	}
}

// A page of an allowed origin reads answers and refusals, with the headers that it needs; another
// page reads neither. Browsers send no origin with most requests of a page to its own server.
func TestPagesRead(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /api/v1/repos": respond(http.StatusOK, "read")}, func(c *api.Config) {
		c.Origins = []string{"https://a.example"}
	})
	for _, path := range []string{
		"/api/v1/repos", "/api/v1/repos?%zz", "/api/v1/nothing", "/api/repos/none", "/r.git/info/refs?service=git-upload-pack",
	} {
		for _, authorization := range []string{token("r", "git:read"), "Bearer x.y.z"} {
			for origin, allowed := range map[string]string{
				"https://a.example": "https://a.example", "https://b.example": "", "null": "", "": "",
			} {
				c := f.dial(t)
				header := "GET " + path + " HTTP/1.1\nHost: x\nAuthorization: " + authorization + "\n"
				if origin != "" {
					header += "Origin: " + origin + "\n"
				}
				c.send(header + "\n")
				a := c.receive(http.MethodGet)
				shown := a.Header.Get("Access-Control-Expose-Headers")
				if a.Header.Get("Access-Control-Allow-Origin") != allowed || a.Header.Get("Vary") != "Origin" ||
					(allowed == "") != (shown == "") {
					t.Errorf("%s for %q: %d %v", path, origin, a.StatusCode, a.Header)
				}
			}
		}
	}
}

// A page can read every header that the doors set, but for those that mean nothing to it.
func TestPagesReadHeaders(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /api/v1/repos": respond(http.StatusOK, "read")}, func(c *api.Config) {
		c.Origins = []string{"*"}
	})
	c := f.dial(t)
	c.send("GET /api/v1/repos HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
	shown := strings.ToLower(c.receive(http.MethodGet).Header.Get("Access-Control-Expose-Headers") + ", ")
	for _, always := range []string{ // readable without being named, or for browsers and proxies alone
		"Cache-Control", "Content-Type", "Expires", "Last-Modified", "Pragma", "Location", "X-Accel-Buffering",
	} {
		shown += strings.ToLower(always) + ", "
	}
	set := regexp.MustCompile(`SetHeader\("([^"]+)"`)
	for _, folder := range []string{"rest", "githttp"} {
		files, err := filepath.Glob(folder + "/*.go")
		must(err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			must(err)
			for _, header := range set.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(shown, strings.ToLower(header[1])+", ") && !strings.HasSuffix(name, "_test.go") {
					t.Errorf("%s: pages cannot read %s", name, header[1])
				}
			}
		}
	}
}
