package rest_test

import (
	"context"
	"net/http"
	"testing"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
)

// Detaching a repository without an upstream succeeds, however often.
func TestDetach(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.call(c.door.Detach, http.MethodDelete, "/", nil).refused(http.StatusNotFound, `"r"`)
	c.create("").want(http.StatusCreated)
	for range 2 {
		got := c.call(c.door.Detach, http.MethodDelete, "/", nil, "Idempotency-Key", "k").want(http.StatusOK)
		var detached struct{ Message string }
		got.decode(&detached)
		if detached.Message == "" || got.Header.Get("X-Repo-Sequence") != "1" {
			t.Errorf("answer is %s with %v", got.Body, got.Header)
		}
	}
}

// TestDetachTimesOut looks at a request whose time is over.
func TestDetachTimesOut(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	x := exchangetest.New(http.MethodDelete, "/", nil)
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	x.Ctx = late
	if err := c.door.Detach(x, c.grant); err != nil {
		rest.Refuse(x, err)
	}
	got, err := x.Finish()
	if err != nil {
		t.Fatal(err)
	}
	answer{got, t}.refused(http.StatusGatewayTimeout, "too long")
}
