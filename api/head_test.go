package api_test

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// headLikeGet asks for a path with GET and with HEAD, on one connection, and compares the answers:
// they differ in nothing but the body.
func (f *fixture) headLikeGet(t *testing.T, path, authorization string, headers ...string) {
	t.Helper()
	c := f.dial(t)
	ask := func(method, path string) answer {
		c.send(method + " " + path + " HTTP/1.1\nHost: x\nAuthorization: " + authorization + "\n" +
			strings.Join(append(slices.Clone(headers), "\n"), "\n"))
		return c.receive(method)
	}
	get, head := ask(http.MethodGet, path), ask(http.MethodHead, path)
	for _, changing := range []string{"Date", "X-Request-Id"} {
		if head.Header.Get(changing) == "" {
			t.Errorf("HEAD %s: no %s", path, changing)
		}
		get.Header.Del(changing)
		head.Header.Del(changing)
	}
	if head.body != "" || head.StatusCode != get.StatusCode || head.ContentLength != get.ContentLength ||
		!slices.Equal(head.TransferEncoding, get.TransferEncoding) || !reflect.DeepEqual(head.Header, get.Header) {
		t.Errorf("HEAD %s: %d %v, length %d, body %q\nGET: %d %v, length %d", path, head.StatusCode, head.Header,
			head.ContentLength, head.body, get.StatusCode, get.Header, get.ContentLength)
	}
	if next := ask(http.MethodGet, "/healthz"); next.StatusCode != http.StatusOK || next.body != "ok\n" {
		t.Errorf("after HEAD %s: %d %q", path, next.StatusCode, next.body)
	}
}

// HEAD of a path that needs no token, of a refusal, of a path that is not there, and of a stream
// that would not end. TestClientContract looks at all of the table.
func TestHead(t *testing.T) {
	t.Parallel()
	w := newWritable(t)
	for _, path := range []string{"/healthz", "/readyz", "/nothing", "/api/v1/repo", "/api/v1/repos/commits?branch=none"} {
		w.headLikeGet(t, path, token("r", "git:read"))
	}
	for _, path := range []string{"/api/v1/repo", "/api/repos/r/commits", "/api/repos/other"} {
		w.headLikeGet(t, path, token("r", "org:read"))
	}
	c := w.dial(t)
	c.send("HEAD /api/v1/repos/events HTTP/1.1\nHost: x\nAccept: text/event-stream\nAuthorization: " +
		token("r", "git:read") + "\n\n")
	a := c.receive(http.MethodHead)
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" || a.body != "" {
		t.Errorf("HEAD of the events: %d %v %q", a.StatusCode, a.Header, a.body)
	}
}

// What a handler holds for the body of its answer is given back when there will be no body.
func TestHeadReleases(t *testing.T) {
	t.Parallel()
	released := false // the server answers behind it
	f := serve(t, map[string]api.Handler{"GET /stream": func(x exchange.Exchange, _ *auth.Grant) error {
		x.Stream(http.StatusOK, "text/plain", func(ctx context.Context, w io.Writer) error {
			released = ctx.Err() != nil
			_, err := io.WriteString(w, "text")
			return err
		})
		return nil
	}}, nil)
	c := f.dial(t)
	c.send("HEAD /stream HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
	if a := c.receive(http.MethodHead); a.StatusCode != http.StatusOK || a.body != "" || !released {
		t.Errorf("%d %q, released: %t", a.StatusCode, a.body, released)
	}
	c.send("GET /healthz HTTP/1.1\nHost: x\n\n")
	if a := c.receive(http.MethodGet); a.body != "ok\n" {
		t.Errorf("the next answer is %q", a.body)
	}
	if strings.Contains(f.log.String(), "level=ERROR") {
		t.Error(f.log.String())
	}
}
