package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/quota"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/refs"
)

// quotaWorld is a host with quotas, and a second organization without any in which the same happens
// first: that shows what a write needs.
type quotaWorld struct {
	t     *testing.T
	fs    vfs.FS
	host  *engine.Host
	keys  kv.Store
	files file.Store
	shut  func()

	mu     sync.Mutex
	limits quota.Limits // guarded by mu
}

const twin = "twin"

func newQuotaWorld(t *testing.T) *quotaWorld {
	t.Helper()
	w := &quotaWorld{t: t, fs: vfs.NewMem()}
	w.open()
	t.Cleanup(func() { w.shut() })
	for _, org := range []string{enginetest.Org, twin} {
		for _, name := range []string{"r", "other"} {
			w.create(org, engine.CreateRequest{Name: name, DefaultBranch: "main"})
			w.commit(org, name, engine.CommitTarget{Branch: "main"}, change{path: "a/b", content: "first"},
				change{path: "text", content: strings.Repeat("line\n", 100)})
			w.commit(org, name, engine.CommitTarget{Branch: "topic", Base: "main"}, change{path: "c", content: "topic"})
			w.commit(org, name, engine.CommitTarget{Branch: "main"}, change{path: "a/b", content: "second"})
		}
	}
	return w
}

func (w *quotaWorld) open() {
	w.t.Helper()
	keys, files, shutStores := odbtest.OpenStores(w.t, w.fs)
	host := enginetest.OpenOver(w.t, keys, files, engine.Config{
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
		Quotas: func(org string) quota.Limits {
			w.mu.Lock()
			defer w.mu.Unlock()
			if org != enginetest.Org {
				return quota.Limits{}
			}
			return w.limits
		},
	})
	w.host, w.keys, w.files = host, keys, files
	w.shut = func() {
		if err := host.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
		shutStores()
	}
}

func (w *quotaWorld) limit(limits quota.Limits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = limits
}

func (w *quotaWorld) create(org string, request engine.CreateRequest) {
	w.t.Helper()
	if _, err := w.host.CreateRepository(w.t.Context(), engine.Actor{Org: org, Subject: "tester"}, request); err != nil {
		w.t.Fatal(err)
	}
}

