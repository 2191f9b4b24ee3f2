package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/upstream"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestSyncNeverForces moves refs on both sides so that neither contains the other: both stay, and
// the reason is reported.
func TestSyncNeverForces(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.Seed(oracle.History{Seed: 3, Commits: 12})
	for _, name := range []string{"diverged", "rewritten", "rewound", "healthy"} {
		f.Git("branch", name, "main")
	}
	f.Git("tag", "moved", "main")
	n := openNear(t, vfs.NewMem(), slow(f.config()))
	n.create(engine.UpstreamBase{})
	n.synced()

	f.commit("diverged", "theirs")
	f.Git("update-ref", "refs/heads/rewritten", f.Git("commit-tree", "main^{tree}", "-m", "rewritten"))
	f.Git("tag", "-f", "moved", "main~2")
	f.commit("healthy", "on")
	n.commit("diverged", "", "ours")
	// A push that rewinds, which the policy of its token allows.
	old := mustID(t, n.refs()["refs/heads/rewound"])
	n.move(false, engine.Command{Name: "refs/heads/rewound", Old: old, New: mustID(t, f.Git("rev-parse", "main~3"))})
	state := n.pull()
	for _, text := range []string{
		"refs/heads/diverged has diverged", "refs/heads/rewritten has been rewritten at the upstream",
		"refs/heads/rewound has been rewound here", "refs/tags/moved is another tag",
	} {
		if state.Phase != upstream.Failed || !strings.Contains(state.LastError, text) {
			t.Errorf("state is %+v, without %q", state, text)
		}
	}
	ours, theirs := n.refs(), f.refs()
	for name := range ours {
		if same, want := ours[name] == theirs[name], name == "refs/heads/main" || name == "refs/heads/healthy"; same != want {
			t.Errorf("%s is at %s here and at %s there", name, ours[name], theirs[name])
		}
	}

	// The upstream takes the sides together again.
	f.Git("update-ref", "refs/heads/rewritten", ours["refs/heads/rewritten"])
	f.Git("update-ref", "refs/heads/rewound", f.Git("rev-parse", "main~3"))
	f.Git("tag", "-f", "moved", ours["refs/tags/moved"])
	f.Git("update-ref", "-d", "refs/heads/diverged")
	if state := n.pull(); state.Phase != upstream.Synced || state.LastError != "" {
		t.Errorf("state is %+v", state)
	}
	n.equal(f)
	if got := f.refs()["refs/heads/diverged"]; got != ours["refs/heads/diverged"] {
		t.Errorf("work that a deletion met is at %q", got)
	}

	// The default branch stays, whatever the upstream does.
	f.Git("update-ref", "-d", "refs/heads/main")
	if state := n.pull(); !strings.Contains(state.LastError, "refs/heads/main has gone at the upstream") {
		t.Errorf("state is %+v", state)
	}
	if n.refs()["refs/heads/main"] == "" {
		t.Error("the default branch is gone")
	}
}

// TestSyncSendsWhatBelongsThere checks which refs are sent: ephemeral branches stay here until they
// are promoted, with their history then, and so do imported ones.
func TestSyncSendsWhatBelongsThere(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{})
	n.synced()
	repo := n.open()
	var tip object.ID
	for _, text := range []string{"draft", "better"} {
		done, err := upload(repo, ada, engine.CommitTarget{
			Branch: "draft", Namespace: refs.Ephemeral, Base: "main", BaseNamespace: refs.Main,
		}, change{path: text, content: text})
		if err != nil {
			t.Fatal(err)
		}
		tip = done.New
	}
	old := f.refs()["refs/heads/main"]
	n.move(true, engine.Command{Name: "refs/heads/history", New: tip})
	if state := n.pull(); state.Phase != upstream.Synced {
		t.Fatalf("state is %+v", state)
	}
	if got := f.refs(); len(got) != 1 || got["refs/heads/main"] != old {
		t.Errorf("the upstream has %v", got)
	}
	merged, err := repo.Merge(t.Context(), ada, engine.MergeRequest{
		Source: engine.CommitName{Text: "draft", Kind: engine.BranchName, Namespace: refs.Ephemeral}, Target: engine.MergeBranch{Name: "main"},
		Strategy: engine.PreferForward,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.synced()
	n.await("promoted", func(engine.SyncState) bool { return f.refs()["refs/heads/main"] == merged.Commit.String() })
	if got := f.Git("rev-list", "--count", old+"..main"); got != "2" {
		t.Errorf("%s commits of the promotion are there", got)
	}
	f.Git("fsck", "--strict", "--connectivity-only")
	if out := f.Git("for-each-ref", "refs/namespaces", "refs/heads/draft", "refs/heads/history"); out != "" {
		t.Errorf("the upstream has %s", out)
	}
	// From here on the imported branch is one like any other.
	n.commit("history", "", "news")
	n.equal(f)
	n.synced()
}

// TestSyncDefaultBranch looks which branch a repository takes for its default.
func TestSyncDefaultBranch(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		request string // default_branch of the request
		base    engine.UpstreamBase
		head    string
		want    string
	}{
		"nothing asked for": {
			base: engine.UpstreamBase{Origin: upstream.Origin{FollowHead: true}}, head: "trunk", want: "trunk",
		},
		"HEAD without a branch": {
			base: engine.UpstreamBase{Origin: upstream.Origin{FollowHead: true}}, head: "unborn", want: "main",
		},
		"one that is there":     {request: "main", head: "trunk", want: "main"},
		"one that is not there": {request: "other", head: "trunk", want: "trunk"},
		"the base's, which is not there": {
			request: "main", base: engine.UpstreamBase{Origin: upstream.Origin{DefaultBranch: "mine"}}, head: "trunk",
			want: "mine",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			f.commit("main", "one")
			f.commit("trunk", "two")
			f.Git("symbolic-ref", "HEAD", "refs/heads/"+test.head)
			n := openNear(t, vfs.NewMem(), f.config())
			test.base.Provider, test.base.Owner, test.base.Name = "gitea", "ada", "r"
			if _, err := n.host.CreateRepository(t.Context(), ada, engine.CreateRequest{
				Name: "r", DefaultBranch: test.request, Upstream: &test.base,
			}); err != nil {
				t.Fatal(err)
			}
			n.synced()
			if got := n.open().Item().DefaultBranch; got != test.want {
				t.Errorf("the default branch is %q, not %q", got, test.want)
			}
			// A detachment leaves it.
			if _, err := n.open().Detach(t.Context(), ada); err != nil {
				t.Fatal(err)
			}
			if got := n.open().Item(); got.DefaultBranch != test.want || got.Base != nil {
				t.Errorf("after the detachment: %+v", got)
			}
		})
	}
}

