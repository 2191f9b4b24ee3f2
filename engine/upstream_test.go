package engine_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
	"packhorse/engine/outbound"
	"packhorse/engine/upstream"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// far is a repository of the installed git behind git http-backend on the loopback.
type far struct {
	*oracle.Repository
	url string // base URL: the repository is below it as ada/r.git

	mu       sync.Mutex
	handle   func(w http.ResponseWriter, r *http.Request, next http.Handler) // in front of git, if not nil
	requests []string
}

func newFar(t *testing.T) *far {
	t.Helper()
	root := t.TempDir()
	repo := oracle.NewAt(t, filepath.Join(root, "ada", "r.git"))
	repo.Git("config", "http.receivepack", "true")
	return serveFar(t, root, repo)
}

// serveFar serves the repository that root has as ada/r.git.
func serveFar(t *testing.T, root string, repo *oracle.Repository) *far {
	t.Helper()
	f := &far{Repository: repo}
	backend := &cgi.Handler{
		Path: filepath.Join(f.Git("--exec-path"), "git-http-backend"),
		Env:  append(oracle.Env(f.Dir), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		handle := f.handle
		f.requests = append(f.requests, r.URL.String())
		f.mu.Unlock()
		if handle != nil {
			handle(w, r, backend)
		} else {
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// intercept puts a handler in front of git.
func (f *far) intercept(handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = handle
}

// count returns the number of requests so far whose URL contains a text.
func (f *far) count(text string) (count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.requests {
		if strings.Contains(request, text) {
			count++
		}
	}
	return count
}

// refs returns the branches and tags.
func (f *far) refs() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(f.Git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads",
		"refs/tags")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = id
	}
	return all
}

// commit adds a commit to a branch.
func (f *far) commit(branch, text string) {
	parent, _ := f.Try(nil, "rev-parse", "-q", "--verify", "refs/heads/"+branch)
	blob := strings.TrimSpace(string(f.Input([]byte(text), "hash-object", "-w", "--stdin")))
	tree := strings.TrimSpace(string(f.Input(fmt.Appendf(nil, "100644 blob %s\tfile\n", blob), "mktree")))
	args := []string{"commit-tree", tree, "-m", text}
	if p := strings.TrimSpace(string(parent)); p != "" {
		args = append(args, "-p", p)
	}
	id := f.Git(args...)
	f.Git("update-ref", "refs/heads/"+branch, id)
}

// near is a host whose upstreams are on the loopback.
type near struct {
	t    *testing.T
	host *engine.Host
	shut func()
}

const patience = 3 * time.Minute

func (f *far) config() engine.Config {
	guard, err := outbound.ParseGuard([]string{"127.0.0.1"})
	if err != nil {
		panic(err)
	}
	return engine.Config{
		SecretKey: []byte(strings.Repeat("k", credential.KeySize)),
		Upstreams: engine.UpstreamConfig{
			Enabled: true, Guard: guard,
			Bases:    func(string) map[string]string { return map[string]string{"gitea": f.url, "github": f.url} },
			Settings: upstream.Settings{RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond},
		},
	}
}

func openNear(t *testing.T, fs vfs.FS, config engine.Config) *near {
	t.Helper()
	host, shut := enginetest.OpenOn(t, fs, config)
	n := &near{t: t, host: host, shut: sync.OnceFunc(shut)}
	t.Cleanup(n.shut)
	return n
}

var ada = engine.Actor{Org: enginetest.Org, Subject: "ada"}

// create makes the repository "r" with the upstream ada/r.
func (n *near) create(base engine.UpstreamBase) *engine.Repository {
	n.t.Helper()
	if base.Provider == "" {
		base.Provider = "gitea"
	}
	base.Owner, base.Name = "ada", "r"
	if _, err := n.host.CreateRepository(
		n.t.Context(), ada, engine.CreateRequest{Name: "r", Upstream: &base},
	); err != nil {
		n.t.Fatal(err)
	}
	return n.open()
}

func (n *near) open() *engine.Repository {
	n.t.Helper()
	repo, err := n.host.Repository(n.t.Context(), enginetest.Org, "r")
	if err != nil {
		n.t.Fatal(err)
	}
	return repo
}

// slow makes failures wait for long, so that only what wakes a sync brings one about.
func slow(c engine.Config) engine.Config {
	c.Upstreams.Settings = upstream.Settings{RetryMin: time.Hour, RetryMax: time.Hour}
	return c
}

// await waits until the repository's sync state is as wanted, and returns it.
func (n *near) await(want string, is func(engine.SyncState) bool) engine.SyncState {
	n.t.Helper()
	var state engine.SyncState
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var ok bool
		if state, ok = n.open().Sync(); ok && is(state) {
			return state
		}
	}
	n.t.Fatalf("the sync state is %+v, not %s", state, want)
	return state
}

func (n *near) synced() engine.SyncState {
	n.t.Helper()
	return n.await("synced", func(s engine.SyncState) bool { return s.Phase == upstream.Synced })
}

// failed waits for a sync that has failed with a text, which may be tried again at once.
func (n *near) failed(text string) engine.SyncState {
	n.t.Helper()
	return n.await("failed with "+text, func(s engine.SyncState) bool { return strings.Contains(s.LastError, text) })
}

// pull asks for a sync and waits for its end.
func (n *near) pull() engine.SyncState {
	n.t.Helper()
	if _, err := n.open().PullUpstream(n.t.Context(), ada, ""); err != nil {
		n.t.Fatal(err)
	}
	return n.settled()
}

// refs returns branches and tags outside of the ephemeral namespace.
func (n *near) refs() map[string]string {
	n.t.Helper()
	ad, err := n.open().Advertise(n.t.Context(), refs.Main)
	if err != nil {
		n.t.Fatal(err)
	}
	defer ad.Close()
	all := map[string]string{}
	for ref, err := range ad.All(n.t.Context(), "refs/") {
		if err != nil {
			n.t.Fatal(err)
		}
		if upstream.Covers(ref.Name) {
			all[ref.Name] = ref.ID.String()
		}
	}
	return all
}

// equal waits until both sides have the same refs.
func (n *near) equal(f *far) {
	n.t.Helper()
	var ours, theirs map[string]string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ours, theirs = n.refs(), f.refs()
		if fmt.Sprint(ours) == fmt.Sprint(theirs) {
			return
		}
	}
	state, _ := n.open().Sync()
	n.t.Fatalf("here:     %v\nupstream: %v\nsync: %+v", ours, theirs, state)
}

