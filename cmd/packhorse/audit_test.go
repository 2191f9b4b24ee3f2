package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"packhorse/api/audit"
	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// auditing is a server with an audit log that can be told to reload.
type auditing struct {
	*packhorsetest.Server
	dir, path string
	reloaded  chan struct{}
}

// startAuditing starts a server in a folder, perhaps again.
func startAuditing(t *testing.T, dir string) *auditing {
	t.Helper()
	a := &auditing{dir: dir, path: filepath.Join(dir, "audit.jsonl"), reloaded: make(chan struct{}, 100)}
	a.Server = start(t, packhorsetest.Options{
		Dir: dir, Config: write(t, "config.yaml", "log-level: info\naudit: "+a.path+"\n"), Log: func(line string) {
			if strings.Contains(line, "msg=reloaded") {
				a.reloaded <- struct{}{}
			}
		},
	})
	return a
}

// reload sends SIGHUP, and returns when the server has heeded it.
func (a *auditing) reload(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(a.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-a.reloaded
}

// records returns the records of files, and how many lines are none.
func records(t *testing.T, paths ...string) (all []audit.Record, torn int) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var r audit.Record
			if json.Unmarshal(line, &r) == nil && line[len(line)-1] == '\n' {
				all = append(all, r)
			} else {
				torn++
			}
		}
	}
	return all, torn
}

// TestAudit lets git clone, fetch and push, lets maintenance run and an organization come, and
// looks for their records; no token and no key is in the file.
func TestAudit(t *testing.T) {
	t.Parallel()
	a := startAuditing(t, t.TempDir())
	token := create(t, a.Server, "web/site")
	bound, err := a.Token(t.Context(), "web/site", "--scope", "git:write", "--op", "no-force-push")
	if err != nil {
		t.Fatal(err)
	}
	remote := func(token string) string {
		return strings.Replace(a.URL, "://", "://t:"+token+"@", 1) + "/web/site.git"
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Commits: 3})
	old, tip := git.Git("rev-parse", "main~1"), git.Git("rev-parse", "main")
	git.Git("push", "--quiet", remote(token), old+":refs/heads/main", old+":refs/heads/other")
	clone := oracle.New(t)
	clone.Git("fetch", "--quiet", remote(token), "main:refs/heads/main")
	git.Git("push", "--quiet", remote(token), tip+":refs/heads/main")
	clone.Git("fetch", "--quiet", remote(token), "main:refs/heads/main")
	if _, err := git.Try(nil, "push", "--quiet", "--force", remote(bound), old+":refs/heads/main"); err == nil {
		t.Error("the policy let a push through")
	}
	if err := os.WriteFile(filepath.Join(a.OrgDir(), "org.yaml"), []byte("create_on_push: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.reload(t)
	fresh, err := a.Token(t.Context(), "fresh", "--scope", "git:write,repo:write")
	if err != nil {
		t.Fatal(err)
	}
	git.Git("push", "--quiet", strings.Replace(remote(fresh), "web/site", "fresh", 1), old+":refs/heads/main")
	if got := packhorse(t, nil, "gc", "--data", filepath.Join(a.dir, "data")); got.status != 0 {
		t.Errorf("gc: %+v", got)
	}
	if err := a.AddOrg(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	a.reload(t)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	all, torn := records(t, a.path)
	if torn > 0 {
		t.Errorf("%d lines are no records", torn)
	}
	var told []string
	for _, r := range all {
		line := fmt.Sprintf("%s %s %s %s %d %s", r.Via, r.Organization, r.Repository, r.Action, r.Status, r.Error)
		if r.Created {
			line += " created"
		}
		for _, c := range r.Changes {
			line += fmt.Sprintf(" %s:%.7s>%.7s@%d", c.Ref, c.Old, c.New, c.Sequence)
		}
		told = append(told, line)
	}
	const none = "0000000"
	want := []string{
		"http acme web/site createRepository 201 ",
		"http acme web/site gitLsRefs 200 ",
		fmt.Sprintf("http acme web/site gitPush 200  refs/heads/main:%s>%.7s@2 refs/heads/other:%s>%.7s@2", none, old, none, old),
		"http acme web/site gitCapabilities 200 ",
		"http acme web/site gitClone 200 ",
		fmt.Sprintf("http acme web/site gitPush 200  refs/heads/main:%.7s>%.7s@3", old, tip),
		"http acme web/site gitFetch 200 ",
		"http acme web/site gitPush 200 policy_denied",
		"background acme  organizationChanged 0 ",
		fmt.Sprintf("http acme fresh gitPush 200  created refs/heads/main:%s>%.7s@1", none, old),
		"admin   gc 200 ",
		"background beta  organizationAdded 0 ",
		"background beta  keyRegistered 0 ",
	}
	rest := told
	for _, line := range want {
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("no %q among\n%s", line, strings.Join(told, "\n"))
		}
		rest = rest[at+1:]
	}
	text, err := os.ReadFile(a.path)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(a.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{token, bound, fresh, string(key), strings.Split(string(key), "\n")[1]} {
		for _, part := range append(strings.Split(secret, "."), secret) {
			if bytes.Contains(text, []byte(part)) {
				t.Errorf("the log has the secret %s", part)
			}
		}
	}
}

// load sends count requests from each of several clients, and closes halfway when half of them are
// answered. wait returns how many were.
func (a *auditing) load(t *testing.T, token string, count int) (halfway chan struct{}, wait func() int) {
	t.Helper()
	const clients = 4
	var running sync.WaitGroup
	var answered atomic.Int64
	halfway = make(chan struct{})
	for range clients {
		running.Go(func() {
			for range count {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL+"/api/v1/repos/branches", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Authorization", "Bearer "+token)
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					return // the server was killed
				}
				_ = response.Body.Close()
				if answered.Add(1) == int64(clients*count/2) {
					close(halfway)
				}
			}
		})
	}
	return halfway, func() int {
		running.Wait()
		return int(answered.Load())
	}
}

// TestAuditRotation renames the file and sends SIGHUP while requests are answered: each of them has
// one record, in one of the files.
func TestAuditRotation(t *testing.T) {
	t.Parallel()
	a := startAuditing(t, t.TempDir())
	token := create(t, a.Server, "r")
	halfway, wait := a.load(t, token, 200)
	paths := []string{a.path}
	for i := range 6 {
		if i == 3 {
			<-halfway
		}
		name := fmt.Sprint(a.path, ".", i)
		if err := os.Rename(a.path, name); err != nil {
			t.Fatal(err)
		}
		a.reload(t)
		paths = append(paths, name)
	}
	answered := wait()
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	all, torn := records(t, paths...)
	seen := make(map[string]bool)
	for _, r := range all {
		seen[r.RequestID] = true
	}
	if torn > 0 || len(all) != answered+1 || len(seen) != len(all) {
		t.Errorf("%d requests, %d records, %d of their own, %d torn lines", answered+1, len(all), len(seen), torn)
	}
}

// TestAuditKill kills the server while it answers requests: the file has whole lines, except
// perhaps the last, and a server that is started again goes on behind it.
func TestAuditKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := startAuditing(t, dir)
	token := create(t, a.Server, "r")
	for range 3 {
		halfway, wait := a.load(t, token, 100)
		<-halfway
		if err := a.Kill(); err != nil {
			t.Fatal(err)
		}
		wait()
		before, torn := records(t, a.path)
		if len(before) == 0 || torn > 1 {
			t.Fatalf("%d records, %d torn lines", len(before), torn)
		}
		a = startAuditing(t, dir)
		if status, text := call(t, http.DefaultClient, "GET", a.URL+"/api/v1/repos/branches", token); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	all, torn := records(t, a.path)
	if last := all[len(all)-1]; last.Action != "branches" || last.Status != http.StatusOK || torn > 3 {
		t.Errorf("%d torn lines, the last record is %+v", torn, last)
	}
}

// With - for the audit log, standard output has records and nothing else.
func TestAuditStdout(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{Env: []string{"PACKHORSE_AUDIT=-"}})
	create(t, server, "r")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(server.Output(), "\n")
	var r audit.Record
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.Action != "createRepository" {
		t.Errorf("%v, %+v in %s", err, r, server.Output())
	}
}

