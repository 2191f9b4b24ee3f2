package api_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"packhorse/api"
)

// 8,192 idle connections may cost 320 MiB, 40 KiB each; those that have been idle for a while cost
// a fraction of that.
func TestIdleConnectionsAreCheap(t *testing.T) { // not parallel: it measures
	const count = 200
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		c.Limits.ParkAfter = 10 * time.Millisecond
	})
	clients := make([]*client, 0, count)
	before := inUse()
	for range count {
		c := f.dial(t)
		c.get()
		clients = append(clients, c)
	}
	const each = 20 << 10 // with the client's 5 KiB, and the stacks that fasthttp keeps for ten seconds
	deadline := time.Now().Add(time.Minute)
	for cost := inUse() - before; cost > each*count; cost = inUse() - before {
		if time.Now().After(deadline) {
			t.Fatalf("an idle connection costs %d bytes", cost/count)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, c := range clients {
		c.get()
	}
}

// inUse is the memory of the heap and of stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // the second one empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A connection that has given up its buffers serves on, and ends with the server.
func TestParkedConnections(t *testing.T) {
	t.Parallel()
	const park = 20 * time.Millisecond
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", secure), func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got"), "POST /read": reader}, func(c *api.Config) {
				c.Limits.ParkAfter = park
				c.Limits.IdleWait = never
				if secure {
					c.TLS = tlsConfig()
				}
			})
			c := f.dial(t)
			for i := range 5 {
				c.get()
				c.send("POST /read HTTP/1.1\nHost: x\nAuthorization: " + token("r", "git:write") + "\nContent-Length: 3\n\nabc")
				if a := c.receive(http.MethodPost); a.body != "3 <nil>" {
					t.Fatalf("after %d rests: %q", i, a.body)
				}
				time.Sleep(2 * park) // the test is about the passing of time
			}
			if err := f.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			c.closes()
		})
	}
}

// A connection on which a request has been answered ends when the next one does not arrive, whether
// it has released its buffers or not.
func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": never} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
					patient(func(l *api.Limits) { l.IdleWait, l.ParkAfter = 500*time.Millisecond, park })(c)
					if secure {
						c.TLS = tlsConfig()
					}
				})
				f.answered(t).closes()
			})
		}
	}
}

// answered returns a connection on which a request has been answered. On a slow machine the server
// may end a few others first, because their request was late.
func (f *fixture) answered(t *testing.T) *client {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		c := f.dial(t)
		c.send(get("/get"))
		_, err := c.Peek(1)
		if err == nil {
			c.receive(http.MethodGet)
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer: %v", err)
		}
	}
}
