package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
)

// A missing folder of organizations invalidates no token; health and metrics report it.
func TestUnreadableOrganizations(t *testing.T) {
	t.Parallel()
	orgs := filepath.Join(t.TempDir(), "orgs")
	must(os.MkdirAll(filepath.Join(orgs, "acme"), 0o755))
	must(os.WriteFile(filepath.Join(orgs, "acme", "k.pem"), keys().public, 0o644))
	tokens, err := auth.Open(auth.Options{Dir: orgs})
	must(err)
	t.Cleanup(tokens.Close)
	f := serve(t, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) { c.Tokens = tokens })
	c := f.dial(t)
	c.get()
	must(os.Rename(orgs, orgs+".away"))
	tokens.Reload()
	c.get()
	for path, want := range map[string]string{
		"/readyz":  "ready, but parts of the folder of organizations cannot be read (1)",
		"/metrics": "\npackhorse_organizations_unread 1\n",
	} {
		c.send("GET " + path + " HTTP/1.1\nHost: x\n\n")
		if a := c.receive(http.MethodGet); a.StatusCode != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
	must(os.Rename(orgs+".away", orgs))
	tokens.Reload()
	c.send("GET /readyz HTTP/1.1\nHost: x\n\n")
	if a := c.receive(http.MethodGet); a.body != "ready\n" {
		t.Errorf("once it is back: %q", a.body)
	}
}
