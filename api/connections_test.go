package api_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"packhorse/api"
)

// from makes connections come from an address: the first byte that a client sends selects it.
type from struct{ net.Listener }

type fromConn struct {
	net.Conn
	address net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.address }

func (l from) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return nil, err
	}
	return fromConn{c, &net.TCPAddr{IP: net.IPv4(198, 51, 100, b[0]), Port: 1}}, nil
}

// dialFrom connects from the address 198.51.100.last.
func dialFrom(t *testing.T, address string, last byte) *client {
	t.Helper()
	f := &fixture{address: address}
	c := f.dial(t)
	c.raw(string([]byte{last}))
	return c
}

// metric returns the line of a metric.
func (f *fixture) metric(t *testing.T, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	f.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, "packhorse_"+name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return ""
}

// Strangers, however many, displace no connection that has shown a token, and block no new one.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", secure), func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
				patient(func(l *api.Limits) { l.ConnsMax, l.StrangerWait = 8, never })(c)
				if secure {
					c.TLS = tlsConfig()
				}
			})
			var known, strangers []*client
			for range 4 {
				c := f.dial(t)
				c.get()
				known = append(known, c)
			}
			for i := range 40 {
				c := f.dial(t)
				if i%2 == 1 && !secure {
					c.raw("GET /get HTTP/1.1\r\nHost: x\r\nX-Slow: ")
				}
				strangers = append(strangers, c)
			}
			f.dial(t).get() // a new one gets in, and the known ones stay
			for _, c := range known {
				c.get()
			}
			for _, c := range strangers[:30] {
				c.closes()
			}
			for range 3 {
				c := f.dial(t)
				c.get()
				known = append(known, c)
			}
			if got := f.metric(t, `http_connections_refused_total{limit="all"}`); got != "0" {
				t.Errorf("%s connections were refused", got)
			}
		})
	}
}

// When no connection can make room a new one is refused at once, and the existing ones go on.
func TestConnectionsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		patient(func(l *api.Limits) { l.ConnsMax = 4 })(c)
	})
	var known []*client
	for range 4 {
		c := f.dial(t)
		c.get()
		known = append(known, c)
	}
	late := f.dial(t)
	if a := late.receive(http.MethodGet); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "too many connections") {
		t.Errorf("the fifth: %d %s", a.StatusCode, a.body)
	}
	for _, c := range known {
		c.get()
	}
	if !strings.Contains(f.log.String(), `msg="connections are refused"`) {
		t.Errorf("logged\n%s", f.log)
	}
	_ = known[0].Close()
	for deadline := time.Now().Add(time.Minute); ; {
		c := f.dial(t)
		c.send(get("/get"))
		answer, err := http.ReadResponse(c.Reader, nil) // a refusal may be lost: the request is not read
		if err == nil && answer.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("room that was made is not used: %v", err)
		}
	}
}

// An address is held to its own limit; others, and trusted proxies, are not.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		patient(func(l *api.Limits) { l.ConnsPerAddress = 3 })(c)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.9/32")}
	})
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	address := raw.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.Serve(from{raw}) }()
	t.Cleanup(func() {
		if err := errors.Join(raw.Close(), <-served); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	var mine []*client
	for range 3 {
		c := dialFrom(t, address, 1)
		c.get()
		mine = append(mine, c)
	}
	if a := dialFrom(t, address, 1).receive(http.MethodGet); a.StatusCode != 503 ||
		!strings.Contains(a.body, "from this address") {
		t.Errorf("the fourth: %d %s", a.StatusCode, a.body)
	}
	dialFrom(t, address, 2).get()
	for range 5 {
		dialFrom(t, address, 9).get()
	}
	for range 5 {
		f.dial(t).get() // from the loopback
	}
	for _, c := range mine {
		c.get()
	}
}

// A connection that has shown no good token is not kept for as long as others are.
func TestStrangersAreNotKept(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		patient(func(l *api.Limits) { l.IdleWait, l.StrangerWait = never, 200*time.Millisecond })(c)
	})
	known := f.answered(t)
	f.dial(t).closes()
	stranger := f.dial(t)
	stranger.send("GET /healthz HTTP/1.1\nHost: x\n\n")
	_, _ = stranger.ReadString('k') // on a slow machine it may have ended
	_, _ = io.Copy(io.Discard, stranger)
	known.get()
}