// TestSyncPublic fetches from a public repository without credentials, and sends nothing.
func TestSyncPublic(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{Origin: upstream.Origin{Provider: upstream.GitHub, Public: true}})
	n.synced()
	n.commit("own", "main", "ours")
	f.commit("main", "two")
	if state := n.pull(); state.Phase != upstream.Synced {
		t.Errorf("state is %+v", state)
	}
	ours, theirs := n.refs(), f.refs()
	if len(theirs) != 1 || ours["refs/heads/main"] != theirs["refs/heads/main"] || ours["refs/heads/own"] == "" {
		t.Errorf("here: %v, upstream: %v", ours, theirs)
	}
}

// counter counts the bytes of an answer.
type counter struct {
	http.ResponseWriter
	count *atomic.Int64
}

func (c counter) Write(p []byte) (int, error) {
	c.count.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// TestPullIsSmall fetches one more commit: the upstream learns our commits and sends only the new
// one.
func TestPullIsSmall(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.Seed(oracle.History{Seed: 11, Commits: 80, Binary: true, Merges: true})
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{})
	n.synced()
	n.commit("ours", "main", "ours")
	n.equal(f)
	var count atomic.Int64
	f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			w = counter{w, &count}
		}
		next.ServeHTTP(w, r)
	})
	// Nothing but this commit is new, and its parent is an ancestor of the upstream's refs.
	tree := f.Git("rev-parse", "main~20^{tree}")
	f.Git("update-ref", "refs/heads/more", f.Git("commit-tree", tree, "-p", "main~20", "-m", "more"))
	if state := n.pull(); state.Phase != upstream.Synced {
		t.Errorf("state is %+v", state)
	}
	n.equal(f)
	if got := count.Load(); got == 0 || got > 4<<10 {
		t.Errorf("%d bytes were fetched for one commit", got)
	}
}

// TestImportManyRefs imports more refs than one transaction moves.
func TestImportManyRefs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("thousands of refs take long")
	}
	f := newFar(t)
	f.commit("main", "one")
	id := f.refs()["refs/heads/main"]
	var create strings.Builder
	for i := range 5_100 {
		_, _ = fmt.Fprintf(&create, "create refs/heads/many/%d %s\n", i, id) // never fails
	}
	f.Input([]byte(create.String()), "update-ref", "--stdin")
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{})
	n.synced()
	n.equal(f)
}

// TestImportRealHistory imports the repository that PACKHORSE_REAL_REPO names.
func TestImportRealHistory(t *testing.T) {
	t.Parallel()
	source := oracle.Real(t)
	f := serveFar(t, linkRoot(t, source.Dir), source)
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{Origin: upstream.Origin{FollowHead: true}})
	state := n.settled()
	ours, theirs := n.refs(), f.refs()
	for name, id := range theirs {
		if ours[name] != id && !strings.Contains(state.LastError, name) {
			t.Errorf("%s is at %q, not at %s, and the state is %+v", name, ours[name], id, state)
		}
	}
	t.Logf("%d refs, state %+v", len(ours), state)
}
