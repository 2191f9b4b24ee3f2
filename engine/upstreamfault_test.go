package engine_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
	"packhorse/engine/upstream"
	"packhorse/fuzz/oracle"
	"packhorse/odb/kv"
	"packhorse/odb/kv/trips"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// linkRoot returns a folder that has the repository in dir as ada/r.git.
func linkRoot(t *testing.T, dir string) string {
	t.Helper()
	root := t.TempDir()
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "ada"), 0o755)
	}
	if err == nil {
		err = os.Symlink(dir, filepath.Join(root, "ada", "r.git"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// guarded accepts a user name and password, and answers any other with the credentials it was sent.
func (f *far) guarded(user, password string) {
	f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		u, p, _ := r.BasicAuth()
		if u == user && p == password {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="far"`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, "not with %s, %q and %q", r.Header.Get("Authorization"), u, p)
	})
}

// TestSyncCredentials rotates a credential: none, a wrong one, the right one. A sync that has
// failed is tried at once, and no part of a secret is in answers or logs.
func TestSyncCredentials(t *testing.T) {
	t.Parallel()
	const wrong, right = "a-wrong-s3cret", "the-right-s3cret"
	f := newFar(t)
	f.commit("main", "one")
	f.guarded("git", right)
	var logged odbtest.Log
	config := slow(f.config())
	config.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n := openNear(t, vfs.NewMem(), config)
	repo := n.create(engine.UpstreamBase{})
	first := n.failed("not authorized")
	stored, err := repo.CreateCredential(t.Context(), ada, credential.Login{Password: wrong})
	if err != nil {
		t.Fatal(err)
	}
	second := n.settled()
	if _, err := repo.UpdateCredential(t.Context(), ada, stored.ID, credential.Login{Password: right}); err != nil {
		t.Fatal(err)
	}
	third := n.synced()
	n.equal(f)
	if second.Phase != upstream.Failed || second.LastError == "" || third.LastError != "" || third.LastSuccess.IsZero() {
		t.Errorf("states are %+v, %+v, %+v", first, second, third)
	}
	told := fmt.Sprint(first, second, third, logged.String())
	for _, secret := range []string{wrong, right} {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte("git:" + secret))} {
			if strings.Contains(told, form) {
				t.Errorf("%q is told: %s", form, told)
			}
		}
	}
}

// TestSyncCredentialsUnderPolicy stores, changes and deletes a credential under policies. An actor
// that may not request a sync does not get one that way: it would fetch the new commits of the
// upstream.
func TestSyncCredentialsUnderPolicy(t *testing.T) {
	t.Parallel()
	for _, op := range []refs.Op{"", refs.NoForcePush, refs.NoPush, refs.VerifySig} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			syncs := op == "" || op == refs.NoForcePush
			f := newFar(t)
			f.commit("main", "one")
			n := openNear(t, vfs.NewMem(), slow(f.config()))
			repo := n.create(engine.UpstreamBase{})
			n.synced()
			idle := func() upstream.Stats {
				for ; ; time.Sleep(5 * time.Millisecond) {
					if stats := n.host.UpstreamStats(); stats.Running+stats.Waiting == 0 {
						return stats
					}
				}
			}
			by := ada
			if op != "" {
				var err error
				if by.Policy, err = refs.ParsePolicy([][]any{{"refs/tags/v*", []any{string(op)}}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			var id credential.ID
			for step, change := range []func() (engine.StoredCredential, error){
				func() (engine.StoredCredential, error) {
					return repo.CreateCredential(t.Context(), by, credential.Login{Password: "p"})
				},
				func() (engine.StoredCredential, error) {
					return repo.UpdateCredential(t.Context(), by, id, credential.Login{Password: "q"})
				},
				func() (engine.StoredCredential, error) { return repo.DeleteCredential(t.Context(), by, id) },
			} {
				f.commit("main", fmt.Sprint(step))
				before, was := idle(), n.refs()
				stored, err := change()
				if err != nil {
					t.Fatal(err)
				}
				id = stored.ID
				if syncs {
					n.equal(f)
				} else if after := n.host.UpstreamStats(); after != before || !maps.Equal(n.refs(), was) {
					t.Errorf("step %d: syncs were %+v and are %+v, refs were %v and are %v", step, before, after, was, n.refs())
				}
			}
		})
	}
}

// TestSyncUpstreamGone creates a repository whose upstream refuses connections and breaks off, and
// lets it come back.
func TestSyncUpstreamGone(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	f.intercept(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	n := openNear(t, vfs.NewMem(), f.config())
	repo := n.create(engine.UpstreamBase{})
	n.failed("not available")
	if _, err := repo.Imported(t.Context()); err != nil && !errors.Is(err, engine.ErrImporting) {
		t.Error(err)
	}
	f.intercept(nil)
	n.synced()
	n.equal(f)
}

// refusing returns the URL of a port that is bound, so that no other process listens on it, and not
// listened on.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// TestSyncNoConnection has an upstream that nothing listens for.
func TestSyncNoConnection(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	config := slow(f.config())
	base := refusing(t)
	config.Upstreams.Bases = func(string) map[string]string { return map[string]string{"gitea": base} }
	n := openNear(t, vfs.NewMem(), config)
	n.create(engine.UpstreamBase{})
	n.failed("refused")
	if state := n.settled(); state.Phase != upstream.Failed {
		t.Errorf("state is %+v", state)
	}
}

// hang blocks every request whose path ends in suffix until let is called, which then aborts them:
// their clients may have gone. reached is closed with the first one.
func (f *far) hang(suffix string) (reached chan struct{}, let func()) {
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			once.Do(func() { close(reached) })
			select {
			case <-release: // those that come later pass
			default:
				select {
				case <-release:
				case <-r.Context().Done():
				}
				panic(http.ErrAbortHandler)
			}
		}
		next.ServeHTTP(w, r)
	})
	return reached, sync.OnceFunc(func() { close(release) })
}

func arrive(t *testing.T, at <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-at:
	case <-ctx.Done():
		t.Fatal("the upstream was not asked")
	}
}

// TestImportIsWaitedFor holds readers that need the whole against an import that hangs; others are
// answered.
func TestImportIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	reached, release := f.hang("git-upload-pack")
	defer release()
	config := f.config()
	config.Upstreams.ImportWait = 1
	n := openNear(t, vfs.NewMem(), config)
	n.create(engine.UpstreamBase{})
	arrive(t, reached)
	if _, err := n.open().Imported(t.Context()); !errors.Is(err, engine.ErrImporting) {
		t.Errorf("error is %v", err)
	}
	if state, _ := n.open().Sync(); state.Phase != upstream.Syncing || len(n.refs()) != 0 {
		t.Errorf("state is %+v with refs %v", state, n.refs())
	}
	release()
	n.synced()
	if _, err := n.open().Imported(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestImportWaitTrips counts what a request asks of the store while it waits for an import that
// hangs: it looks again ever more seldom.
func TestImportWaitTrips(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	reached, release := f.hang("info/refs")
	defer release()
	config := f.config()
	config.Upstreams.ImportWait = 400 * time.Millisecond
	host := enginetest.OpenBehind(t, config, func(keys kv.Store) kv.Store { return trips.Over(keys, 0) })
	n := &near{t: t, host: host}
	repo := n.create(engine.UpstreamBase{})
	arrive(t, reached)
	ctx, log := trips.Record(t.Context())
	if _, err := repo.Imported(ctx); !errors.Is(err, engine.ErrImporting) {
		t.Errorf("error is %v", err)
	}
	// It rests for 20, 40, 80 and 160 ms at least and until the end, and each look is two trips.
	if log.Count() < 2 || log.Count() > 12 {
		t.Errorf("%d trips:\n%s", log.Count(), log)
	}
}

// TestImportWaitCancelled ends a request while it waits for an import.
func TestImportWaitCancelled(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	reached, release := f.hang("info/refs")
	defer release()
	config := f.config()
	config.Upstreams.ImportWait = patience
	n := openNear(t, vfs.NewMem(), config)
	n.create(engine.UpstreamBase{})
	arrive(t, reached)
	ctx, cancel := context.WithCancel(t.Context())
	repo := n.open()
	cancel()
	if _, err := repo.Imported(ctx); !errors.Is(err, engine.ErrImportWait) {
		t.Errorf("error is %v", err)
	}
}

// TestSyncRestart closes the host in the middle of an import; the next one goes on with it.
func TestSyncRestart(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"info/refs", "git-upload-pack"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			f.Seed(oracle.History{Seed: 5, Commits: 10, Tags: true})
			reached, release := f.hang(suffix)
			defer release()
			fs := vfs.NewMem()
			n := openNear(t, fs, f.config())
			n.create(engine.UpstreamBase{})
			arrive(t, reached)
			n.shut()
			f.intercept(nil)
			n = openNear(t, fs, f.config())
			n.synced()
			n.equal(f)
		})
	}
}

// TestSyncAfterRestart syncs commits that were made while no worker ran.
func TestSyncAfterRestart(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	fs := vfs.NewMem()
	n := openNear(t, fs, f.config())
	n.create(engine.UpstreamBase{})
	n.synced()
	reached, release := f.hang("git-receive-pack")
	defer release()
	n.commit("main", "", "unsent")
	arrive(t, reached)
	n.commit("main", "", "unsent too")
	n.shut()
	f.intercept(nil)
	n = openNear(t, fs, f.config())
	n.equal(f)
	n.synced()
}

// TestDetachDuringSync detaches while an upstream hangs: the sync is cancelled, and nothing is sent
// from then on.
func TestDetachDuringSync(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	reached, release := f.hang("git-upload-pack")
	defer release()
	n := openNear(t, vfs.NewMem(), f.config())
	n.create(engine.UpstreamBase{})
	arrive(t, reached)
	keyed := ada
	done, err := n.open().Detach(t.Context(), keyed)
	if err != nil || done.Sequence == 0 {
		t.Fatal(done, err)
	}
	repo := n.open()
	if state, ok := repo.Sync(); ok || repo.Item().Base != nil {
		t.Errorf("after the detachment: %+v, %+v", state, repo.Item())
	}
	if _, err := repo.PullUpstream(t.Context(), ada, ""); !errors.Is(err, engine.ErrNoUpstream) {
		t.Errorf("a pull gives %v", err)
	}
	if again, err := repo.Detach(t.Context(), ada); err != nil || again != done {
		t.Errorf("again: %+v, %v", again, err)
	}
	page, err := n.host.Repositories(t.Context(), ada.Org, engine.ListOptions{Limit: 10})
	if err != nil || len(page.Items) != 1 || page.Items[0].Base != nil {
		t.Errorf("listing is %+v, %v", page, err)
	}
	f.intercept(nil)
	f.mu.Lock()
	before := len(f.requests)
	f.mu.Unlock()
	n.commit("main", "", "ours alone")
	n.shut() // which waits for whatever is under way
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.requests) != before {
		t.Errorf("the upstream was asked for %v", f.requests[before:])
	}
}

// deaf is a transport that does not hear of a cancelled request until it is let go.
type deaf struct {
	reached, release chan struct{}
	once             sync.Once
}

func (d *deaf) RoundTrip(*http.Request) (*http.Response, error) {
	d.once.Do(func() { close(d.reached) })
	<-d.release
	return nil, errors.New("deaf")
}

// TestDetachTimesOut detaches while a sync does not end: nothing changes, and the next try works.
func TestDetachTimesOut(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	config := f.config()
	d := &deaf{reached: make(chan struct{}), release: make(chan struct{})}
	config.Upstreams.Client = &http.Client{Transport: d}
	config.Upstreams.DetachWait = 1
	n := openNear(t, vfs.NewMem(), config)
	repo := n.create(engine.UpstreamBase{})
	arrive(t, d.reached)
	_, err := repo.Detach(t.Context(), ada)
	close(d.release)
	if !errors.Is(err, engine.ErrDetachTimeout) {
		t.Errorf("error is %v", err)
	}
	if state, ok := n.open().Sync(); !ok || state.Phase == upstream.Detaching {
		t.Errorf("state is %+v", state)
	}
	n.failed("deaf")
}

// TestDetachAfterCrash opens a store in which a detachment has begun, and one in which the state is
// missing.
func TestDetachAfterCrash(t *testing.T) {
	t.Parallel()
	tests := map[string]func(repo *engine.Repository, b *kv.Batch){
		"begun": func(repo *engine.Repository, b *kv.Batch) {
			b.Put(upstream.StateKey(repo.Item().ID), []byte(`{"phase":"detaching"}`))
		},
		"missing": func(repo *engine.Repository, b *kv.Batch) { b.Delete(upstream.StateKey(repo.Item().ID)) },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			fs := vfs.NewMem()
			n := openNear(t, fs, f.config())
			repo := n.create(engine.UpstreamBase{})
			n.synced()
			n.shut()
			keys := odbtest.OpenKeys(t, fs)
			b := kv.NewBatch()
			damage(repo, b)
			commit, err := keys.Apply(t.Context(), b)
			if err == nil {
				err = commit.Wait(t.Context())
			}
			if err := errors.Join(err, keys.Close()); err != nil {
				t.Fatal(err)
			}
			n = openNear(t, fs, f.config())
			if name == "begun" {
				n.gone()
				return
			}
			if _, err := n.open().Detach(t.Context(), ada); !errors.Is(err, upstream.ErrNoState) {
				t.Errorf("error is %v", err)
			}
			if state, _ := n.open().Sync(); state.Phase != upstream.Failed || state.LastError == "" {
				t.Errorf("state is %+v", state)
			}
		})
	}
}

// TestSyncHostile answers fetches with malicious data: none of it is stored, and the reason is
// reported.
func TestSyncHostile(t *testing.T) {
	t.Parallel()
	pack := func(w io.Writer, data []byte) {
		_, _ = io.WriteString(w, "000dpackfile\n")
		for len(data) > 0 {
			part := data[:min(len(data), 32<<10)]
			data = data[len(part):]
			_, _ = fmt.Fprintf(w, "%04x\x01%s", len(part)+5, part)
		}
	}
	empty := []byte(
		"PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e",
	)
	tests := map[string]struct {
		answer func(w io.Writer)
		want   string
	}{
		"nothing": {func(io.Writer) {}, ""},
		"no pack": {func(w io.Writer) { pack(w, []byte("<html>")); _, _ = io.WriteString(w, "0000") }, ""},
		"missing": {
			func(w io.Writer) { pack(w, empty); _, _ = io.WriteString(w, "0000") }, "missing necessary objects",
		},
		"cut off":       {func(w io.Writer) { pack(w, empty[:20]) }, ""},
		"an error":      {func(w io.Writer) { _, _ = io.WriteString(w, "001cERR no \x1b[31msuch luck ab") }, "such luck"},
		"endless zeros": {func(w io.Writer) { endless(w, pack) }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			f.commit("main", "one")
			config := slow(f.config())
			config.Objects.Limits.PackBytes = 1 << 20
			f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, _ := io.ReadAll(r.Body)
				if !bytes.Contains(body, []byte("command=fetch")) {
					r.Body = io.NopCloser(bytes.NewReader(body))
					next.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				test.answer(w)
			})
			n := openNear(t, vfs.NewMem(), config)
			n.create(engine.UpstreamBase{})
			state := n.settled()
			if state.Phase != upstream.Failed || state.LastError == "" || state.LastError == "internal error" ||
				!strings.Contains(state.LastError, test.want) || strings.Contains(state.LastError, "\x1b") || len(n.refs()) != 0 {
				t.Errorf("state is %+v with refs %v", state, n.refs())
			}
			f.intercept(nil)
			n.pull()
			n.equal(f)
		})
	}
}

// endless writes a pack that does not end, until its reader is gone.
func endless(w io.Writer, frame func(io.Writer, []byte)) {
	frame(w, []byte("PACK\x00\x00\x00\x02\x00\x0f\xff\xff"))
	// Blobs of one stored block of zeros, each different from its neighbour in nothing.
	block := bytes.Repeat([]byte{0xb0, 0x02, 0x78, 0x01, 0x01, 32, 0, 0xff ^ 32, 0xff}, 1)
	entry := append(append(block, make([]byte, 32)...), 0, 32, 0, 1)
	many := bytes.Repeat(entry, 200)
	for range 1 << 20 {
		if _, err := fmt.Fprintf(w, "%04x\x01%s", len(many)+5, many); err != nil {
			return
		}
	}
}

// TestSyncBadObjects has an upstream with an object that git's checks refuse.
func TestSyncBadObjects(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	blob := f.Write("blob", []byte("x"))
	tree := strings.TrimSpace(string(f.Input(fmt.Appendf(nil, "100644 blob %s\t.git\n", blob), "mktree")))
	bad := f.Git("commit-tree", tree, "-m", "bad")
	f.Git("update-ref", "refs/heads/bad", bad)
	n := openNear(t, vfs.NewMem(), slow(f.config()))
	n.create(engine.UpstreamBase{})
	if state := n.settled(); state.Phase != upstream.Failed ||
		!strings.Contains(state.LastError, ".git") && !strings.Contains(state.LastError, "DotGit") || len(n.refs()) != 0 {
		t.Errorf("state is %+v with refs %v", state, n.refs())
	}
	f.Git("update-ref", "-d", "refs/heads/bad")
	n.pull()
	n.equal(f)
}

// TestSyncRaces commits through the API and at the upstream while one sync follows the other.
func TestSyncRaces(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	f := newFar(t)
	f.commit("main", "one")
	n := openNear(t, vfs.NewMem(), f.config())
	repo := n.create(engine.UpstreamBase{})
	n.synced()
	var writers sync.WaitGroup
	for _, branch := range []string{"a", "b"} {
		writers.Go(func() {
			for i := range rounds {
				if _, err := upload(
					repo, ada, engine.CommitTarget{Branch: branch, Base: "main"}, change{path: fmt.Sprint(i), content: branch},
				); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range rounds {
		f.commit("main", fmt.Sprint("theirs ", i))
		if _, err := repo.PullUpstream(t.Context(), ada, "main"); err != nil {
			t.Error(err)
		}
	}
	writers.Wait()
	n.equal(f)
	n.synced()
	f.Git("fsck", "--strict")
}

// gone waits until the repository has no upstream.
func (n *near) gone() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if _, ok := n.open().Sync(); !ok {
			return
		}
	}
	n.t.Fatal("the repository still has an upstream")
}
