package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// While the server drains, running requests finish and nothing new begins.
func TestShutdownLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}, 2), make(chan struct{})
	work := func() {
		started <- struct{}{}
		<-finish
	}
	f := serve(t, map[string]api.Handler{
		"GET /get": respond(200, "got"),
		"GET /work": func(x exchange.Exchange, _ *auth.Grant) error {
			work()
			return respond(200, "done")(x, nil)
		},
		"GET /stream": func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, "begun ")
				work()
				_, err := io.WriteString(w, "done")
				return err
			})
			return nil
		},
	}, nil)
	idle, fresh, working, streaming := f.dial(t), f.dial(t), f.dial(t), f.dial(t)
	idle.get()
	working.send(get("/work"))
	streaming.send(get("/stream"))
	<-started
	<-started

	down := make(chan error, 1)
	go func() { down <- f.Shutdown(context.Background()) }()
	idle.closes()
	fresh.closes()
	if c, err := net.Dial("tcp", f.address); err == nil {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("a new connection is served")
		}
	}
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned with requests running: %v", err)
	default:
	}
	if status, _ := readiness(f); status != http.StatusServiceUnavailable {
		t.Errorf("ready with status %d while draining", status)
	}
	close(finish)
	if a := working.receive(http.MethodGet); a.body != "done" || a.cut != nil || !a.Close {
		t.Errorf("%q, cut %v, close %t", a.body, a.cut, a.Close)
	}
	if a := streaming.receive(http.MethodGet); a.body != "begun done" || a.cut != nil {
		t.Errorf("%q, cut %v", a.body, a.cut)
	}
	working.closes()
	_ = working.Close()
	_ = streaming.Close()
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := f.Shutdown(context.Background()); err != nil {
		t.Errorf("the second Shutdown: %v", err)
	}
}

// A request that only waits for an event answers as soon as the server begins to stop.
func TestShutdownEndsWaits(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	enginetest.Create(t, host, "r")
	door := rest.New(rest.Config{Host: host})
	waiting := make(chan struct{})
	f := serve(t, map[string]api.Handler{"GET /events": func(x exchange.Exchange, grant *auth.Grant) error {
		close(waiting)
		return door.Events(x, grant)
	}}, nil)
	c := f.dial(t)
	c.send(get("/events?after=1&wait=60"))
	<-waiting
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- f.Shutdown(ctx) }()
	if a := c.receive(http.MethodGet); a.StatusCode != http.StatusOK || !strings.Contains(a.body, `"next_after":1`) ||
		a.cut != nil {
		t.Errorf("status %d, %q, cut %v", a.StatusCode, a.body, a.cut)
	}
	_ = c.Close()
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client that wants the connection to end, in whatever spelling, gets its answer and the end.
func TestClientAsksToClose(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, nil)
	for _, value := range []string{"close", "Close", "TE, close"} {
		c := f.dial(t)
		c.send("GET /get HTTP/1.1\nHost: x\nConnection: " + value + "\nAuthorization: " + token("r", "git:read") + "\n\n")
		if a := c.receive(http.MethodGet); a.body != "got" || !a.Close {
			t.Errorf("%s: %q, close %t", value, a.body, a.Close)
		}
		c.closes()
	}
}

// Past its limit the drain cancels requests, which may still say so; one that begun an answer is
// cut, and does not look complete.
func TestShutdownHasALimit(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 2)
	f := serve(t, map[string]api.Handler{
		"GET /work": func(x exchange.Exchange, _ *auth.Grant) error {
			started <- struct{}{}
			<-x.Context().Done()
			return x.Context().Err()
		},
		"GET /stream": func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(200, "text/plain", func(ctx context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, "begun")
				started <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			return nil
		},
	}, func(c *api.Config) { c.Limits.CancelWait = time.Minute })
	working, streaming := f.dial(t), f.dial(t)
	working.send(get("/work"))
	streaming.send(get("/stream"))
	<-started
	<-started
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- f.Shutdown(ctx) }()
	if a := working.receive(http.MethodGet); a.StatusCode != 503 || !strings.Contains(a.body, "shutting down") ||
		a.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, %q", a.StatusCode, a.body)
	}
	_ = working.Close()
	if a := streaming.receive(http.MethodGet); a.body != "begun" || a.cut == nil {
		t.Errorf("%q, cut %v", a.body, a.cut)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A request that does not listen is left behind.
func TestShutdownLeavesTheDeafBehind(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}), make(chan struct{})
	f := serve(t, map[string]api.Handler{"GET /deaf": func(exchange.Exchange, *auth.Grant) error {
		close(started)
		<-finish
		return nil
	}}, nil)
	c := f.dial(t)
	c.send(get("/deaf"))
	<-started
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	c.closes()
	close(finish)
}

// A shortage of descriptors passes; a server that stops accepting because of it would never
// recover.
func TestAcceptOutlivesShortage(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, nil)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	served := make(chan error, 1)
	go func() { served <- f.Serve(&short{Listener: inner}) }()
	f.address = inner.Addr().String()
	c := f.dial(t)
	c.send(get("/get"))
	if a := c.receive(http.MethodGet); a.body != "got" {
		t.Errorf("%q", a.body)
	}
	must(f.Shutdown(t.Context()))
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