func (w *quotaWorld) repo(org, name string) *engine.Repository {
	w.t.Helper()
	repo, err := w.host.Repository(w.t.Context(), org, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return repo
}

func (w *quotaWorld) commit(org, name string, target engine.CommitTarget, changes ...change) {
	w.t.Helper()
	if _, err := upload(w.repo(org, name), engine.Actor{Org: org, Subject: "tester"}, target, changes...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *quotaWorld) usage(org, name string) engine.Usage {
	w.t.Helper()
	u, err := w.repo(org, name).Usage(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// stored returns what an organization without a quota stores, if no repository shares layers.
func (w *quotaWorld) stored(org string) (sum int64) {
	w.t.Helper()
	page, err := w.host.Repositories(w.t.Context(), org, engine.ListOptions{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range page.Items {
		sum += w.usage(org, item.Name).Stored.Bytes
	}
	return sum
}

// rows returns all rows and the names of all files.
func (w *quotaWorld) rows() map[string]string {
	w.t.Helper()
	all := make(map[string]string)
	for pair, err := range w.keys.Scan(w.t.Context(), kv.ScanOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		all[string(pair.Key)] = string(pair.Value)
	}
	for info, err := range w.files.List(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		all["file "+info.Name] = ""
	}
	return all
}

// scramble returns bytes that do not compress.
func scramble(size int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(size)))
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// pushed pushes a commit of one file to a new branch.
func pushed(content []byte, history bool) quotaWay {
	return func(w *quotaWorld, org string) error {
		w.t.Helper()
		blob := packtest.Hash(w.t, object.TypeBlob, content)
		tree := append([]byte("100644 file\x00"), blob[:]...)
		signed := fmt.Sprintf("tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n",
			packtest.Hash(w.t, object.TypeTree, tree))
		tip := packtest.Hash(w.t, object.TypeCommit, []byte(signed))
		push, err := w.repo(org, "r").Receive(w.t.Context(), engine.Actor{Org: org}, engine.PushRequest{
			Import: history, Commands: []engine.Command{{Name: "refs/heads/pushed", New: tip}},
			Pack: bytes.NewReader(packtest.Encode(packtest.Whole(object.TypeCommit, []byte(signed)),
				packtest.Whole(object.TypeTree, tree), packtest.Whole(object.TypeBlob, content))),
		})
		if err != nil {
			return err
		}
		defer push.Close()
		result, err := push.Finish(w.t.Context(), nil)
		if err != nil {
			return err
		}
		return errors.Join(result.Unpack, result.Commands[0].Err)
	}
}

// quotaWay is a way to store objects in the repository "r" of an organization, or in a new one.
type quotaWay func(w *quotaWorld, org string) error

func tester(org string) engine.Actor { return engine.Actor{Org: org, Subject: "tester"} }

// committed commits a content in pieces.
func committed(content []byte, piece int) quotaWay {
	return func(w *quotaWorld, org string) error {
		u, err := w.repo(org, "r").NewUpload(w.t.Context(), tester(org), engine.UploadRequest{
			Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
			Operations: []engine.FileOperation{{Path: "new", ContentID: "1"}},
		})
		if err != nil {
			return err
		}
		defer u.Close()
		for at := 0; at < len(content); at += piece {
			end := min(at+piece, len(content))
			if err := u.Chunk(w.t.Context(), "1", content[at:end], end == len(content)); err != nil {
				return err
			}
		}
		_, err = u.Finish(w.t.Context())
		return err
	}
}

var quotaWays = map[string]quotaWay{
	"push, small":         pushed([]byte("pushed"), false),
	"push, a segment":     pushed(scramble(3<<20), false),
	"import push":         pushed([]byte("old"), true),
	"commit-pack, small":  committed([]byte("new"), 100),
	"commit-pack, large":  committed(scramble(200<<10), 1<<20),
	"commit-pack, pieces": committed(scramble(5<<20), 64<<10),
	"commit-pack, text":   committed(bytes.Repeat([]byte("text, which compresses well\n"), 200_000), 64<<10),
	"diff-commit": func(w *quotaWorld, org string) error {
		u, err := w.repo(org, "r").NewPatchUpload(w.t.Context(), tester(org), engine.PatchRequest{
			Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
		})
		if err != nil {
			return err
		}
		defer u.Close()
		patch := "--- a/a/b\n+++ b/a/b\n@@ -1 +1 @@\n-second\n\\ No newline at end of file\n+third\n"
		if err := u.Chunk(w.t.Context(), []byte(patch), true); err != nil {
			return err
		}
		_, err = u.Finish(w.t.Context())
		return err
	},
	"merge": func(w *quotaWorld, org string) error {
		_, err := w.repo(org, "r").Merge(w.t.Context(), tester(org), engine.MergeRequest{
			Source: branchNamed("topic"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
			Details: engine.CommitDetails{Message: "m", Author: thor},
		})
		return err
	},
	"restore-commit": func(w *quotaWorld, org string) error {
		_, err := w.repo(org, "r").RestoreCommit(w.t.Context(), tester(org), engine.RestoreRequest{
			Target: main, Details: engine.CommitDetails{Author: thor}, Commit: branchNamed("topic"),
		})
		return err
	},
	"note": func(w *quotaWorld, org string) error {
		_, err := w.repo(org, "r").AddNote(w.t.Context(), tester(org), engine.NoteTarget{
			Ref: engine.DefaultNotesRef, Author: thor, Object: branchNamed("main"),
		}, "a note", false)
		return err
	},
	"snapshot": func(w *quotaWorld, org string) error {
		_, err := w.host.CreateRepository(w.t.Context(), tester(org), engine.CreateRequest{
			Name: "snapshot", Base: &engine.Base{Name: "r", Snapshot: &engine.CommitDetails{Message: "m", Author: thor}},
		})
		return err
	},
}

// TestQuotaWays stores objects in every way under a quota with a byte less than that needs, which
// leaves no trace, and then under one that it uses up.
func TestQuotaWays(t *testing.T) {
	t.Parallel()
	for name, way := range quotaWays {
		for _, of := range []string{"organization", "repository"} {
			t.Run(name+", "+of, func(t *testing.T) {
				t.Parallel()
				w := newQuotaWorld(t)
				// What it adds to the organization; a repository has what "r" has, or what the new one gets.
				before := w.stored(twin)
				if err := way(w, twin); err != nil {
					t.Fatal(err)
				}
				needs := w.stored(twin) - before
				limits := quota.Limits{Organization: before + needs}
				if of == "repository" {
					limits = quota.Limits{Repository: w.usage(enginetest.Org, "r").Stored.Bytes + needs}
					if name == "snapshot" {
						limits.Repository = needs
					}
				}
				if needs <= 0 {
					t.Fatalf("it needs %d bytes", needs)
				}

				w.limit(quota.Limits{Organization: max(limits.Organization-1, 0), Repository: max(limits.Repository-1, 0)})
				was := w.rows()
				err := way(w, enginetest.Org)
				exceeded, ok := errors.AsType[*quota.ExceededError](err)
				if !ok || exceeded.Of != of || !errors.Is(err, quota.ErrExceeded) {
					t.Fatalf("a byte too little: %v", err)
				}
				if now := w.rows(); !maps.Equal(was, now) {
					t.Errorf("%d rows and files became %d", len(was), len(now))
				}

				w.limit(limits)
				if err := way(w, enginetest.Org); err != nil {
					t.Fatalf("just enough: %v", err)
				}
				w.check()
			})
		}
	}
}

// check compares the figures in memory with those of the stores, and with those after a restart.
func (w *quotaWorld) check() {
	w.t.Helper()
	w.limit(quota.Limits{Organization: 1 << 40})
	figures := func() string {
		page, err := w.host.Repositories(w.t.Context(), enginetest.Org, engine.ListOptions{Limit: 100})
		if err != nil {
			w.t.Fatal(err)
		}
		var text strings.Builder
		for _, item := range page.Items {
			u := w.usage(enginetest.Org, item.Name)
			fmt.Fprintf(&text, "%s %v %v %v, all %d\n", item.Name, u.Stored, u.Shared, u.Borrowed, u.OrganizationBytes)
		}
		return text.String()
	}
	counted := figures()
	w.shut()
	w.open()
	if again := figures(); again != counted {
		w.t.Errorf("counted\n%safter a restart\n%s", counted, again)
	}
}

// TestQuotaTogether has uploads race for a quota: what is stored stays below it, and all that fits
// is stored in the end.
func TestQuotaTogether(t *testing.T) {
	t.Parallel()
	w := newQuotaWorld(t)
	const size, fit = 100 << 10, 3
	before := w.stored(enginetest.Org)
	w.limit(quota.Limits{Organization: before + fit*(size+10<<10)})
	var writing sync.WaitGroup
	errs := make([]error, 4*fit)
	for i := range errs {
		writing.Go(func() {
			_, errs[i] = upload(w.repo(enginetest.Org, []string{"r", "other"}[i%2]), acme, main,
				change{path: fmt.Sprint(i), content: string(scramble(size + i))})
		})
	}
	writing.Wait()
	done := 0
	for _, err := range errs {
		if err == nil {
			done++
		} else if !errors.Is(err, quota.ErrExceeded) {
			t.Error(err)
		}
	}
	if done > fit {
		t.Errorf("%d uploads passed", done)
	}
	for i := range fit - done { // refused since others held room that they did not use
		w.commit(enginetest.Org, "r", main, change{path: fmt.Sprint("late", i), content: string(scramble(size - 1 - i))})
	}
	if u := w.usage(enginetest.Org, "r"); u.OrganizationBytes > u.Quotas.Organization ||
		u.OrganizationBytes < before+fit*size-fit {
		t.Errorf("%d of %d bytes are stored", u.OrganizationBytes, u.Quotas.Organization)
	}
	w.check()
}

// TestQuotaStreams sends much more than a quota allows: it is refused in the midst.
func TestQuotaStreams(t *testing.T) {
	t.Parallel()
	w := newQuotaWorld(t)
	w.limit(quota.Limits{Repository: 1 << 20})
	repo := w.repo(enginetest.Org, "r")
	t.Run("push", func(t *testing.T) {
		pack := packtest.Encode(packtest.Whole(object.TypeBlob, scramble(16<<20)))
		source := bytes.NewReader(pack)
		_, err := repo.Receive(t.Context(), acme, engine.PushRequest{Pack: source})
		if !errors.Is(err, quota.ErrExceeded) || source.Len() < 12<<20 {
			t.Errorf("%v, %d of %d bytes not read", err, source.Len(), len(pack))
		}
	})
	t.Run("commit-pack", func(t *testing.T) {
		for _, interleaved := range []bool{false, true} {
			u, err := repo.NewUpload(t.Context(), acme, engine.UploadRequest{
				Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
				Operations: []engine.FileOperation{{Path: "1", ContentID: "1"}, {Path: "2", ContentID: "2"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			taken, piece := 0, scramble(256<<10)
			for i := 0; err == nil && taken < 64<<20; i++ {
				id := "1"
				if interleaved && i%2 == 0 {
					id = "2"
				}
				err = u.Chunk(t.Context(), id, piece, false)
				taken += len(piece)
			}
			if closed := u.Close(); closed != nil || !errors.Is(err, quota.ErrExceeded) || taken > 32<<20 {
				t.Errorf("%v after %d bytes, then %v", err, taken, closed)
			}
		}
	})
	w.limit(quota.Limits{})
	w.commit(enginetest.Org, "r", main, change{path: "after", content: "fits"})
}

// TestQuotaFork forks a repository that uses up the quota of its organization: that stores nothing.
// Forks with commits between them merge layers that earlier forks keep, which does.
func TestQuotaFork(t *testing.T) {
	t.Parallel()
	w := newQuotaWorld(t)
	w.limit(quota.Limits{Organization: 1 << 30})
	all := w.usage(enginetest.Org, "r").OrganizationBytes
	fork := func(name string) error {
		_, err := w.host.CreateRepository(t.Context(), acme, engine.CreateRequest{
			Name: name, Base: &engine.Base{Name: "r"},
		})
		return err
	}
	w.limit(quota.Limits{Organization: all, Repository: all})
	if err := fork("fork"); err != nil {
		t.Fatal(err)
	}
	u := w.usage(enginetest.Org, "fork")
	base := w.usage(enginetest.Org, "r")
	if u.OrganizationBytes != all || u.Stored.Bytes != 0 || u.Borrowed != base.Stored || base.Shared != base.Stored {
		t.Errorf("the fork uses %+v, its base %+v", u, base)
	}
	refused := 0
	for i := range 8 {
		w.limit(quota.Limits{Organization: 1 << 30})
		w.commit(enginetest.Org, "r", main, change{path: "new", content: fmt.Sprint(i)})
		all = w.usage(enginetest.Org, "r").OrganizationBytes
		w.limit(quota.Limits{Organization: all})
		was := w.rows()
		err := fork(fmt.Sprint("fork", i))
		if err == nil {
			if now := w.usage(enginetest.Org, "r").OrganizationBytes; now > all {
				t.Errorf("fork %d: %d bytes became %d", i, all, now)
			}
			continue
		}
		refused++
		if now := w.rows(); !errors.Is(err, quota.ErrExceeded) || !maps.Equal(was, now) {
			t.Errorf("fork %d: %v, %d rows and files became %d", i, err, len(was), len(now))
		}
		w.limit(quota.Limits{Organization: 1 << 30})
		if err := fork(fmt.Sprint("fork", i)); err != nil {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("no fork was refused")
	}
	w.check()

	// Without forks that keep them, merged layers take the place of those before.
	for i := range 8 {
		w.limit(quota.Limits{Organization: 1 << 30})
		w.commit(enginetest.Org, "other", main, change{path: "new", content: fmt.Sprint(i)})
		all = w.usage(enginetest.Org, "other").OrganizationBytes
		w.limit(quota.Limits{Organization: all})
		if _, err := w.host.CreateRepository(t.Context(), acme, engine.CreateRequest{
			Name: "brief", Base: &engine.Base{Name: "other"},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.host.PurgeRepository(t.Context(), acme, "brief", refs.RepoID{}); err != nil {
			t.Fatal(err)
		}
		if now := w.usage(enginetest.Org, "other").OrganizationBytes; now > all {
			t.Errorf("fork %d of other: %d bytes became %d", i, all, now)
		}
	}
	w.check()
}

// TestQuotaFreed deletes and maintains: both free space, and are never refused.
func TestQuotaFreed(t *testing.T) {
	t.Parallel()
	w := newQuotaWorld(t)
	// Versions of a file that packs hold whole, and maintenance as deltas.
	for i := range 20 {
		content := append([]byte(fmt.Sprint(i)), scramble(30<<10)...)
		w.commit(enginetest.Org, "r", engine.CommitTarget{Branch: fmt.Sprint("b", i), Base: "main"},
			change{path: fmt.Sprint(i), content: string(content)})
	}
	w.limit(quota.Limits{Organization: 1 << 30})
	before := w.usage(enginetest.Org, "r")
	w.limit(quota.Limits{Organization: before.OrganizationBytes, Repository: before.Stored.Bytes})
	if _, err := upload(w.repo(enginetest.Org, "r"), acme, main, change{path: "x", content: "x"}); !errors.Is(err,
		quota.ErrExceeded) {
		t.Fatalf("beyond the quota: %v", err)
	}
	for done, err := range w.host.Maintain(t.Context(), engine.MaintainOptions{All: true, ReaderGrace: -1}) {
		if err := errors.Join(err, done.Err); err != nil {
			t.Fatal(err)
		}
	}
	after := w.usage(enginetest.Org, "r")
	if after.Stored.Bytes > before.Stored.Bytes/2 || after.OrganizationBytes > before.OrganizationBytes/2 {
		t.Errorf("maintenance made %+v of %+v", after, before)
	}
	w.commit(enginetest.Org, "r", main, change{path: "x", content: "x"})
	after = w.usage(enginetest.Org, "r")
	if _, err := w.host.PurgeRepository(t.Context(), acme, "other", refs.RepoID{}); err != nil {
		t.Fatal(err)
	}
	if now := w.usage(enginetest.Org, "r"); now.OrganizationBytes != now.Stored.Bytes {
		t.Errorf("after the deletion of the other repository, the organization uses %d, and the last one %d",
			now.OrganizationBytes, now.Stored.Bytes)
	}

	// What a fork has borrowed stays when its base goes, and counts for the organization.
	if _, err := w.host.CreateRepository(t.Context(), acme, engine.CreateRequest{
		Name: "fork", Base: &engine.Base{Name: "r"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.host.PurgeRepository(t.Context(), acme, "r", refs.RepoID{}); err != nil {
		t.Fatal(err)
	}
	if now := w.usage(enginetest.Org, "fork"); now.OrganizationBytes != after.Stored.Bytes ||
		now.Borrowed.Bytes != after.Stored.Bytes || now.Stored.Bytes != 0 {
		t.Errorf("without its base, the fork uses %+v instead of %+v", now, after)
	}
	w.check()
	if _, err := w.host.PurgeRepository(t.Context(), acme, "fork", refs.RepoID{}); err != nil {
		t.Fatal(err)
	}
	w.create(enginetest.Org, engine.CreateRequest{Name: "last", DefaultBranch: "main"})
	if now := w.usage(enginetest.Org, "last"); now.OrganizationBytes != 0 {
		t.Errorf("%d bytes are used by nothing", now.OrganizationBytes)
	}
}

// TestQuotaSync imports from an upstream more than a quota allows: the state tells why, nothing is
// stored, and a retry succeeds once there is room.
func TestQuotaSync(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.Seed(oracle.History{Seed: 3, Commits: 30, Binary: true})
	var allowed atomic.Int64
	config := f.config()
	config.Quotas = func(string) quota.Limits { return quota.Limits{Repository: allowed.Load()} }
	allowed.Store(1000)
	n := openNear(t, vfs.NewMem(), config)
	n.create(engine.UpstreamBase{})
	n.failed("quota exceeded: the repository may store 1000 bytes")
	u, err := n.open().Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u.Stored.Count > 0 || len(n.refs()) > 0 {
		t.Errorf("%+v is stored, and the refs are %v", u, n.refs())
	}
	allowed.Store(1 << 30)
	n.equal(f)
}
