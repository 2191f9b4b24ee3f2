package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// never is longer than any test.
const never = time.Hour

// patient turns the time limits off, and then applies edit.
func patient(edit func(*api.Limits)) func(*api.Config) {
	return func(c *api.Config) {
		c.Limits = api.Limits{
			HeaderWait: never, IdleWait: never, BodyPause: never, BodySilence: never, AnswerWait: never, FloorWindow: never,
			LingerWait: time.Minute,
		}
		edit(&c.Limits)
	}
}

// Each wait for a client ends by itself, and only that wait: all others last for ever here.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	const short, long = 500 * time.Millisecond, 5 * time.Second
	post := "POST /read HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") + "\n"
	tests := map[string]struct {
		edit   func(*api.Limits)
		act    func(c *client)
		status int    // 0 when the connection ends without an answer
		body   string // that the answer contains
	}{
		"nothing sent": {func(l *api.Limits) { l.IdleWait = short }, func(*client) {}, 0, ""},
		"half a header": {
			func(l *api.Limits) { l.HeaderWait = short }, func(c *client) { c.send("GET / HT") }, 408, "in time",
		},
		"one byte":         {func(l *api.Limits) { l.HeaderWait = short }, func(c *client) { c.send("G") }, 408, "in time"},
		"no end of header": {func(l *api.Limits) { l.HeaderWait = short }, func(c *client) { c.send(post) }, 408, "in time"},
		"second header": {
			func(l *api.Limits) { l.HeaderWait = short }, func(c *client) { c.get(); c.send("GET / HT") }, 408, "in time",
		},
		"header, trickling": {func(l *api.Limits) {
			l.HeaderWait = short
		}, func(c *client) { c.trickle("GET / HTTP/1.1\r\nHost: " + strings.Repeat("x", 100)) }, 408, "in time"},

		"no first byte of a body": {
			func(l *api.Limits) { l.BodySilence = short },
			func(c *client) { c.send(post + "Content-Length: 10\n\n") }, 408, "in time",
		},
		"body, silent": {
			func(l *api.Limits) { l.BodySilence = short }, func(c *client) { c.send(post + "Content-Length: 10\n\nabc") },
			200, "3 the request body stalled",
		},
		"chunks, none": {func(l *api.Limits) {
			l.BodySilence = short
		}, func(c *client) { c.send(post + "Transfer-Encoding: chunked\n\n") }, 200, "0 the request body stalled"},
		"chunks, silent": {func(l *api.Limits) {
			l.BodySilence = short
		}, func(c *client) { c.send(post + "Transfer-Encoding: chunked\n\n3\nabc\n") }, 200, "3 the request body stalled"},
		"chunks, no trailer": {func(l *api.Limits) {
			l.BodySilence = short
		}, func(c *client) { c.send(post + "Transfer-Encoding: chunked\n\n3\nabc\n0\n") }, 200, "3 the request body stalled"},
		"body, trickling": {func(l *api.Limits) { l.FloorWindow = short }, func(c *client) {
			c.send(post + "Content-Length: 1000\n\n")
			c.trickle(strings.Repeat("x", 999))
		}, 200, "the request body stalled"},
		"body, fast and long": {func(l *api.Limits) { l.FloorWindow = short }, func(c *client) {
			c.send(post + "Content-Length: 1000000\n\n" + strings.Repeat("x", 1000000))
		}, 200, "1000000 <nil>"},

		"after the pause, silent": {
			func(l *api.Limits) { l.BodySilence = short }, func(c *client) { c.patient("abc", "d") }, 200,
			"4 the request body stalled",
		},
		"pause before what flows": {
			func(l *api.Limits) { l.BodyPause = short }, func(c *client) { c.patient("abc") }, 200, "3 the request body stalled",
		},
		"pause, silent": {
			func(l *api.Limits) { l.BodyPause = short }, func(c *client) { c.patient("ab") }, 200, "2 the request body stalled",
		},
		"pause, trickling": {
			func(l *api.Limits) { l.BodyPause = short }, func(c *client) { c.patient("a"); c.trickle("bb") }, 200,
			"the request body stalled",
		},
		"answer does not begin": {
			func(l *api.Limits) { l.AnswerWait = short }, func(c *client) { c.send(get("/compute")) }, 504, "took too long",
		},
		"stream does not begin": {
			func(l *api.Limits) { l.AnswerWait = short }, func(c *client) { c.send(get("/compute?stream")) }, 0, "",
		},
		"long answer has begun": {
			func(l *api.Limits) { l.AnswerWait = long }, func(c *client) { c.send(get("/compute?begun")) }, 200,
			"begun and done",
		},
		"answer that does not ask": {
			func(l *api.Limits) { l.AnswerWait = short }, func(c *client) { c.send(get("/slow")) }, 200, "slow",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{
				"POST /read": reader,
				"GET /get":   respond(200, "got"),
				"GET /slow": func(x exchange.Exchange, _ *auth.Grant) error {
					<-time.After(3 * short) // longer than the limit that must not count here
					return respond(200, "slow")(x, nil)
				},
			}, func(c *api.Config) {
				patient(test.edit)(c)
				c.Routes = append(c.Routes,
					api.Route{Method: "POST", Path: "/patient", Scope: auth.GitWrite, Denied: 401, Patient: true, Handler: flowing},
					api.Route{
						Method: "GET", Path: "/compute", Scope: auth.GitRead, Denied: 401, Computes: true,
						Handler: computing(long + short),
					},
				)
			})
			c := f.dial(t)
			test.act(c)
			if test.status != 0 {
				if a := c.receive(http.MethodPost); a.StatusCode != test.status || !strings.Contains(a.body, test.body) {
					t.Errorf("status %d, %q", a.StatusCode, a.body)
				}
			}
			if test.status == 0 || test.status == 408 {
				c.closes()
			}
		})
	}
}