// move pushes refs to objects that are there, as an import or not.
func (n *near) move(history bool, commands ...engine.Command) {
	n.t.Helper()
	push, err := n.open().Receive(n.t.Context(), ada, engine.PushRequest{Import: history, Commands: commands})
	if err != nil {
		n.t.Fatal(err)
	}
	defer push.Close()
	result, err := push.Finish(n.t.Context(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, done := range result.Commands {
		if done.Err != nil {
			n.t.Fatalf("%s: %v", done.Name, done.Err)
		}
	}
}

// settled waits until no sync is due, and returns the state.
func (n *near) settled() engine.SyncState {
	n.t.Helper()
	return n.await("settled", func(s engine.SyncState) bool {
		return s.Phase == upstream.Synced || s.Phase == upstream.Failed
	})
}

// commit commits a file to a branch, which is made from base if need be.
func (n *near) commit(branch, base, text string) {
	n.t.Helper()
	_, err := upload(n.open(), ada, engine.CommitTarget{Branch: branch, Base: base}, change{path: text, content: text})
	if err != nil {
		n.t.Fatal(err)
	}
}

// TestSyncBothWays imports a history, and then moves refs on both sides in every way there is.
func TestSyncBothWays(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.Seed(oracle.History{Seed: 7, Commits: 60, Merges: true, Tags: true, Binary: true})
	f.Git("branch", "aside", "main~3")
	f.Git("branch", "gone", "main~5")
	f.Git("branch", "folder/leaf", "main~6")
	f.Git("symbolic-ref", "HEAD", "refs/heads/aside")
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{Origin: upstream.Origin{FollowHead: true}})
	n.synced()
	n.equal(f)
	item := n.open().Item()
	if item.DefaultBranch != "aside" || item.Base == nil ||
		*item.Base != (engine.ItemBase{Provider: "gitea", Owner: "ada", Name: "r"}) {
		t.Errorf("item is %+v with base %+v", item, item.Base)
	}

	// There: forward, new, gone, a folder in place of a file and the other way round, a tag.
	f.commit("main", "more")
	f.Git("branch", "new", "main~1")
	f.Git("branch", "-D", "gone")
	f.Git("branch", "-D", "folder/leaf")
	f.Git("branch", "folder", "main~2")
	f.Git("tag", "light", "main~4")
	if state := n.pull(); state.Phase != upstream.Synced {
		t.Fatalf("state is %+v", state)
	}
	n.equal(f)
	if got := n.refs()["refs/heads/gone"]; got != "" {
		t.Errorf("a branch that has gone is at %s", got)
	}

	// Here: forward, new, a tag, a deletion, and an ephemeral branch.
	n.commit("main", "", "ours")
	n.commit("topic", "main", "a topic")
	repo := n.open()
	head := mustID(t, n.refs()["refs/heads/main"])
	if _, err := repo.CreateTag(t.Context(), ada, refs.Main, "v-ours", named(head)); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.DeleteBranch(t.Context(), ada, refs.Main, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.AddNote(
		t.Context(), ada, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(head)}, "private", false,
	); err != nil {
		t.Fatal(err)
	}
	n.equal(f)
	n.synced()
	if out := f.Git("for-each-ref", "refs/notes", "refs/namespaces"); out != "" {
		t.Errorf("what stays here has been sent: %s", out)
	}
	f.Git("fsck", "--strict")

	events, err := repo.Events(t.Context(), engine.EventsRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var causes []string
	for _, e := range events.Entries {
		if e.Actor == "upstream" && !slices.Contains(causes, e.Cause) {
			causes = append(causes, e.Cause)
		}
	}
	if fmt.Sprint(causes) != "[import pull-upstream]" {
		t.Errorf("the upstream has changed refs by %v", causes)
	}
}

func mustID(t *testing.T, hex string) object.ID {
	t.Helper()
	id, err := object.ParseID(hex)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
