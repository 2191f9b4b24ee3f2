package api_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"packhorse/api"
)

// 8,192 idle connections may cost 320 MiB, 40 KiB each; those that have been idle for a while cost a fraction of that.
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

// A connection that has given up its buffers serves on, ends in time, and ends with the server.
func TestParkedConnections(t *testing.T) {
	t.Parallel()
	const park = 20 * time.Millisecond
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", secure), func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got"), "POST /read": reader}, func(c *api.Config) {
				c.Limits.ParkAfter = park
				c.Limits.IdleWait = 100 * park
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
				time.Sleep(2 * park) // what is tested is that time passes
			}
			if _, err := c.ReadByte(); err == nil {
				t.Error("a byte out of nothing")
			}
			parked := f.dial(t)
			parked.get()
			time.Sleep(2 * park)
			if err := f.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadAll(parked.Reader); err != nil && !isReset(err) {
				t.Errorf("the parked connection outlives the server: %v", err)
			}
		})
	}
}
