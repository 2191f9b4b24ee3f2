//go:build clients

package clienttest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// shown shows the page of an address and returns its text, whatever the browser logs about answers
// that are no success.
func (c *console) shown(address string) consolePage {
	c.t.Helper()
	c.turnTo(address)
	var page consolePage
	c.run(&page, readPage)
	for _, message := range c.log() {
		if !strings.Contains(message, "Failed to load resource") && !strings.Contains(message, "Failed to fetch") {
			c.t.Errorf("%s: the browser logged %s", address, message)
		}
	}
	if len(page.Strange) > 0 || page.Wider > 0 {
		c.t.Errorf("%s: the page has %q, and is %d pixels wider than the window", address, page.Strange, page.Wider)
	}
	return page
}

// pressButton presses a button of the page, and waits for the page that comes of it.
func (c *console) pressButton(text string) consolePage {
	c.t.Helper()
	var page consolePage
	c.run(nil, `const button = [...document.querySelectorAll("main button")].find((b) => b.textContent === args[0]);
		if (!button) throw new Error("no button " + args[0]);
		document.getElementById("main").setAttribute("aria-busy", "true");
		button.click();`, text)
	c.run(&page, readPage)
	c.log()
	return page
}

// TestConsoleRefusals shows what a page says when the server refuses, is busy or is away, and that
// it can be tried again.
func TestConsoleRefusals(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	backend, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var refuse atomic.Pointer[http.HandlerFunc] // nil: the server answers
	proxy := httputil.NewSingleHostReverseProxy(backend)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler := refuse.Load(); handler != nil && strings.HasPrefix(r.URL.Path, "/api/") {
			(*handler)(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	c := openConsole(t, &packhorsetest.Server{URL: front.URL}, tokens...)
	answers := func(status int, after, message string) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"error": %q}`, message)
		})
		refuse.Store(&handler)
	}
	gone := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, test := range []struct {
		name    string
		prepare func()
		heading string
		texts   []string
		again   bool
	}{
		{
			"too many", func() { answers(http.StatusTooManyRequests, "7", "rate limit") }, "Too many requests",
			[]string{"rate limit", "asks to wait 7 seconds"},
			true,
		},
		{
			"busy", func() { answers(http.StatusServiceUnavailable, "1", "the stores are away") }, "The server cannot answer now",
			[]string{"the stores are away", "asks to wait 1 second."},
			true,
		},
		{
			"broken", func() { answers(http.StatusInternalServerError, "", "internal error") }, "The page could not be shown",
			[]string{"internal error"},
			true,
		},
		{"gone", func() { refuse.Store(&gone) }, "The page could not be shown", []string{"could not be reached"}, true},
		{
			"unauthorized", func() { answers(http.StatusUnauthorized, "", "token expired") }, "The token was refused",
			[]string{"token expired", "Sign in with another token"},
			false,
		},
		{
			"forbidden", func() { answers(http.StatusForbidden, "", "scope git:read missing") }, "The token does not allow this",
			[]string{"scope git:read missing"},
			false,
		},
	} {
		for _, address := range []string{"#/", "#/tree?repo=team%2Fplain", "#/commit?repo=team%2Fplain&ref=main"} {
			test.prepare()
			page := c.shown(address)
			if page.Heading != test.heading || page.Focus != "h1" {
				t.Errorf("%s: %s: the heading is %q and the focus on %s, want %q", test.name, address, page.Heading, page.Focus, test.heading)
			}
			for _, text := range test.texts {
				if !strings.Contains(page.Text, text) {
					t.Errorf("%s: %s does not tell %q", test.name, address, text)
				}
			}
			if again := strings.Contains(page.Text, "Try again"); again != test.again {
				t.Errorf("%s: %s offers to try again: %t", test.name, address, again)
			}
			refuse.Store(nil)
			if !test.again {
				continue
			}
			if page := c.pressButton("Try again"); page.Heading == test.heading || page.Focus != "h1" {
				t.Errorf("%s: %s: trying again shows %q with the focus on %s", test.name, address, page.Heading, page.Focus)
			}
		}
		c.keepPicture("refused-" + test.name)
	}
}

// TestConsoleServers opens the page for operators where a balancer leads to two servers in turn.
func TestConsoleServers(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	var proxies []*httputil.ReverseProxy
	for range 2 {
		backend, err := url.Parse(start(t, packhorsetest.Options{}).URL)
		if err != nil {
			t.Fatal(err)
		}
		proxies = append(proxies, httputil.NewSingleHostReverseProxy(backend))
	}
	var balanced atomic.Bool
	var turn atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && balanced.Load() {
			proxies[turn.Add(1)%2].ServeHTTP(w, r)
			return
		}
		proxies[0].ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	c := openConsole(t, &packhorsetest.Server{URL: front.URL})
	const told = `return String([...document.querySelectorAll("main .notice")].some((e) => !e.hidden && e.textContent.includes("Several servers")));`
	for _, several := range []bool{false, true} {
		balanced.Store(several)
		c.visit("#/operations")
		// A third look is after seconds, so that none is waited for where there is one server.
		var text string
		wait := ""
		if several {
			wait = `const notice = document.querySelector("main .notice");
				if (notice.hidden) await new Promise((done) => new MutationObserver((_, look) => { look.disconnect(); done(); })
					.observe(notice, { attributes: true }));`
		}
		c.run(&text, wait+told)
		if text != fmt.Sprint(several) {
			t.Errorf("with a balancer: %t; the page tells of several servers: %s", several, text)
		}
	}
	c.keepPicture("servers")
}

// TestConsoleMissing shows what a page says when something is not there: why, and the form to ask
// for something else.
func TestConsoleMissing(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	for address, want := range map[string]struct {
		texts []string
		field string // of the form
		value string
	}{
		"#/tree?repo=team%2Fplain&ref=nowhere":             {[]string{"Not found", `"nowhere"`}, "ref", "nowhere"},
		"#/history?repo=team%2Fplain&ref=nowhere":          {[]string{"Not found"}, "ref", "nowhere"},
		"#/blame?repo=team%2Fplain&path=none":              {[]string{"Not found", `"none"`}, "ref", ""},
		"#/compare?repo=team%2Fplain&ref=main&base=none":   {[]string{"Not found"}, "base", "none"},
		"#/search?repo=team%2Fplain&q=%28&regexp=true":     {[]string{"missing closing )"}, "q", "("},
		"#/tree?repo=team%2Fplain&ref=main%40%7Bseq:99%7D": {[]string{"seq:99 has not come"}, "ref", "main@{seq:99}"},
		"#/search?repo=empty&q=x":                          {[]string{"no commit yet"}, "", ""},
		"#/compare?repo=empty&ref=main":                    {[]string{"no commit yet"}, "", ""},
		"#/blame?repo=empty&path=x":                        {[]string{"no commit yet"}, "", ""},
		"#/blame?repo=hostile&path=binary":                 {[]string{"A binary file has no lines."}, "ref", ""},
	} {
		page := c.shown(address)
		for _, text := range want.texts {
			if !strings.Contains(page.Text, text) {
				t.Errorf("%s shows %q, want %q", address, page.Text, text)
			}
		}
		if want.field == "" {
			continue
		}
		var value string
		c.run(&value, `return document.getElementById(args[0])?.value ?? "no field"`, want.field)
		if value != want.value {
			t.Errorf("%s: the field %s has %q, want %q", address, want.field, value, want.value)
		}
	}
}

// TestConsoleExpired shows what a tab says whose tokens have expired, and what it does of a
// repository that it has no token for.
func TestConsoleExpired(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server)
	// put keeps tokens as a sign-in did, and makes those of the names in past older than they are.
	put := func(tokens []string, past ...string) {
		t.Helper()
		c.run(nil, `const old = (text) => {
				const [head, body, mark] = text.split(".");
				const claims = JSON.parse(atob(body.replace(/-/g, "+").replace(/_/g, "/")));
				if (!args[1].includes(claims.repo)) return text;
				return [head, btoa(JSON.stringify({ ...claims, exp: 1000 })), mark].join(".");
			};
			sessionStorage.setItem("packhorse.tokens", JSON.stringify(args[0].map(old)));`, tokens, past)
	}
	for _, test := range []struct {
		name, address string
		tokens        []string
		past          []string
		heading       string
		texts         []string
	}{
		{
			"nobody", "#/tree?repo=team%2Fplain",
			[]string{},
			[]string{},
			"No token for team/plain",
			[]string{"this tab has none for this one", "packhorse token --org ORG --key KEY.pem --repo team/plain"},
		},
		{
			"another", "#/repository?repo=none", tokens,
			[]string{},
			"No token for none",
			[]string{"this tab has none for this one", "packhorse token --org acme --key KEY.pem --repo none"},
		},
		{
			"no name", "#/repository?repo=" + url.QueryEscape("x; rm x"), tokens,
			[]string{},
			"No token for x; rm x",
			[]string{"this tab has none for this one. The organization signs one."},
		},
		{
			"expired", "#/history?repo=team%2Fplain", tokens,
			[]string{"team/plain"},
			"No token for team/plain",
			[]string{"for the repository has expired", "--repo team/plain", "expired"},
		},
		{"list", "#/", tokens, []string{"org"}, "Repositories", []string{"with org:read has expired: these are", "team/plain"}},
		{"all", "#/", tokens[3:], []string{"org"}, "Tokens", []string{"org:read has expired: the list"}},
		{"tokens", "#/signin", tokens, []string{"empty"}, "Tokens", []string{"UTCexpired"}},
	} {
		put(test.tokens, append(test.past, "nothing")...)
		page := c.shown(test.address)
		if page.Heading != test.heading {
			t.Errorf("%s: the heading is %q, want %q", test.name, page.Heading, test.heading)
		}
		for _, text := range test.texts {
			if !strings.Contains(page.Text, text) {
				t.Errorf("%s: no %q in %q", test.name, text, page.Text)
			}
		}
		c.keepPicture("token-" + test.name)
	}

	// Signing in leads to what was asked for, also where the address stays the same.
	for _, test := range []struct{ address, token, heading string }{
		{"#/", tokens[3], "Repositories"},
		{"#/history?repo=team%2Fplain&ref=topic", tokens[0], "History"},
		{"#/signin?repo=team%2Fplain", tokens[0], "team/plain"},
	} {
		put([]string{}, "nothing")
		c.shown(test.address)
		c.keys(test.token + "\ue004") // tab
		c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true")`)
		c.keys("\ue007") // enter
		if page := c.look("after signing in at " + test.address); page.Heading != test.heading {
			t.Errorf("signing in at %s leads to %q, want %q", test.address, page.Heading, test.heading)
		}
	}
}
