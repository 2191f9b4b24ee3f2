package rest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// merge merges the branch dev into main, unless fields say otherwise; they are JSON without braces.
func (c *client) merge(fields string) answer {
	c.t.Helper()
	body := `{"source_branch":"dev","target_branch":"main",` + fields + `}`
	return c.call(c.door.Merge, http.MethodPost, "/", strings.NewReader(body))
}

// details are the required fields of a merge commit.
const details = `"commit_message":"joined",` + author

// merged is the answer to a merge.
type merged struct {
	Result    string
	CommitSHA string `json:"commit_sha"`
	TreeSHA   string `json:"tree_sha"`
	Source    struct {
		Branch, SHA string
		Ephemeral   bool
	}
	Target struct {
		Branch    string
		Ephemeral bool
		OldSHA    string `json:"old_sha"`
		NewSHA    string `json:"new_sha"`
	}
	MergeBase string `json:"merge_base_sha"`
	Promoted  int    `json:"promoted_commits"`
}

// parents returns the parents of the newest commit of a branch.
func (c *client) parents(branch string) []string {
	c.t.Helper()
	var page struct {
		Commits []struct {
			Parents []string `json:"parent_shas"`
		}
	}
	c.call(c.door.Commits, http.MethodGet, "/?limit=1&branch="+branch, nil).want(http.StatusOK).decode(&page)
	return page.Commits[0].Parents
}

// diverged has the branches main and dev, each with a commit of its own, and returns them and their
// common base.
func diverged(t *testing.T, mainPath, devPath string) (c *client, base, main, dev string) {
	t.Helper()
	c = newClient(t)
	base, main, dev = c.diverge(mainPath, devPath)
	return c, base, main, dev
}

func (c *client) diverge(mainPath, devPath string) (base, main, dev string) {
	c.t.Helper()
	c.create("").want(http.StatusCreated)
	base = c.commit("main", "f", "1\n2\n3\n").Commit.SHA
	dev = c.commit("dev", devPath, "dev\n").Commit.SHA
	main = c.commit("main", mainPath, "main\n").Commit.SHA
	return base, main, dev
}

func TestMergeMakesACommit(t *testing.T) {
	t.Parallel()
	for name, squash := range map[string]bool{"merge": false, "squash": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, base, main, dev := diverged(t, "a", "b")
			var m merged
			got := c.merge(fmt.Sprintf(`"strategy":"ff_prefer","squash":%v,%s`, squash, details)).want(http.StatusOK)
			got.decode(&m)
			want, parents := "merge_commit", []string{main, dev}
			if squash {
				want, parents = "squash", parents[:1]
			}
			if m.Result != want || m.MergeBase != base || m.Promoted != 1 || m.Source.SHA != dev || m.Target.OldSHA != main ||
				m.Target.NewSHA != m.CommitSHA || m.Source.Branch != "dev" || m.Target.Branch != "main" || len(m.TreeSHA) != 40 {
				t.Errorf("answer is %s", got.Body)
			}
			if got := c.parents("main"); fmt.Sprint(got) != fmt.Sprint(parents) {
				t.Errorf("parents are %v, want %v", got, parents)
			}
			if body := c.call(c.door.File, http.MethodGet, "/?path=b", nil).want(http.StatusOK).Body; string(body) != "dev\n" {
				t.Errorf("b holds %q", body)
			}
			if squash {
				return
			}
			c.merge(`"strategy":"merge"`).want(http.StatusOK).decode(&m)
			if m.Result != "no_op" || m.Promoted != 0 || m.Target.OldSHA != m.Target.NewSHA || m.CommitSHA != m.Target.NewSHA ||
				m.MergeBase != dev {
				t.Errorf("merged again: %+v", m)
			}
		})
	}
}

