package rest_test

import (
	"net/http"
	"testing"
)

// A repository without an upstream is detached already, however often it is asked for.
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
