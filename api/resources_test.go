package api_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// The resources of requests are bounded for each organization, waited for, and given back at the
// end of a request even if the handler forgets.
func TestResources(t *testing.T) {
	t.Parallel()
	tests := map[string]func(c *api.Config, started chan<- struct{}, finish <-chan struct{}){
		"slots": func(c *api.Config, started chan<- struct{}, finish <-chan struct{}) {
			c.Limits.HeavySlots = 2 // one of an organization
			c.Routes = []api.Route{{Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 401, Handler: func(
				x exchange.Exchange, _ *auth.Grant,
			) error {
				if _, err := x.Slot(x.Context()); err != nil {
					return err
				}
				return holding(x, started, finish)
			}}}
		},
		"memory": func(c *api.Config, started chan<- struct{}, finish <-chan struct{}) {
			c.Limits.MemoryBytes = 1 << 20
			c.Routes = []api.Route{{Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 401, Handler: func(
				x exchange.Exchange, _ *auth.Grant,
			) error {
				if _, err := x.Reserve(x.Context(), 1<<19); err != nil {
					return err
				}
				return holding(x, started, finish)
			}}}
		},
		"cost of the route": func(c *api.Config, started chan<- struct{}, finish <-chan struct{}) {
			c.Limits.MemoryBytes = 1 << 20
			c.Routes = []api.Route{{
				Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 401, CostsBytes: 1 << 30,
				Handler: func(x exchange.Exchange, _ *auth.Grant) error { return holding(x, started, finish) },
			}}
		},
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, finish := make(chan struct{}, 2), make(chan struct{})
			f := serve(t, nil, func(c *api.Config) {
				c.Limits.QueueWait = 500 * time.Millisecond
				edit(c, started, finish)
			})
			first, second := f.dial(t), f.dial(t)
			first.send(get("/get"))
			<-started
			second.send(get("/get"))
			if a := second.receive(http.MethodGet); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
				t.Errorf("the second request: status %d", a.StatusCode)
			}
			close(finish)
			if a := first.receive(http.MethodGet); a.body != "held" {
				t.Errorf("the first request: %q", a.body)
			}
			second.send(get("/get"))
			if a := second.receive(http.MethodGet); a.body != "held" {
				t.Errorf("after the first request has ended: status %d", a.StatusCode)
			}
		})
	}
}

func holding(x exchange.Exchange, started chan<- struct{}, finish <-chan struct{}) error {
	started <- struct{}{}
	<-finish
	return respond(200, "held")(x, nil)
}

// A request that holds memory already, for its route, may ask for more than there is: it gets the
// rest of its share.
func TestReserveMore(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, func(c *api.Config) {
		c.Limits.MemoryBytes = 1 << 20
		c.Limits.QueueWait = 500 * time.Millisecond
		c.Routes = []api.Route{{
			Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 401, CostsBytes: 1 << 10,
			Handler: func(x exchange.Exchange, _ *auth.Grant) error {
				for range 2 {
					release, err := x.Reserve(x.Context(), 1<<30)
					if err != nil {
						return err
					}
					release()
				}
				return respond(200, "held")(x, nil)
			},
		}}
	})
	c := f.dial(t)
	c.send(get("/get"))
	if a := c.receive(http.MethodGet); a.body != "held" {
		t.Errorf("status %d: %s", a.StatusCode, a.body)
	}
}

// limits.heavy_slots of an org.yaml takes the place of the half of all slots that an organization
// gets, below it and above it. One repository does not get the last of several.
func TestHeavySlotsOfOrganization(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}, 8), make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	defer end() // also when it fails: the server waits for its requests
	l := newLimited(t, "limits: {heavy_slots: 1}\n", nil, func(c *api.Config) {
		c.Limits.HeavySlots, c.Limits.QueueWait = 6, 50*time.Millisecond // half of them are 3
		c.Routes = []api.Route{{Method: "GET", Path: "/get", Scope: auth.GitRead, Denied: 401, Handler: func(
			x exchange.Exchange, _ *auth.Grant,
		) error {
			if _, err := x.Slot(x.Context()); err != nil {
				return err
			}
			if x.Header("X-Brief") != "" {
				return respond(200, "held")(x, nil)
			}
			return holding(x, started, finish)
		}}}
	})
	var holders []*client
	takes := func(org, repo string) {
		t.Helper()
		c := l.dial(t)
		c.send("GET /get HTTP/1.1\nHost: x\nAuthorization: " + tokenOf(org, repo, "git:read") + "\n\n")
		<-started
		holders = append(holders, c)
	}
	refused := func(org, repo string) { // what it may have is held until finish, however long it waits
		t.Helper()
		c := l.dial(t)
		c.send("GET /get HTTP/1.1\nHost: x\nX-Brief: 1\nAuthorization: " + tokenOf(org, repo, "git:read") + "\n\n")
		if a := c.receive(http.MethodGet); a.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("another request of %s/%s: status %d: %s", org, repo, a.StatusCode, a.body)
		}
	}
	takes("acme", "r")
	refused("acme", "s")
	takes("other", "r")
	l.becomes("limits: {heavy_slots: 4}\n")
	for range 2 {
		takes("acme", "r")
	}
	refused("acme", "r")
	takes("acme", "s")
	refused("acme", "s") // of the slot that is left
	takes("other", "r")
	end()
	for _, c := range holders {
		if a := c.receive(http.MethodGet); a.body != "held" {
			t.Errorf("status %d: %s", a.StatusCode, a.body)
		}
	}
}
