package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/api/audit"
	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// twoServers are a server and another one that has the upstream of its repository.
type twoServers struct {
	killing             // the one that syncs
	far                 *packhorsetest.Server
	farToken, farRemote string
	git                 *oracle.Repository // the first refs of the upstream
	credential          string             // id
}

// newTwoServers starts both; the upstream, ada/r, has a history, and is known as one of the
// provider's. config is more of org.yaml.
func newTwoServers(t *testing.T, seed uint64, provider, config string, flags ...string) *twoServers {
	t.Helper()
	s := &twoServers{far: start(t, packhorsetest.Options{Flags: []string{"--maintenance-off"}})}
	s.farToken = create(t, s.far, "ada/r")
	s.farRemote = strings.Replace(s.far.URL, "://", "://t:"+s.farToken+"@", 1) + "/ada/r.git"
	s.git = oracle.New(t)
	s.git.Seed(oracle.History{Seed: seed, Commits: 40, Merges: true, Tags: true})
	s.git.Git("branch", "theirs", "main~2")
	s.git.Git("push", "--quiet", s.farRemote, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")

	dir := t.TempDir()
	secret := write(t, "secret-key", strings.Repeat("k", 32))
	folder := filepath.Join(dir, "orgs", packhorsetest.Org)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(folder, "org.yaml"), fmt.Appendf(nil, "upstreams: {%s: %q}\n%s", provider, s.far.URL, config), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	s.killing = killing{
		t: t, dir: dir, told: map[string]string{}, random: rand.New(rand.NewPCG(6, seed)),
		flags: append(flags, "--upstream-allow", "127.0.0.1", "--secret-key", secret, "--upstream-retry", "50ms",
			"--log-level", "error"),
	}
	s.start()
	t.Cleanup(func() {
		if err := s.server.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.server.Output())
		}
	})
	s.api(http.MethodPost, "/api/v1/repos", "", fmt.Appendf(nil, `{"base_repo":{"provider":%q,"owner":"ada","name":"r"}}`,
		provider)).mustBe(t, http.StatusCreated)
	return s
}

// authorize stores the credential for the upstream.
func (s *twoServers) authorize(password string) {
	s.t.Helper()
	method, field, value := http.MethodPost, "repo_id", "r"
	if s.credential != "" {
		method, field, value = http.MethodPut, "id", s.credential
	}
	body, err := json.Marshal(map[string]string{field: value, "username": "t", "password": password})
	if err != nil {
		s.t.Fatal(err)
	}
	answer := s.api(method, "/api/v1/repos/git-credentials", "", body)
	var stored struct{ ID string }
	if err := json.Unmarshal(answer.body, &stored); err != nil || answer.err != nil || stored.ID == "" {
		s.t.Fatalf("%s git-credentials: %d %s, %v, %v", method, answer.status, answer.body, answer.err, err)
	}
	s.credential = stored.ID
}

// syncState is the sync state in GET /repo.
type syncState struct {
	BaseRepo *struct{ Provider string } `json:"base_repo"`
	Sync     struct {
		State     string
		LastError string `json:"last_error"`
	}
}

// await waits until the sync state is as wanted.
func (s *twoServers) await(want string, is func(syncState) bool) {
	s.t.Helper()
	var state syncState
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		answer := s.api(http.MethodGet, "/api/v1/repo", "", nil)
		state = syncState{}
		if err := json.Unmarshal(answer.body, &state); err != nil || answer.err != nil {
			s.t.Fatalf("GET /repo: %d %s, %v, %v", answer.status, answer.body, answer.err, err)
		}
		if is(state) {
			return
		}
	}
	s.t.Fatalf("the sync state is %+v, not %s", state, want)
}

// equal waits until both servers have the same branches and tags.
func (s *twoServers) equal() {
	s.t.Helper()
	var here, there string
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		here, there = s.git.Git("ls-remote", "--refs", s.remote()), s.git.Git("ls-remote", "--refs", s.farRemote)
		if here == there {
			return
		}
	}
	s.t.Fatalf("here:\n%s\nupstream:\n%s", here, there)
}