func TestMergeForward(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ fields, result string }{
		"ff_only":          {`"strategy":"ff_only"`, "fast_forward"},
		"ff_prefer":        {`"strategy":"ff_prefer"`, "fast_forward"},
		"merge":            {`"strategy":"merge",` + details, "merge_commit"},
		"ff_prefer squash": {`"strategy":"ff_prefer","squash":true,` + details, "squash"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, done := seeded(t)
			main, dev := done[2].Commit.SHA, done[3].Commit
			var m merged
			got := c.merge(test.fields + fmt.Sprintf(`,"expected_target_sha":%q`, main)).want(http.StatusOK)
			got.decode(&m)
			if m.Result != test.result || m.TreeSHA != dev.Tree || m.Promoted != 1 || m.MergeBase != main ||
				m.Target.OldSHA != main {
				t.Errorf("answer is %s", got.Body)
			}
			if (m.CommitSHA == dev.SHA) != (test.result == "fast_forward") {
				t.Errorf("main is at %s, dev at %s", m.CommitSHA, dev.SHA)
			}
			if got.Header.Get("X-Repo-Sequence") == "" {
				t.Error("no X-Repo-Sequence")
			}
		})
	}
}

func TestMergeNamespaces(t *testing.T) {
	t.Parallel()
	c, _, main, _ := diverged(t, "a", "b")
	c.post(c.door.CreateBranch, `{"target_branch":"main","base_branch":"dev","target_is_ephemeral":true}`).
		want(http.StatusCreated)
	var m merged
	body := `{"source_branch":"main","source_is_ephemeral":true,"target_branch":"main","strategy":"merge",` + details + `}`
	got := c.post(c.door.Merge, body).want(http.StatusOK)
	got.decode(&m)
	if !m.Source.Ephemeral || m.Target.Ephemeral || m.Target.OldSHA != main || m.Result != "merge_commit" {
		t.Errorf("a promotion: %s", got.Body)
	}
	back := `{"source_branch":"main","target_branch":"main","target_is_ephemeral":true,"strategy":"ff_only"}`
	c.post(c.door.Merge, back).want(http.StatusOK).decode(&m)
	if m.Result != "fast_forward" || !m.Target.Ephemeral {
		t.Errorf("and back: %+v", m)
	}
}

func TestMergeConflict(t *testing.T) {
	t.Parallel()
	c, base, main, _ := diverged(t, "f", "f")
	got := c.merge(`"strategy":"merge",` + details).want(http.StatusConflict)
	var conflict struct {
		Error, Type string
		Kind        string   `json:"conflict_type"`
		Paths       []string `json:"conflict_paths"`
		Base        string   `json:"merge_base_sha"`
	}
	got.decode(&conflict)
	if conflict.Error == "" || conflict.Kind != "merge_conflict" || fmt.Sprint(conflict.Paths) != "[f]" ||
		conflict.Base != base {
		t.Errorf("answer is %s", got.Body)
	}
	got = c.merge(fmt.Sprintf(`"strategy":"merge","expected_target_sha":%q,%s`, base, details)).want(http.StatusConflict)
	got.decode(&conflict)
	if conflict.Kind != "target_moved" || !strings.Contains(conflict.Error, main) {
		t.Errorf("another target: %s", got.Body)
	}
	if _, tips := c.tips(""); tips[0] != main {
		t.Errorf("main moved to %s", tips[0])
	}
}