// TestAuditTasks looks at the records of commands that find no server: one that ends, and one that
// fails; and of dev.
func TestAuditTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, packhorsetest.Options{Dir: dir})
	create(t, server, "r")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "tasks.jsonl")
	if got := packhorse(t, nil, "gc", "--data", data, "--audit", log); got.status != 0 || strings.Contains(got.out, "via") {
		t.Errorf("gc: %+v", got)
	}
	if got := packhorse(t, nil, "backup", data+"/files", "--data", data, "--audit", log); got.status == 0 {
		t.Errorf("a backup into the store: %+v", got)
	}
	if got := packhorse(t, nil, "webhooks", "retry", "--data", data, "none", "--audit", log); got.status == 0 {
		t.Errorf("a retry of nothing: %+v", got)
	}
	all, torn := records(t, log)
	if torn > 0 || len(all) != 2 || all[0].Action != "gc" || all[0].Via != audit.Admin || all[0].Status != 200 ||
		all[1].Action != "webhooks-retry" || all[1].Status != 500 || all[1].Error == "" {
		t.Errorf("%d torn, %+v", torn, all)
	}
	if got := packhorse(t, nil, "fsck", "--data", data, "--audit", "-"); !strings.Contains(got.errOut, `"action":"fsck"`) ||
		strings.Contains(got.out, `"action"`) {
		t.Errorf("records to standard error: %+v", got)
	}
}

// A FIFO that nobody reads does not hold the start up.
func TestAuditFIFO(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	got := packhorse(t, nil, "dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--audit", fifo)
	if got.status != 2 || !strings.Contains(got.errOut, "it is a FIFO that nobody reads") ||
		strings.Count(got.errOut, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}
