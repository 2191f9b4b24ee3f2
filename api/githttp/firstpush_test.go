package githttp_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// unborn is a remote whose repository is missing, of an organization with a configuration.
func unborn(t *testing.T, config auth.OrgConfig) *remote {
	t.Helper()
	return serveHost(t, enginetest.Open(t), githttp.Config{
		OrgConfig: func(string) (*auth.OrgConfig, bool) { return &config, true },
	})
}

// born opens the repository, nil while it is missing.
func (r *remote) born() *engine.Repository {
	r.t.Helper()
	repo, err := r.host.Repository(r.t.Context(), enginetest.Org, repoName)
	if err != nil {
		return nil
	}
	return repo
}

// TestPushCreates lets git push to a missing repository that the push may create, and to git's own
// empty one, and wants the client to print the same.
func TestPushCreates(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]string{
		"one branch":   "URL main",
		"everything":   "--mirror URL",
		"rejected":     "URL main:refs/heads/a..b",
		"partly":       "URL main:refs/heads/a..b side",
		"atomic":       "--atomic URL main:refs/heads/a..b side",
		"a deletion":   "--delete URL main",
		"rehearsal":    "--dry-run URL main",
		"nothing":      "URL",
		"with options": "-o ci.skip URL main",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unborn(t, auth.OrgConfig{CreateOnPush: true})
			tw := newTwins(t, func(*oracle.Repository) {})
			client, backend := oracle.New(t), tw.backend()
			client.Seed(oracle.History{Seed: 83, Commits: 30, Merges: true, Tags: true})
			got, want := pushTo(client, r.url(""), step), pushTo(client, backend, step)
			if got.report != want.report || got.failed != want.failed {
				t.Fatalf("git push %s: failed: %t\n%s%s\nto git's server: failed: %t\n%s%s",
					step, got.failed, got.report, got.stderr, want.failed, want.report, want.stderr)
			}
			wanted := allRefs(tw.git)
			if r.repo = r.born(); (r.repo == nil) != (len(wanted) == 0) {
				t.Fatalf("the repository is there: %t, and git's has %q", r.repo != nil, wanted)
			}
			if r.repo == nil {
				return
			}
			if got := r.refs(refs.Main); !slices.Equal(got, wanted) {
				t.Errorf("refs %q, want %q", got, wanted)
			}
			sameRepository(t, r.clone(2, "--mirror"), tw.git)
			client.Git("push", "--quiet", r.url(""), "main~1:refs/heads/second")
		})
	}
}

// TestPushCreatesImport creates a repository by a push of old history.
func TestPushCreatesImport(t *testing.T) {
	t.Parallel()
	r, client := unborn(t, auth.OrgConfig{CreateOnPush: true}), oracle.New(t)
	client.Seed(oracle.History{Seed: 84, Commits: 5})
	client.Git("push", "--quiet", r.url("+import"), "main")
	page, err := r.born().Events(t.Context(), engine.EventsRequest{Limit: 2})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Cause != "import" {
		t.Errorf("the journal has %+v, %v", page.Entries, err)
	}
}

// TestPushCreatesNothing pushes to a missing repository that the push may not create. git shows
// what to do, and nothing is there afterwards.
func TestPushCreatesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config  auth.OrgConfig
		scopes  auth.Scope
		variant string
		says    []string
	}{
		"not switched on": {auth.OrgConfig{}, auth.RepoWrite, "", []string{
			`remote: repository "r" not found: create it with a token that has the scope repo:write:`,
			`remote:   curl -X POST -H "Authorization: Bearer $TOKEN" ADDRESS/api/v1/repos`,
		}},
		"without the scope": {auth.OrgConfig{CreateOnPush: true}, auth.GitWrite, "", []string{
			"remote: repository \"r\" not found: a push creates it if its token has the scope repo:write, which this one lacks",
			`remote:   curl -X POST -H "Authorization: Bearer $TOKEN" ADDRESS/api/v1/repos`,
		}},
		"ephemeral": {auth.OrgConfig{CreateOnPush: true}, auth.RepoWrite, "+ephemeral", []string{
			`remote: repository "r" not found: a push to +ephemeral does not create it; create it with:`,
		}},
		"one too many": {
			auth.OrgConfig{CreateOnPush: true, Limits: auth.OrgLimits{Repositories: 1}},
			auth.RepoWrite, "",
			[]string{`remote: error: organization "acme" may have 1 repositories`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unborn(t, test.config)
			enginetest.Create(t, r.host, "other")
			r.scopes = auth.GitRead | auth.GitWrite | test.scopes
			client := oracle.New(t)
			client.Seed(oracle.History{Seed: 85, Commits: 5})
			got := pushTo(client, r.url(test.variant), "URL main")
			for _, line := range test.says {
				if line = strings.ReplaceAll(line, "ADDRESS", r.base); !got.failed || !strings.Contains(got.stderr, line) {
					t.Errorf("git shows\n%s\nwithout\n%s", got.stderr, line)
				}
			}
			if r.born() != nil {
				t.Error("the repository is there")
			}
			for _, args := range [][]string{{"ls-remote", r.url("")}, {"clone", r.url(""), t.TempDir()}} {
				out, err := client.Try(nil, args...)
				if err == nil || !strings.Contains(err.Error(), `repository "r" not found`) ||
					strings.Contains(err.Error(), "create it") {
					t.Errorf("git %s: %s, %v", args[0], out, err)
				}
			}
		})
	}
}

// TestPushMeetsCreation creates the repository between the two requests of a push that was going to
// create it: the push goes to that one.
func TestPushMeetsCreation(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	config := auth.OrgConfig{CreateOnPush: true}
	r := serveHost(t, host, githttp.Config{OrgConfig: func(string) (*auth.OrgConfig, bool) { return &config, true }})
	r.before = func(x exchange.Exchange) {
		if x.Method() == http.MethodPost {
			enginetest.Create(t, host, repoName)
		}
	}
	client := oracle.New(t)
	client.Seed(oracle.History{Seed: 86, Commits: 5})
	client.Git("push", "--quiet", r.url(""), "main")
	if r.repo = r.born(); len(r.refs(refs.Main)) != 1 {
		t.Errorf("refs %q", r.refs(refs.Main))
	}
}