// TestMergeRefuses has the rows of the specification's Errors table that a request can cause.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	c, _, _, _ := diverged(t, "a", "b")
	good := `{"source_branch":"dev","target_branch":"main","strategy":"merge",` + details + `}`
	with := func(changes ...string) string { return strings.NewReplacer(changes...).Replace(good) }
	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"no body":            {``, 400, "JSON object"},
		"no source":          {with(`"dev"`, `""`), 400, "source_branch"},
		"no target":          {with(`"main"`, `""`), 400, "target_branch"},
		"no strategy":        {with(`"merge"`, `""`), 400, "strategy"},
		"unknown strategy":   {with(`"merge"`, `"rebase"`), 400, "strategy"},
		"wrong type":         {with(`"dev"`, `1`), 400, "source_branch"},
		"full name":          {with(`"dev"`, `"refs/heads/dev"`), 400, "source_branch"},
		"bad name":           {with(`"main"`, `"a..b"`), 400, "target_branch"},
		"same branch":        {with(`"dev"`, `"main"`), 400, "same branch"},
		"squash and ff_only": {with(`"merge"`, `"ff_only","squash":true`), 400, "squash"},
		"short expected sha": {with(`"merge"`, `"merge","expected_target_sha":"abc"`), 400, "expected_target_sha"},
		"no message":         {with(`"joined"`, `" "`), 400, "commit_message"},
		"no author": {
			`{"source_branch":"dev","target_branch":"main","strategy":"merge","commit_message":"m"}`, 400, "author",
		},
		"bad committer":      {with(`"merge"`, `"merge","committer":{"name":"<"}`), 400, "committer"},
		"missing source":     {with(`"dev"`, `"nowhere"`), 404, `"nowhere"`},
		"missing target":     {with(`"main"`, `"nowhere"`), 404, `"nowhere"`},
		"not ephemeral":      {with(`"merge"`, `"merge","source_is_ephemeral":true`), 404, `"dev"`},
		"not a fast-forward": {with(`"merge"`, `"ff_only"`), 412, "moved forward"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := *c
			client.t = t
			client.post(c.door.Merge, test.body).refused(test.status, test.says)
		})
	}
	t.Run("no repository", func(t *testing.T) {
		t.Parallel()
		client := c.as("none")
		client.t = t
		client.post(c.door.Merge, good).refused(404, "none")
	})
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		client := c.bound("refs/heads/main", refs.NoPush)
		client.t = t
		client.post(c.door.Merge, good).refused(403, "denied by policy")
	})
}

func TestMergeUnrelated(t *testing.T) {
	t.Parallel()
	c, host, shut := onLimits(t, vfs.NewMem(), engine.Config{})
	defer shut()
	c.create("").want(http.StatusCreated)
	c.commit("main", "a", "a\n")
	c.pushRoot(host, "dev")
	c.merge(`"strategy":"merge",`+details).refused(http.StatusPreconditionFailed, "unrelated")
	c.call(c.door.PreviewMerge, http.MethodGet, "/?source_branch=dev&target_branch=main", nil).
		refused(http.StatusPreconditionFailed, "unrelated")
	var m merged
	c.merge(`"strategy":"merge","allow_unrelated_histories":true,` + details).want(http.StatusOK).decode(&m)
	if m.Result != "merge_commit" || m.MergeBase != "" || m.Promoted != 1 {
		t.Errorf("answer is %+v", m)
	}
}

