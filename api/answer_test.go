package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
)

// internalError is the body of a 500.
const internalError = `{"error":"internal error","code":"internal"}` + "\n"

func tlsConfig() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{keys().certificate}} }

// writes is a write function of these pieces.
func writes(pieces ...string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		for _, piece := range pieces {
			if _, err := io.WriteString(w, piece); err != nil {
				return err
			}
		}
		return nil
	}
}

// half is more than fasthttp keeps back.
var half = strings.Repeat("half", 4<<10)

// failing writes something and then fails.
func failing(_ context.Context, w io.Writer) error {
	_, _ = io.WriteString(w, half)
	return errors.New("on purpose")
}

func panicking(_ context.Context, w io.Writer) error {
	_, _ = io.WriteString(w, half)
	panic("on purpose")
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 16<<10)
	tests := map[string]struct {
		method  string
		handler api.Handler
		status  int
		body    string
		length  int64 // of Content-Length; -1 for none
		cut     bool
	}{
		"whole": {"GET", respond(201, "hello"), 201, "hello", 5, false},
		"empty": {"GET", respond(204, ""), 204, "", 0, false},
		"stream": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", writes("a", "", big, "b"))
			return nil
		}, 200, "a" + big + "b", -1, false},
		"stream of nothing": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", writes())
			return nil
		}, 200, "", -1, false},
		"sized": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", int64(len(big)+1), writes("a", big))
			return nil
		}, 200, "a" + big, int64(len(big) + 1), false},
		"stream to HEAD": {"HEAD", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", panicking)
			return nil
		}, 200, "", -1, false},
		"sized to HEAD": {"HEAD", func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", 7, panicking)
			return nil
		}, 200, "", 7, false},
		"whole to HEAD": {"HEAD", respond(200, "hello"), 200, "", 5, false},
		"stream that fails": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", failing)
			return nil
		}, 200, half, -1, true},
		"stream that panics": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", panicking)
			return nil
		}, 200, half, -1, true},
		"sized that fails": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", 1<<20, failing)
			return nil
		}, 200, half, 1 << 20, true},
		"sized, too little": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", 1<<20, writes(half))
			return nil
		}, 200, half, 1 << 20, true},
		"sized, too much": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", int64(len(half)), writes(half, "!"))
			return nil
		}, 200, half, int64(len(half)), false}, // nothing beyond the size is sent, and the connection ends
		"error after an answer": {"GET", func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", panicking)
			return &exchange.Error{Status: 409, Code: code.RefExists, Message: "no"}
		}, 409, `{"error":"no","code":"ref_exists"}` + "\n", 35, false},
		"no answer": {
			"GET", func(exchange.Exchange, *auth.Grant) error { return nil }, 500, internalError,
			45, false,
		},
		"panic": {
			"GET", func(exchange.Exchange, *auth.Grant) error { panic("on purpose") }, 500,
			internalError, 45, false,
		},
		// On purpose.
		"panic with nil": {
			"GET", func(exchange.Exchange, *auth.Grant) error { panic(nil) }, 500, internalError,
			45, false,
		},
		"unknown error": {
			"GET", func(exchange.Exchange, *auth.Grant) error { return errors.New("secret") }, 500,
			internalError, 45, false,
		},
		"retriable error": {
			"GET", func(exchange.Exchange, *auth.Grant) error { return exchange.ErrBusy }, 503,
			`{"error":"the server is busy, try again","code":"busy"}` + "\n", 56, false,
		},
	}
	for _, secure := range []bool{false, true} {
		for name, test := range tests {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				f := serve(t, map[string]api.Handler{test.method + " /x": test.handler}, func(c *api.Config) {
					if secure {
						c.TLS = tlsConfig()
					}
				})
				c := f.dial(t)
				request := test.method + " /x HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n"
				c.send(request)
				a := c.receive(test.method)
				if a.StatusCode != test.status || a.body != test.body || a.ContentLength != test.length ||
					(a.cut != nil) != test.cut {
					t.Fatalf("status %d, length %d, cut %v, body %.100q", a.StatusCode, a.ContentLength, a.cut, a.body)
				}
				if a.Header.Get("X-Request-Id") == "" || a.Header.Get("Server") != "packhorse" {
					t.Errorf("headers %v", a.Header)
				}
				if a.StatusCode == 500 && !strings.Contains(f.log.String(), a.Header.Get("X-Request-Id")) {
					t.Errorf("the request id is not in the log:\n%s", f.log)
				}
				if a.StatusCode == 503 && a.Header.Get("Retry-After") != "2" {
					t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
				}
				if test.cut || name == "sized, too much" {
					c.closes()
					return
				}
				c.send(request) // the connection goes on, without a stray byte in between
				if again := c.receive(test.method); again.StatusCode != test.status || again.body != test.body {
					t.Errorf("the second time: status %d, body %.100q", again.StatusCode, again.body)
				}
			})
		}
	}
}

// A door that fails to report an error does not take the server down.
func TestPanicInTheDoor(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, func(c *api.Config) {
		c.Refuse = func(exchange.Exchange, error) problem.Problem { panic("on purpose") }
	})
	c := f.dial(t)
	c.send(get("/none"))
	if a := c.receive(http.MethodGet); a.StatusCode != http.StatusInternalServerError ||
		a.body != internalError {
		t.Errorf("status %d, %q", a.StatusCode, a.body)
	}
}

// Nothing of a header that a handler sets can end the header.
func TestHeadersCannotBeSplit(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /x": func(x exchange.Exchange, _ *auth.Grant) error {
		x.SetHeader("X-A", "b\r\nX-Injected: c")
		x.Respond(200, "text/plain\r\nX-Injected: c", nil)
		return nil
	}}, nil)
	c := f.dial(t)
	c.send("GET /x HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
	if a := c.receive(http.MethodGet); a.Header.Get("X-Injected") != "" {
		t.Errorf("headers %v", a.Header)
	}
}