func get(target string) string {
	return "GET " + target + " HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n"
}

// get has one small request answered.
func (c *client) get() {
	c.t.Helper()
	c.send(get("/get"))
	c.receive(http.MethodGet)
}

// trickle sends a byte every 20 ms, in the background.
func (c *client) trickle(text string) {
	go func() {
		for i := range len(text) {
			if _, err := io.WriteString(c.Conn, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
}

// patient begins a body on a route that allows a pause until three bytes have arrived. All of it is
// one write, between whose parts no time can pass.
func (c *client) patient(chunks ...string) {
	text := "POST /patient HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") +
		"\nTransfer-Encoding: chunked\n\n"
	for _, chunk := range chunks {
		text += fmt.Sprintf("%x\n%s\n", len(chunk), chunk)
	}
	c.send(text)
}

// flowing reads three bytes at leisure and the rest as it flows.
func flowing(x exchange.Exchange, _ *auth.Grant) error {
	head, err := io.ReadFull(x.Body(), make([]byte, 3))
	rest := int64(0)
	if err == nil {
		x.BodyFlows()
		rest, err = io.Copy(io.Discard, x.Body())
	}
	x.Respond(http.StatusOK, "text/plain", fmt.Appendf(nil, "%d %v", int64(head)+rest, err))
	return nil
}

// computing never answers before its context ends, unless asked to begin: then it finishes after a
// while.
func computing(while time.Duration) api.Handler {
	wait := func(ctx context.Context, while time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(while):
			return nil
		}
	}
	return func(x exchange.Exchange, _ *auth.Grant) error {
		switch {
		case x.Query().Has("stream"):
			x.Stream(200, "text/plain", func(ctx context.Context, _ io.Writer) error { return wait(ctx, never) })
		case x.Query().Has("begun"):
			x.Stream(200, "text/plain", func(ctx context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, "begun")
				err := wait(ctx, while)
				_, _ = io.WriteString(w, " and done")
				return err
			})
		default:
			return wait(x.Context(), never)
		}
		return nil
	}
}

