package githttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// repoName is the repository of every remote here.
const repoName = "r"

// remote is a host in memory with one repository, behind a door on a loopback address.
type remote struct {
	t    testing.TB
	host *engine.Host
	repo *engine.Repository
	door *githttp.Door
	base string
	// scopes are those of each token, and before, if not nil, is called with each request. Both are
	// set before the first one.
	scopes auth.Scope
	before func(x exchange.Exchange)
}

// serve opens a remote until the test ends.
func serve(tb testing.TB, config githttp.Config) *remote {
	tb.Helper()
	host := enginetest.Open(tb)
	repo := enginetest.Create(tb, host, repoName)
	r := serveHost(tb, host, config)
	r.repo = repo
	return r
}

// serveHost serves a host in which the repository may be missing yet.
func serveHost(tb testing.TB, host *engine.Host, config githttp.Config) *remote {
	tb.Helper()
	config.Host, config.Agent = host, "packhorse/test"
	r := &remote{
		t: tb, host: host, door: githttp.New(config), scopes: auth.GitRead | auth.GitWrite | auth.RepoWrite,
	}
	server := httptest.NewUnstartedServer(exchangetest.Handler(r.handle, func(x exchange.Exchange, err error) {
		githttp.Refuse(x, err)
	}))
	server.Config.ErrorLog = log.New(failing{tb}, "", 0)
	server.Start()
	tb.Cleanup(server.Close)
	r.base = server.URL
	return r
}

// failing fails a test with whatever is written to it.
type failing struct{ tb testing.TB }

func (f failing) Write(p []byte) (int, error) {
	f.tb.Errorf("%s", p)
	return len(p), nil
}

// policyHeader names the policy of a request's token.
const policyHeader = "X-Policy"

// policies are the policies that a request may name.
var policies = map[string][]string{"no-push": {"no-push"}, "no-force-push": {"no-force-push"}, "odd": {"no-such-op"}}

func (r *remote) handle(x exchange.Exchange) error {
	if r.before != nil {
		r.before(x)
	}
	path, ok := exchange.ParseGitPath(x.Path())
	if !ok {
		return &exchange.Error{Status: http.StatusNotFound, Message: "no such path"}
	}
	grant := &auth.Grant{Org: enginetest.Org, Subject: "tester", Repo: path.Repo, Scopes: r.scopes}
	if ops, ok := policies[x.Header(policyHeader)]; ok {
		policy, err := refs.ParsePolicy(nil, ops)
		if err != nil {
			return err
		}
		grant.Policy = policy
	}
	return r.door.Serve(x, path, grant)
}

// url is the URL for a git client; variant is "", "+ephemeral" or "+import".
func (r *remote) url(variant string) string { return r.base + "/" + repoName + variant + ".git" }

// refs returns the content of a namespace, "<id> <name>" in the order of the names.
func (r *remote) refs(ns refs.Namespace) []string {
	r.t.Helper()
	shown, err := r.repo.Advertise(context.Background(), ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer shown.Close()
	var list []string
	for ref, err := range shown.All(context.Background(), "") {
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, ref.ID.String()+" "+ref.Name)
	}
	return list
}

// push sends refspecs to the main remote and must succeed.
func (r *remote) push(git *oracle.Repository, refspecs ...string) {
	r.t.Helper()
	git.Git(append([]string{"push", "--quiet", r.url("")}, refspecs...)...)
}

// clone makes a bare repository with every ref of the remote, by the given version of the protocol
// and arguments of git clone.
func (r *remote) clone(version int, args ...string) *oracle.Repository {
	r.t.Helper()
	return cloneFrom(r.t, r.url(""), version, args...)
}

func cloneFrom(tb testing.TB, url string, version int, args ...string) *oracle.Repository {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "clone.git")
	git := oracle.Open(tb, dir)
	git.Git(append(
		append([]string{"-c", fmt.Sprintf("protocol.version=%d", version), "clone", "--quiet", "--bare"}, args...), url, dir,
	)...)
	git.Git("config", "protocol.version", fmt.Sprint(version))
	return git
}

// versions runs a test in each version of the protocol.
func versions(t *testing.T, test func(t *testing.T, version int)) {
	t.Helper()
	for version := range 3 {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// allRefs returns the refs of a repository as remote.refs does.
func allRefs(git *oracle.Repository) []string {
	return lines(git.Git("for-each-ref", "--format=%(objectname) %(refname)"))
}

// lines splits the output of git, nil for nothing.
func lines(out string) []string {
	if out = strings.TrimSuffix(out, "\n"); out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}
