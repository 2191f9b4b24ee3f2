package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// crowded is a server for 8 MiB of requests, on which a client may be as slow as it likes.
func crowded(t *testing.T, edit func(*api.Config)) *fixture {
	t.Helper()
	return serve(t, nil, func(c *api.Config) {
		patient(func(l *api.Limits) { l.MemoryBytes, l.QueueCount, l.QueueWait, l.ClientWait = 8<<20, 16, never, never })(c)
		c.Routes = []api.Route{
			{
				Method: "POST", Path: "/push", Scope: auth.GitWrite, Denied: 403, Patient: true, CostsBytes: 1 << 20,
				Handler: takeAll,
			},
			{Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 403, CostsBytes: 1 << 20, Handler: respond(200, "got")},
		}
		if edit != nil {
			edit(c)
		}
	})
}

// takeAll reads a body that begins like a push, with five bytes, and answers with its size.
func takeAll(x exchange.Exchange, _ *auth.Grant) error {
	if _, err := io.ReadFull(x.Body(), make([]byte, 5)); err != nil {
		return err
	}
	x.BodyFlows()
	n, err := io.Copy(io.Discard, x.Body())
	if err != nil {
		return err
	}
	x.Respond(http.StatusOK, "text/plain", fmt.Append(nil, 5+n))
	return nil
}

// push begins a push of ten bytes, two of which it sends.
func (f *fixture) push(t *testing.T, org, repo string) *client {
	t.Helper()
	c := f.dial(t)
	c.send("POST /push HTTP/1.1\nHost: x\nAuthorization: " + tokenOf(org, repo, "git:write") +
		"\nContent-Length: 10\n\n12")
	return c
}

// Pushes that send nothing fill the queue of their organization, and block no others: neither other
// organizations nor, inside it, other repositories.
func TestSilentPushes(t *testing.T) {
	t.Parallel()
	f := crowded(t, nil)
	const crowd, held, waiting = 300, 12, 4 // three eighths of 2 MiB by 64 KiB each, and a quarter of the queue
	refused := make(chan struct{}, crowd)
	for range crowd {
		c := f.push(t, "acme", "crowd")
		go func() {
			if response, err := http.ReadResponse(c.Reader, nil); err == nil && response.StatusCode == 503 {
				refused <- struct{}{}
			}
		}()
	}
	for range crowd - held - waiting {
		<-refused
	}
	for _, who := range [][2]string{{"other", "r"}, {"acme", "r"}} {
		for range 20 {
			c := f.push(t, who[0], who[1])
			c.send("34567890")
			if a := c.receive(http.MethodPost); a.body != "10" {
				t.Fatalf("push of %v: status %d, %q", who, a.StatusCode, a.body)
			}
			c.send("GET /get HTTP/1.1\nHost: x\nAuthorization: " + tokenOf(who[0], who[1], "git:read") + "\n\n")
			if a := c.receive(http.MethodGet); a.body != "got" {
				t.Fatalf("read of %v: status %d, %q", who, a.StatusCode, a.body)
			}
		}
	}
}

// Of an organization whose requests wait, the one is sent away that has waited for its client
// longest.
func TestSilentPushesMakeRoom(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	f := crowded(t, func(c *api.Config) {
		c.Limits.ClientWait = time.Millisecond
		c.Routes[0].Handler = func(x exchange.Exchange, grant *auth.Grant) error {
			begun <- struct{}{}
			return takeAll(x, grant)
		}
	})
	var silent []*client
	for range 12 {
		silent = append(silent, f.push(t, "acme", "crowd"))
	}
	for range silent {
		<-begun
	}
	for range 3 { // one after another is served, all of the same repository
		c := f.push(t, "acme", "crowd")
		c.send("34567890")
		if a := c.receive(http.MethodPost); a.body != "10" {
			t.Fatalf("status %d, %q", a.StatusCode, a.body)
		}
	}
	gone := make(chan int, len(silent))
	for _, c := range silent {
		go func() {
			if response, err := http.ReadResponse(c.Reader, nil); err == nil {
				gone <- response.StatusCode
			}
		}()
	}
	if status := <-gone; status != 503 {
		t.Errorf("who has waited longest heard %d", status)
	}
}

// A client that does not take its answer leaves the memory for work to others of its repository.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	const readers = 5
	var begun atomic.Int64
	all := make(chan struct{})
	piece := bytes.Repeat([]byte("x"), 256<<10)
	f := crowded(t, func(c *api.Config) {
		c.Limits.QueueWait = time.Minute
		c.Routes = []api.Route{{
			Method: "GET", Path: "/clone", Scope: auth.GitRead, Denied: 403, CostsBytes: 3 << 20, WaitsBytes: 64 << 10,
			Handler: func(x exchange.Exchange, _ *auth.Grant) error {
				if begun.Add(1) == readers {
					close(all)
				}
				x.Stream(http.StatusOK, "text/plain", func(_ context.Context, w io.Writer) error {
					for range 64 { // more than sockets hold
						if _, err := w.Write(piece); err != nil {
							return err
						}
					}
					return nil
				})
				return nil
			},
		}}
	})
	var clients []*client
	for range readers {
		c := f.dial(t)
		c.send("GET /clone HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:read") + "\n\n")
		clients = append(clients, c)
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d began: the others wait for the memory of those whose clients do not read", begun.Load(), readers)
	}
	for _, c := range clients {
		if a := c.receive(http.MethodGet); len(a.body) != 64*len(piece) || a.cut != nil {
			t.Errorf("status %d, %d bytes, cut %v", a.StatusCode, len(a.body), a.cut)
		}
	}
}
