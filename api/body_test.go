package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// A body that ends before its end reads as exchange.ErrEndedEarly; fasthttp takes every one of
// these for complete.
func TestShortBodies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ framing, body, want string }{
		// fasthttp waits for the first byte: there is no request.
		"length, nothing came":       {"Content-Length: 10", "", ""},
		"length, part came":          {"Content-Length: 100000", strings.Repeat("x", 9000), "9000 the request ended early"},
		"length, all but one":        {"Content-Length: 10", "123456789", "9 the request ended early"},
		"length, complete":           {"Content-Length: 10", "1234567890", "10 <nil>"},
		"chunks, cut in a size":      {"Transfer-Encoding: chunked", "3\r\nabc\r\n1", "3 the request ended early"},
		"chunks, cut after a size":   {"Transfer-Encoding: chunked", "3\r\nabc\r\n5\r\n", "3 the request ended early"},
		"chunks, cut in a chunk":     {"Transfer-Encoding: chunked", "3\r\nabc\r\n5\r\nab", "5 the request ended early"},
		"chunks, cut after a chunk":  {"Transfer-Encoding: chunked", "3\r\nabc", "3 the request ended early"},
		"chunks, cut between chunks": {"Transfer-Encoding: chunked", "3\r\nabc\r\n", "3 the request ended early"},
		"chunks, cut before the end": {"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n", "3 the request ended early"},
		"chunks, cut in the trailer": {
			"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\nX-A: b\r\n", "3 the request ended early",
		},
		"chunks, nothing came":        {"Transfer-Encoding: chunked", "", "0 the request ended early"},
		"chunks, complete":            {"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n", "3 <nil>"},
		"chunks, complete, extension": {"Transfer-Encoding: chunked", "3;a=b\r\nabc\r\n0\r\n\r\n", "3 <nil>"},
		"chunks, complete, trailer":   {"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\nX-A: b\r\n\r\n", "3 <nil>"},
		"chunks, empty":               {"Transfer-Encoding: chunked", "0\r\n\r\n", "0 <nil>"},
		"chunks, no size":             {"Transfer-Encoding: chunked", "xyz\r\n", "0 malformed request body"},
		"chunks, huge size": {
			"Transfer-Encoding: chunked", "ffffffffffffffffff\r\nabc", "0 malformed request body",
		},
		"chunks, negative size":     {"Transfer-Encoding: chunked", "-1\r\nabc", "0 malformed request body"},
		"chunks, no end of a chunk": {"Transfer-Encoding: chunked", "3\r\nabcdef", "3 malformed request body"},
		"chunks, bare line feed":    {"Transfer-Encoding: chunked", "3\nabc\n0\n\n", "0 malformed request body"},
		"chunks, over the limit": {
			"Transfer-Encoding: chunked", chunks(2<<20, 1<<16),
			fmt.Sprintf("%d request body exceeds the limit of 1048576 bytes", 1<<20),
		},
		"chunks, framing only": {"Transfer-Encoding: chunked", "1;" + strings.Repeat("x", 8<<20), "0 malformed request body"},
	}
	for _, secure := range []bool{false, true} {
		f := serve(t, map[string]api.Handler{"POST /read": reader}, func(c *api.Config) {
			if secure {
				c.TLS = tlsConfig()
			}
		})
		for name, test := range tests {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				c := f.dial(t)
				c.send("POST /read HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") + "\n" + test.framing + "\n\n")
				c.raw(test.body)
				c.closeWrite()
				if test.want == "" {
					if a := c.receive(http.MethodPost); a.StatusCode != http.StatusBadRequest {
						t.Errorf("status %d, want 400", a.StatusCode)
					}
					return
				}
				if a := c.receive(http.MethodPost); a.body != test.want {
					t.Errorf("the handler read %q, want %q", a.body, test.want)
				}
			})
		}
	}
}

// chunks is a body of a size in chunks, without its end.
func chunks(size, each int) string {
	chunk := fmt.Sprintf("%x\r\n%s\r\n", each, strings.Repeat("x", each))
	return strings.Repeat(chunk, size/each)
}

// hidden is a request that an attacker hides in the body of another one.
const hidden = "POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: %s\r\n\r\n"

