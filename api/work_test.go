package api_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/odb/fair"
)

// A request that computes for longer than it may is refused, and cut when its answer has begun.
func TestWorkMax(t *testing.T) {
	t.Parallel()
	compute := func(ctx context.Context) error {
		return fair.Do(ctx, func(ctx context.Context) error {
			for {
				if err := fair.Pause(ctx); err != nil {
					return err
				}
			}
		})
	}
	f := serve(t, map[string]api.Handler{
		"GET /before": func(x exchange.Exchange, _ *auth.Grant) error { return compute(x.Context()) },
		"GET /amid": func(x exchange.Exchange, _ *auth.Grant) error {
			x.Stream(http.StatusOK, "text/plain", func(ctx context.Context, w io.Writer) error {
				if _, err := w.Write([]byte("half")); err != nil {
					return err
				}
				return compute(ctx)
			})
			return nil
		},
	}, func(c *api.Config) { c.Limits.WorkMax = 5 * time.Millisecond })
	c := f.dial(t)
	c.send(get("/before"))
	if a := c.receive(http.MethodGet); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, %s", a.StatusCode, a.body)
	}
	c.send(get("/amid"))
	if a := c.receive(http.MethodGet); a.body != "half" || a.cut == nil {
		t.Errorf("%q, cut %v", a.body, a.cut)
	}
}
