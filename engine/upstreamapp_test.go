package engine_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/upstream"
)

// app gives out passwords that are numbered, a new one when the last was forgotten.
type app struct {
	mu     sync.Mutex
	number int
}

func (a *app) password() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "ghs_token_" + strings.Repeat("x", a.number)
}

func (a *app) Credentials(context.Context, string, string) (user, password string, err error) {
	return "x-access-token", a.password(), nil
}

func (a *app) Forget(owner, name, password string) {
	if owner != "ada" || name != "r" || password != a.password() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
}

// TestSyncAsApp is a repository that is reached as a GitHub App, by the organization that may and
// by no other.
func TestSyncAsApp(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "theirs")
	var mu sync.Mutex
	valid := "ghs_token_"
	f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		want := valid
		mu.Unlock()
		user, password, _ := r.BasicAuth()
		if user != "x-access-token" || password != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	access := new(app)
	config := f.config()
	config.Upstreams.App = func(org, owner string) engine.GitHubApp {
		if org != ada.Org || owner != "ada" {
			return nil
		}
		return access
	}
	n := openNear(t, vfs.NewMem(), config)
	base := engine.UpstreamBase{Origin: upstream.Origin{Provider: upstream.GitHub, Owner: "ada", Name: "r"}}
	for _, other := range []struct{ org, owner string }{{"others", "ada"}, {ada.Org, "others"}} {
		asked := base
		asked.Owner = other.owner
		_, err := n.host.CreateRepository(t.Context(), engine.Actor{Org: other.org},
			engine.CreateRequest{Name: "x", Upstream: &asked})
		if !errors.Is(err, engine.ErrNoApp) {
			t.Errorf("organization %s, account %s: %v", other.org, other.owner, err)
		}
	}
	n.create(base)
	n.synced()
	n.equal(f)

	mu.Lock()
	valid = "ghs_token_x" // GitHub takes the old one no more
	mu.Unlock()
	f.commit("main", "more")
	n.pull()
	n.synced()
	n.equal(f)
}