// A request in the unread part of a body is never executed, and the answer to the first one always
// arrives.
func TestHiddenRequests(t *testing.T) {
	t.Parallel()
	good := token("r", "git:write")
	inner := fmt.Sprintf(hidden, good)
	long := strings.Repeat("x", 300<<10)
	frame := func(body string) string {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	chunked := func(body string) string {
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
	}
	tests := map[string]struct {
		path, token, rest string
		status            int
	}{
		"no token, short":           {"/read", "", frame(inner), 401},
		"no token, long":            {"/read", "", frame(long + inner), 401},
		"no token, claimed length":  {"/read", "", "Content-Length: 1000000000\r\n\r\n" + inner, 401},
		"no token, chunks":          {"/read", "", chunked(inner), 401},
		"no token, long chunk":      {"/read", "", chunked(long + inner), 401},
		"no token, after the end":   {"/read", "", "Transfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\n" + inner, 401},
		"no such path":              {"/none", good, frame(long + inner), 404},
		"other method":              {"/get", good, frame(long + inner), 405},
		"too large":                 {"/read", good, "Content-Length: 1048577\r\n\r\n" + inner, 413},
		"too large in chunks":       {"/read", good, chunked(strings.Repeat("x", 1<<20+1) + inner), 200},
		"handler does not read":     {"/ignore", good, frame(long + inner), 200},
		"handler does not read all": {"/some", good, frame(long + inner), 200},
		"handler fails":             {"/fail", good, frame(long + inner), 500},
		"handler panics":            {"/panic", good, frame(long + inner), 500},
		"handler streams":           {"/stream", good, frame(long + inner), 200},
		"malformed chunk":           {"/read", good, "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + inner, 200},
		"two framings": {
			"/read", good, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, 400,
		},
		"two lengths":          {"/read", good, "Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx" + inner, 400},
		"two tokens":           {"/read", good, "Authorization: x\r\n" + frame(long+inner), 400},
		"unknown framing":      {"/read", good, "Transfer-Encoding: gzip, chunked\r\n\r\n" + inner, 400},
		"HTTP/1.0":             {"/read", good, frame(long + inner), 505},
		"expecting, no token":  {"/read", "", "Expect: 100-continue\r\n" + frame(inner), 401},
		"expecting, too large": {"/read", good, "Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n" + inner, 413},
	}
	var executed atomic.Int64
	f := serve(t, map[string]api.Handler{
		"POST /hidden": func(x exchange.Exchange, _ *auth.Grant) error {
			executed.Add(1)
			return respond(200, "executed")(x, nil)
		},
		"POST /read":   reader,
		"GET /get":     respond(200, ""),
		"POST /ignore": respond(200, "ignored"),
		"POST /some": func(x exchange.Exchange, _ *auth.Grant) error {
			_, err := io.ReadFull(x.Body(), make([]byte, 10))
			x.Respond(200, "text/plain", []byte("some"))
			return err
		},
		"POST /fail":  func(exchange.Exchange, *auth.Grant) error { return io.ErrNoProgress },
		"POST /panic": func(exchange.Exchange, *auth.Grant) error { panic("on purpose") },
		"POST /stream": func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", writes("streamed"))
			return nil
		},
	}, nil)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			version := "HTTP/1.1"
			if name == "HTTP/1.0" {
				version = name
			}
			c.raw(fmt.Sprintf("POST %s %s\r\nHost: x\r\n", test.path, version))
			if test.token != "" {
				c.raw("Authorization: " + test.token + "\r\n")
			}
			c.raw(test.rest)
			a := c.receive(http.MethodPost)
			if a.StatusCode != test.status || a.cut != nil {
				t.Errorf("status %d (%v), want %d: %s", a.StatusCode, a.cut, test.status, a.body)
			}
			if a.Header.Get("X-Request-Id") == "" {
				t.Error("the answer has no request id")
			}
			// The rest: nothing, or the answer of a connection that goes on because the whole body was read.
			c.closeWrite()
			c.closes()
		})
	}
	t.Cleanup(func() {
		if n := executed.Load(); n != 0 {
			t.Errorf("%d hidden requests were executed", n)
		}
	})
}

// A connection goes on after a body of which the handler left a little, or only the end, unread.
func TestSmallRestsAreDrained(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"length":               "Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000),
		"chunks":               "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + strings.Repeat("x", 1000) + "\r\n0\r\n\r\n",
		"chunks and a trailer": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: b\r\n\r\n",
		"refused":              "X-Refuse: yes\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000),
		"no body":              "\r\n",
		"empty":                "Content-Length: 0\r\n\r\n",
	}
	f := serve(t, map[string]api.Handler{"POST /some": func(x exchange.Exchange, _ *auth.Grant) error {
		if x.Header("X-Refuse") != "" {
			return &exchange.Error{Status: 409, Message: "no"}
		}
		_, _ = io.ReadFull(x.Body(), make([]byte, 3))
		x.Respond(200, "text/plain", nil)
		return nil
	}}, func(c *api.Config) { c.Limits.DrainWait = time.Minute })
	for name, rest := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			for range 3 {
				c.raw("POST /some HTTP/1.1\r\nHost: x\r\nAuthorization: " + token("r", "git:write") + "\r\n" + rest)
				if a := c.receive(http.MethodPost); a.StatusCode != 200 && a.StatusCode != 409 || a.Close {
					t.Fatalf("status %d, close %t: %s", a.StatusCode, a.Close, a.body)
				}
			}
		})
	}
}

// Multipart bodies are bytes like any others.
func TestMultipartIsNotParsed(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"POST /read": reader}, nil)
	c := f.dial(t)
	body := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\ndata\r\n--b--\r\n"
	c.raw(fmt.Sprintf(
		"POST /read HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s",
		token("r", "git:write"), len(body), body,
	))
	if a := c.receive(http.MethodPost); a.body != fmt.Sprintf("%d <nil>", len(body)) {
		t.Errorf("the handler read %q", a.body)
	}
}
