package githttp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// Another server deletes the repository that this one has opened before, ahead of a request. git
// hears that it is missing, and a push that may create it does.
func TestDeletedByAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		createOnPush bool
		ahead        int64 // of which request it is deleted
		command      string
		says         string // by the failure; "" for none
	}{
		"listing":             {true, 0, "ls-remote URL", `repository "r" not found`},
		"old listing":         {true, 0, "-c protocol.version=0 ls-remote URL", `repository "r" not found`},
		"refs of a listing":   {true, 1, "ls-remote URL", "HTTP 404"},
		"pack of a clone":     {true, 2, "clone URL FOLDER", "HTTP 404"},
		"push":                {true, 0, "push URL main", ""},
		"pack of a push":      {true, 1, "push --no-thin URL unrelated", ""},
		"thin pack of a push": {true, 1, "push URL main", "unpack failed"},
		"forbidden push":      {false, 0, "push URL main", "create it with a token"},
		"pack of a forbidden": {false, 1, "push URL main", "HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
			t.Cleanup(shut)
			open := func() *engine.Host {
				host := enginetest.OpenOver(t, keys, files, engine.Config{Objects: odb.Options{RemoteKeys: true}})
				t.Cleanup(func() {
					if err := host.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
				return host
			}
			another, config := open(), auth.OrgConfig{CreateOnPush: test.createOnPush}
			r := serveHost(t, open(), githttp.Config{OrgConfig: func(string) (*auth.OrgConfig, bool) { return &config, true }})
			enginetest.Create(t, another, repoName)
			var requests atomic.Int64 // those of the command
			var counted atomic.Bool
			r.before = func(exchange.Exchange) {
				if !counted.Load() {
					return
				}
				if requests.Add(1) == test.ahead+1 {
					if _, err := another.DeleteRepository(t.Context(), engine.Actor{Org: enginetest.Org}, repoName); err != nil {
						t.Error(err)
					}
				}
			}
			client := oracle.New(t)
			client.Seed(oracle.History{Seed: 86, Commits: 5})
			client.Git("push", "--quiet", r.url(""), "main~1:refs/heads/other")
			client.Git("branch", "unrelated", strings.TrimSpace(client.Git("commit-tree", "-m", "root", "main^{tree}")))
			client.Git("ls-remote", r.url(""))
			counted.Store(true)
			command := strings.NewReplacer("URL", r.url(""), "FOLDER", t.TempDir()).Replace(test.command)
			out, err := client.Try(nil, strings.Fields(command)...)
			if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("git %s: %s, %v", command, out, err)
			}
			if requests.Load() <= test.ahead {
				t.Errorf("%d requests", requests.Load())
			}
			created := r.born() != nil
			if created != (test.says == "") {
				t.Errorf("the repository is there: %t", created)
			}
			if created {
				client.Git("clone", "--quiet", r.url(""), t.TempDir())
			}
		})
	}
}
