package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestToolsOfServers runs the maintenance commands through either of two servers that share stores,
// and over the stores themselves when no server runs. What it backs up is restored into a folder,
// served from there, moved to other stores, and served from these: clones are equal everywhere.
func TestToolsOfServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the program forty times")
	}
	stores, other, dir := newSharedStores(t), newSharedStores(t), t.TempDir()
	var broken atomic.Bool
	var taken atomic.Int64
	broken.Store(true)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		taken.Add(1)
	}))
	defer receiver.Close()
	hook(t, dir, receiver.URL)
	options := func(stores *sharedStores, number int) packhorsetest.Options {
		o := stores.options(dir, number)
		o.Flags = append(o.Flags, "--upstream-allow", "localhost,127.0.0.1", "--webhook-give-up", "0s", "--log-level", "error")
		return o
	}
	run := func(args ...string) string {
		t.Helper()
		got := packhorse(t, stores.env, args...)
		if got.status != 0 {
			t.Fatalf("%.300q: %+v", args, got)
		}
		return got.out
	}
	want := func(got, prefix string) {
		t.Helper()
		if !strings.HasPrefix(got, prefix) {
			t.Fatalf("got %q, want %q", got, prefix)
		}
	}
	mirrors := 0
	mirror := func(server *packhorsetest.Server) string {
		t.Helper()
		mirrors++
		m := oracle.Open(t, filepath.Join(dir, fmt.Sprint("mirror", mirrors)))
		remote := strings.Replace(server.URL, "://", "://t:"+mustToken(t, server, "r", "git:write")+"@", 1) + "/r.git"
		m.Git("clone", "--quiet", "--mirror", remote, m.Dir)
		m.Git("fsck", "--full", "--strict", "--no-dangling")
		return m.Git("for-each-ref") + "\n" + m.Git("rev-list", "--all", "--objects", "--no-object-names")
	}

	servers := []*packhorsetest.Server{start(t, options(stores, 0)), start(t, options(stores, 1))}
	token := create(t, servers[0], "r")
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 66, Commits: 200, Merges: true, Binary: true}) // is a segment
	git.Git("push", "--quiet", strings.Replace(servers[0].URL, "://", "://t:"+token+"@", 1)+"/r.git", "main")
	commit(t, servers[1], token, 1, 1000)
	dest := filepath.Join(dir, "backups")
	dead := func(flags ...string) string { return run(append([]string{"webhooks", "list"}, flags...)...) }
	for i := range servers {
		data := []string{"--data", options(stores, i).Dir + "/data"}
		want(run(append([]string{"gc"}, data...)...), "1 repository, ")
		if got := run(append([]string{"fsck"}, data...)...); !strings.HasSuffix(got, " objects, 0 repositories damaged\n") {
			t.Errorf("fsck: %q", got)
		}
		for end := time.Now().Add(3 * time.Minute); !strings.Contains(dead(data...), " 0 transactions behind, 2 dead"); {
			if time.Sleep(20 * time.Millisecond); time.Now().After(end) {
				t.Fatalf("the webhooks are %s", dead(data...))
			}
		}
		want(run(append([]string{"backup", dest}, data...)...), fmt.Sprintf("backup %d: ", i+1))
	}
	broken.Store(false) // the one that delivers is told by the other one
	for i := range servers {
		run("webhooks", "retry", "--data", options(stores, i).Dir+"/data")
	}
	for end := time.Now().Add(3 * time.Minute); taken.Load() < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the webhooks are %s", dead("--data", options(stores, 0).Dir+"/data"))
		}
	}
	before := mirror(servers[0])
	if err := servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := servers[1].Stop(); err != nil {
		t.Fatal(err)
	}

	alone := append([]string{"--data", t.TempDir()}, stores.flags()...)
	want(run(append([]string{"backup", dest}, alone...)...), "backup 3: ")
	sound := run(append([]string{"fsck"}, alone...)...)
	want(run(append([]string{"gc"}, alone...)...), "1 repository, ")
	want(dead(alone...), packhorsetest.Org+" "+receiver.URL+": 0 parked, 0 transactions behind, 0 dead")
	want(run(append([]string{"webhooks", "retry"}, alone...)...), "0 dead letters")
	if got := run("backup", "check", dest); !strings.HasSuffix(got, "3 backups are whole\n") {
		t.Errorf("check: %q", got)
	}

	restored := filepath.Join(dir, "restored", "data")
	want(run("restore", dest, "--data", restored), "restored backup 3 into")
	if got := run("fsck", "--data", restored); got != sound {
		t.Errorf("fsck of what was restored says %q, and said %q", got, sound)
	}
	want(run("backup", dest, "--data", restored), "backup 4: ") // of the same store
	server := start(t, packhorsetest.Options{Dir: filepath.Dir(restored), Orgs: dir})
	if mirror(server) != before {
		t.Error("the restored repository is another one")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	got := packhorse(t, other.env, append([]string{"migrate", "--data", restored}, other.flags()...)...)
	if got.status != 0 || !strings.HasPrefix(got.out, "moved to ") {
		t.Fatalf("migrate: %+v", got)
	}
	if err := os.RemoveAll(options(stores, 0).Dir); err != nil {
		t.Fatal(err)
	}
	if mirror(start(t, options(other, 0))) != before {
		t.Error("the moved repository is another one")
	}
}