// Input of a client that continues after its last answer is discarded for a while, and then cut.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, patient(func(l *api.Limits) { l.LingerWait = 100 * time.Millisecond }))
	c := f.dial(t)
	c.send("GET / HTTP/1.1\nHost: x\nContent-Length: 1000000\n\nx")
	if a := c.receive(http.MethodGet); a.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", a.StatusCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil { // waits for all connections
		t.Errorf("Shutdown: %v", err)
	}
}

// A client that does not read its answer is cut, however much the kernel takes for it.
func TestNoReader(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	f := serve(t, map[string]api.Handler{"GET /endless": func(x exchange.Exchange, _ *auth.Grant) error {
		x.Stream(200, "text/plain", func(_ context.Context, w io.Writer) error {
			piece := make([]byte, 256<<10)
			for {
				if _, err := w.Write(piece); err != nil {
					close(ended)
					return err
				}
			}
		})
		return nil
	}}, patient(func(l *api.Limits) { l.FloorWindow = time.Second }))
	c := f.dial(t)
	c.send(get("/endless"))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a client that reads nothing is not cut")
	}
}

// A client that reads more slowly than the server writes gets all of its answer. How slowly it may
// is for TestFloor.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	ended := make(chan error, 1)
	f := serve(t, map[string]api.Handler{"GET /big": func(x exchange.Exchange, _ *auth.Grant) error {
		x.StreamSized(200, "text/plain", size, func(_ context.Context, w io.Writer) error {
			piece := make([]byte, 256<<10)
			for range size / len(piece) {
				if _, err := w.Write(piece); err != nil {
					ended <- err
					return err
				}
			}
			ended <- nil
			return nil
		})
		return nil
	}}, patient(func(l *api.Limits) { l.FloorWindow = 10 * time.Second }))
	c := f.dial(t)
	c.send(get("/big"))
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	received := int64(0)
	for {
		n, err := io.CopyN(io.Discard, response.Body, 4<<20)
		received += n
		if err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond) // slower than the server, far above the floor
	}
	if err := <-ended; err != nil || received != size {
		t.Errorf("a slow client got %d bytes: %v", received, err)
	}
}

// The context of a request ends after its client has left, also when unread bytes hide that, and
// under TLS.
func TestClientGone(t *testing.T) {
	t.Parallel()
	closed := func(c *client) { _ = c.Close() }
	tests := map[string]struct {
		leave          func(c *client)
		stream, secure bool
	}{
		"closed":                   {leave: closed},
		"closed, stream":           {leave: closed, stream: true},
		"closed, TLS":              {leave: closed, secure: true},
		"closed, stream, TLS":      {leave: closed, stream: true, secure: true},
		"reset":                    {leave: func(c *client) { _ = tcp(c).SetLinger(0); _ = tcp(c).Close() }},
		"closed behind a pipeline": {leave: func(c *client) { c.send(get("/next")); _ = c.Close() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, ended := make(chan struct{}), make(chan error, 1)
			work := func(ctx context.Context) error {
				close(started)
				select {
				case <-ctx.Done():
					ended <- context.Cause(ctx)
				case <-time.After(time.Minute):
					ended <- errors.New("nobody told")
				}
				return ctx.Err()
			}
			f := serve(t, map[string]api.Handler{"GET /work": func(x exchange.Exchange, _ *auth.Grant) error {
				if !test.stream {
					return work(x.Context())
				}
				x.Stream(200, "text/plain", func(ctx context.Context, _ io.Writer) error { return work(ctx) })
				return nil
			}}, func(c *api.Config) {
				if test.secure {
					c.TLS = tlsConfig()
				}
			})
			c := f.dial(t)
			c.send(get("/work"))
			<-started
			test.leave(c)
			if err := <-ended; !errors.Is(err, exchange.ErrGone) {
				t.Errorf("the context ended with %v", err)
			}
		})
	}
}

// tcp is the transport of a client.
func tcp(c *client) *net.TCPConn {
	if secure, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn().(*net.TCPConn) // dial made it
	}
	return c.Conn.(*net.TCPConn) // dial made it
}