// pushRoot pushes a branch with a new root.
func (c *client) pushRoot(host *engine.Host, branch string) {
	c.t.Helper()
	git := oracle.New(c.t)
	tip := git.Seed(oracle.History{Seed: 1, Commits: 1})
	packed := git.Input([]byte(tip+"\n"), "pack-objects", "--quiet", "--revs", "--stdout")
	id, err := object.ParseID(tip)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx := c.t.Context()
	repo, err := host.Repository(ctx, enginetest.Org, "r")
	if err != nil {
		c.t.Fatal(err)
	}
	push, err := repo.Receive(ctx, engine.Actor{Org: enginetest.Org}, engine.PushRequest{
		Commands: []engine.Command{{Name: "refs/heads/" + branch, New: id}}, Pack: bytes.NewReader(packed),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	defer push.Close()
	if _, err := push.Finish(ctx, func(string) {}); err != nil {
		c.t.Fatal(err)
	}
}

// onLimits is a client of a host with other settings, on a file system that it can be opened on
// again.
func onLimits(t *testing.T, fs vfs.FS, config engine.Config) (c *client, host *engine.Host, shut func()) {
	t.Helper()
	host, shut = enginetest.OpenOn(t, fs, config)
	return &client{
		t: t, door: rest.New(rest.Config{Host: host}),
		grant: &auth.Grant{Org: enginetest.Org, Subject: "tester", Repo: "r", Scopes: auth.GitRead | auth.GitWrite},
	}, host, shut
}

func TestMergeTooLarge(t *testing.T) {
	t.Parallel()
	c, _, shut := onLimits(t, vfs.NewMem(), engine.Config{Limits: engine.Limits{MergeBytesMax: 20}})
	defer shut()
	_, main, _ := c.diverge("a", "b")
	c.merge(`"strategy":"merge",`+details).refused(http.StatusRequestEntityTooLarge, "limit")
	if _, tips := c.tips(""); tips[0] != main {
		t.Errorf("main moved to %s", tips[0])
	}
}

// TestMergeStorageFails lets a merge meet damaged objects, and a store that is gone.
func TestMergeStorageFails(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it damages files in their folder")
	fs := vfs.NewMem()
	config := engine.Config{Objects: odb.Options{Limits: odb.Limits{HotBytes: 1 << 10}}}
	c, _, shut := onLimits(t, fs, config)
	c.create("").want(http.StatusCreated)
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b bytes.Buffer
		for range 2000 {
			fmt.Fprintf(&b, "%x\n", random.Uint64())
		}
		return b.String()
	}
	base := text()
	c.commit("main", "f", base)
	c.commit("dev", "f", base+"dev\n")
	c.commit("main", "f", "main\n"+base)
	shut()
	damaged := 0
	folders, err := fs.List("files/settled")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		names, err := fs.List(path.Join("files/settled", folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			damaged++
			damage(t, fs, path.Join("files/settled", folder, name))
		}
	}
	if damaged == 0 {
		t.Fatal("nothing to damage")
	}
	c, _, shut = onLimits(t, fs, config)
	c.merge(`"strategy":"merge",`+details).refused(http.StatusBadGateway, "storage")
	shut()
	c.merge(`"strategy":"merge",`+details).refused(http.StatusServiceUnavailable, "not available")
}

// damage overwrites some bytes in the data of a file.
func damage(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 500); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMergePreview(t *testing.T) {
	t.Parallel()
	type version struct {
		OID, Content      *string
		Truncated, Binary bool
	}
	type preview struct {
		Status, Result string
		Source         string   `json:"source_tip_sha"`
		Target         string   `json:"target_tip_sha"`
		Base           string   `json:"merge_base_sha"`
		Paths          []string `json:"conflict_paths"`
		Conflicts      []struct {
			Path                       string
			Result, Base, Ours, Theirs version
		}
		Filtered []struct{ Path, Reason string } `json:"filtered_conflicts"`
	}
	ask := func(c *client, more string) (p preview) {
		c.t.Helper()
		c.call(c.door.PreviewMerge, http.MethodGet, "/?source_branch=dev&target_branch=main"+more, nil).want(http.StatusOK).
			decode(&p)
		return p
	}
	c, base, main, dev := diverged(t, "f", "f")
	p := ask(c, "&include_content=true")
	if p.Status != "conflicted" || p.Result != "merge_commit" || p.Source != dev || p.Target != main || p.Base != base ||
		fmt.Sprint(p.Paths) != "[f]" || len(p.Conflicts) != 1 || p.Filtered == nil {
		t.Fatalf("preview is %+v", p)
	}
	f := p.Conflicts[0]
	if *f.Base.Content != "1\n2\n3\n" || *f.Ours.Content != "main\n" || *f.Theirs.Content != "dev\n" ||
		*f.Result.Content != "<<<<<<< main\nmain\n=======\ndev\n>>>>>>> dev\n" || f.Base.OID == nil {
		t.Errorf("conflict is %+v, result %q", f, *f.Result.Content)
	}
	if f := ask(c, "").Conflicts[0]; f.Base.Content != nil || f.Base.OID == nil {
		t.Errorf("contents were not asked for: %+v", f)
	}
	if _, tips := c.tips(""); tips[0] != main {
		t.Errorf("main moved to %s", tips[0])
	}
	clean, _, _, _ := diverged(t, "a", "b")
	if p := ask(clean, ""); p.Status != "clean" || p.Result != "merge_commit" || p.Paths == nil || p.Conflicts == nil {
		t.Errorf("a clean one: %+v", p)
	}
	forward, _ := seeded(t)
	if p := ask(forward, ""); p.Status != "clean" || p.Result != "fast_forward" {
		t.Errorf("a fast-forward: %+v", p)
	}
	for target, want := range map[string]int{
		"/": 400, "/?source_branch=dev&target_branch=dev": 400, "/?source_branch=x&target_branch=main": 404,
		"/?source_branch=dev&target_branch=main&include_content=1": 400,
	} {
		c.call(c.door.PreviewMerge, http.MethodGet, target, nil).want(want)
	}
}