// TestSyncWithServer syncs with another Packhorse: without a credential, with a wrong one and the
// right one; both ways; and detaches when that has gone.
func TestSyncWithServer(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	s := newTwoServers(t, 8, "gitea", "", "--audit", log)
	failed := func(state syncState) bool { return state.Sync.State == "failed" && state.Sync.LastError != "" }
	s.await("failed", failed)
	s.authorize("wrong")
	s.await("failed", failed)
	s.authorize(s.farToken)
	s.equal()

	s.commit("ours", "one.txt", "").mustBe(t, http.StatusCreated)
	s.equal()
	theirs := s.git.Git("commit-tree", "theirs^{tree}", "-p", "theirs", "-m", "theirs")
	s.git.Git("push", "--quiet", s.farRemote, theirs+":refs/heads/theirs", ":refs/heads/ours")
	s.api(http.MethodPost, "/api/v1/repos/pull-upstream", "", []byte(`{"ref":"theirs"}`)).mustBe(t, http.StatusAccepted)
	s.equal()
	if _, text := call(t, http.DefaultClient, http.MethodGet, s.server.URL+"/metrics", ""); !strings.Contains(text,
		"packhorse_upstream_syncs_total") {
		t.Error("syncs are not counted")
	}

	if err := s.far.Stop(); err != nil {
		t.Error(err)
	}
	s.commit("later", "two.txt", "").mustBe(t, http.StatusCreated)
	s.await("failed", failed)
	s.api(http.MethodDelete, "/api/v1/repos/base", "", nil).mustBe(t, http.StatusOK)
	s.await("detached", func(state syncState) bool { return state.BaseRepo == nil && state.Sync.State == "" })
	s.api(http.MethodPost, "/api/v1/repos/pull-upstream", "", nil).mustBe(t, http.StatusConflict)
	if told := s.server.Output(); strings.Contains(told, s.farToken) {
		t.Error("a token was logged")
	}
	if err := s.server.Stop(); err != nil {
		t.Error(err)
	}
	s.audited(log, "refs/heads/theirs", theirs)
}

// audited looks in the audit log for the sync that moved a ref, which nobody's request did, and for
// secrets.
func (s *twoServers) audited(log, ref, tip string) {
	s.t.Helper()
	all, torn := records(s.t, log)
	found := 0
	for _, r := range all {
		for _, c := range r.Changes {
			if c.Ref == ref && c.New.String() == tip {
				found++
				if r.Via != audit.Background || r.Action != "pull-upstream" || r.Organization != packhorsetest.Org ||
					r.Repository != "r" || r.Subject != "upstream" || c.Sequence == 0 {
					s.t.Errorf("the sync: %+v", r)
				}
			}
		}
	}
	if found != 1 || torn > 0 {
		s.t.Errorf("%d records of the sync, %d torn lines", found, torn)
	}
	text, err := os.ReadFile(log)
	if err != nil || strings.Contains(string(text), s.farToken) || strings.Contains(string(text), `wrong`) {
		s.t.Errorf("%v; a credential is in the audit log", err)
	}
}

// TestKillSync kills the server at random instants, first while it imports, then while programs
// commit and git pushes: at the end the upstream has all acknowledged writes, and both have the
// same refs. PACKHORSE_KILL_ROUNDS sets the number of kills.
func TestKillSync(t *testing.T) {
	t.Parallel()
	rounds := killRounds(t, 2)
	s := newTwoServers(t, 9, "gitea", "")
	s.authorize(s.farToken)
	for range rounds {
		time.Sleep(time.Duration(s.random.IntN(60)) * time.Millisecond)
		if err := s.server.Kill(); err != nil {
			t.Fatal(err)
		}
		s.start()
	}
	s.equal()
	for w := range 2 {
		s.writers = append(s.writers, &keyedWriter{branch: fmt.Sprintf("api%d", w)})
		s.pushers = append(s.pushers, newPusher(t, fmt.Sprintf("git%d", w)))
	}
	tip := "theirs"
	for i := range rounds {
		tip = s.git.Git("commit-tree", "theirs^{tree}", "-p", tip, "-m", fmt.Sprint(i))
		s.git.Git("push", "--quiet", s.farRemote, tip+":refs/heads/theirs")
		s.crash()
	}
	s.api(http.MethodPost, "/api/v1/repos/pull-upstream", "", nil).mustBe(t, http.StatusAccepted)
	s.equal()
	s.look() // all acknowledged writes exist, and so they do at the upstream
}
