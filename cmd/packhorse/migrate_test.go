package main_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// stop is a place in a run of the program: the request to the bucket with that number that
// transfers a file.
type stop struct {
	method  string
	left    atomic.Int64
	reached chan struct{}
}

var fileRequest = regexp.MustCompile(`/[0-9a-f]{2}/[0-9a-f]{32}\.[a-z]+$`)

// wrap holds the requests from there on, until their client is gone.
func (s *stop) wrap(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isFile := fileRequest.MatchString(r.URL.Path) && !strings.HasSuffix(r.URL.Path, ".probe")
		if r.Method == s.method && isFile {
			left := s.left.Add(-1)
			if left == 0 {
				close(s.reached)
			}
			if left <= 0 {
				_, _ = io.Copy(io.Discard, r.Body) // or nobody notices that the client is gone
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
		}
		service.ServeHTTP(w, r)
	})
}

// killMigrate runs a migration whose requests pass through a stop, and kills it there: at the
// transfer of a file with that number.
func (s *sharedStores) killMigrate(t *testing.T, service *s3test.Server, method string, number int64, flags ...string) {
	t.Helper()
	place := &stop{method: method, reached: make(chan struct{})}
	place.left.Store(number)
	cmd := exec.CommandContext(t.Context(), bin, append([]string{
		"migrate", "--keys", s.keys, "--files", withEndpoint(t, s.files, service.Proxy(t, place.wrap)),
	}, flags...)...)
	cmd.Env = s.env
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-place.reached:
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("the migration has ended before it was killed")
		}
	case err := <-ended:
		t.Fatalf("the migration ended before it was killed: %v\n%s", err, &output)
	}
}

// TestMigrate moves repositories to a database and a bucket and back. Each migration is killed
// once. Clients push on both sides, and clone what they had.
func TestMigrate(t *testing.T) {
	t.Parallel()
	service := s3test.Start(t)
	place, env := service.Place(t)
	stores := &sharedStores{keys: postgrestest.Database(t), files: place, env: env}
	dir := t.TempDir()
	data := func(name string) string { return filepath.Join(dir, name, "data") }
	to := func(name string, more ...string) []string {
		return append(append([]string{"--data", data(name)}, stores.flags()...), more...)
	}
	options := func(name string, shared bool) packhorsetest.Options {
		o := packhorsetest.Options{Dir: filepath.Join(dir, name), Orgs: dir, Env: env}
		if shared {
			o.Flags, o.Rows = stores.flags(), stores.keys
		}
		return o
	}

	server := start(t, options("alone", false))
	remote := func(repo string) string {
		return strings.Replace(server.URL, "://", "://t:"+mustToken(t, server, repo, "git:write")+"@", 1) + "/" + repo + ".git"
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 61, Commits: 300, Merges: true, Tags: true})
	for _, repo := range []string{"large", "other", "third"} { // each is a segment
		create(t, server, repo)
		git.Git("push", "--quiet", remote(repo), "refs/*:refs/*")
	}
	push := func(message string) {
		t.Helper()
		git.Git("update-ref", "refs/heads/main", git.Git("commit-tree", "main^{tree}", "-p", "main", "-m", message))
		git.Git("push", "--quiet", remote("large"), "main")
	}
	wantClone := func(name string) {
		t.Helper()
		mirror := oracle.Open(t, filepath.Join(dir, name+".git"))
		mirror.Git("clone", "--quiet", "--mirror", remote("large"), mirror.Dir)
		mirror.Git("fsck", "--full", "--strict", "--no-dangling")
		if got, want := mirror.Git("for-each-ref"), git.Git("for-each-ref"); got != want {
			t.Errorf("%s has\n%s\nand not\n%s", name, got, want)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if got := packhorse(t, env, args...); got.status == 0 || !strings.Contains(got.errOut, want) {
			t.Errorf("%.200q: got %+v, want %q", args, got, want)
		}
	}
	migrate := func(want string, flags ...string) {
		t.Helper()
		got := packhorse(t, env, append([]string{"migrate"}, flags...)...)
		if got.status != 0 || !strings.HasPrefix(got.out, "moved to "+want) || strings.Contains(got.out, "endpoint") {
			t.Fatalf("migrate: %+v", got)
		}
	}
	push("alone")
	refused("is in use by another packhorse", append([]string{"migrate"}, to("alone")...)...)
	refused("contains no store", append([]string{"migrate"}, to("nowhere")...)...)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	stores.killMigrate(t, service, http.MethodPut, 3, "--data", data("alone"))
	refused("holds an unfinished migration from folder "+data("alone"),
		append([]string{"fsck", "--data", t.TempDir()}, stores.flags()...)...)
	orgs, exported := filepath.Join(dir, "orgs"), filepath.Join(dir, "exported")
	bad := filepath.Join(t.TempDir(), "orgs")
	if err := os.MkdirAll(filepath.Join(bad, "acme"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused(filepath.Join(bad, "acme")+": no key", append([]string{"migrate"}, to("alone", "--orgs", bad)...)...)
	migrate("database ", to("alone", "--orgs", orgs)...)
	if got := packhorse(t, nil, "org", "list", "--keys", stores.keys); got.out != "acme  1 key  0 settings\n1 organization\n" {
		t.Errorf("org list: %+v", got)
	}
	refused(data("alone")+" cannot be opened: its repositories were moved to database ", "fsck", "--data", data("alone"))
	refused("were moved to database", append([]string{"migrate"}, to("alone")...)...)
	refused("is not empty: it holds store", append([]string{"migrate"}, to("alone", "--back")...)...)

	server = start(t, options("servers", true))
	wantClone("shared")
	push("shared")
	refused("is in use by a server: stop", append([]string{"migrate"}, to("back", "--back")...)...)
	zombie := start(t, options("zombie", true))
	late := mustToken(t, zombie, "late", "repo:write")
	suspend(t, zombie)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	stores.killMigrate(t, service, http.MethodGet, 3, "--data", data("back"), "--back")
	refused("holds an unfinished migration from database", "fsck", "--data", data("back"))
	refused(orgs+" is not empty", append([]string{"migrate"}, to("back", "--back", "--orgs", orgs)...)...)
	migrate("folder "+data("back"), to("back", "--back", "--orgs", exported)...)
	sameFolder(t, orgs, exported)
	left := stores.rows(t)
	wake(t, zombie)
	if status, text := call(t, http.DefaultClient, http.MethodPost, zombie.URL+"/api/v1/repos", late); status/100 != 5 {
		t.Errorf("a server that slept through the migration has answered %d %s", status, text)
	}
	if now := stores.rows(t); !slices.Equal(now, left) {
		t.Errorf("a server that slept through the migration has written:\n%q\n%q", left, now)
	}
	if err := zombie.Kill(); err != nil {
		t.Fatal(err)
	}
	refused("its repositories were moved to folder", "org", "list", "--keys", stores.keys)
	refused("its repositories were moved to folder", "org", "apply", orgs, "--keys", stores.keys)
	refused("its repositories were moved to folder "+data("back"), append([]string{"gc"}, to("servers")...)...)
	if got := packhorse(t, nil, "fsck", "--data", data("back")); got.status != 0 {
		t.Errorf("fsck: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(data("back"), "spool")); err == nil {
		t.Error("the spool was left")
	}
	server = start(t, options("back", false))
	wantClone("back")
	push("back")
	wantClone("again")
}
