package api_test

import (
	"net/http"
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
