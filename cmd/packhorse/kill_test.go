package main_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestKill kills the server at random instants while programs commit and git pushes, again and
// again over the same data: all acknowledged writes must exist, each keyed commit once, and git
// must find no fault. PACKHORSE_KILL_ROUNDS sets the number of kills.
func TestKill(t *testing.T) {
	t.Parallel()
	eachStore(t, testKill)
}

func testKill(t *testing.T, stores *sharedStores) {
	t.Helper()
	rounds := killRounds(t, 4)
	k := newKilling(t, stores, 1, uint64(rounds))
	k.start()
	k.api(http.MethodPost, "/api/v1/repos", "", nil).mustBe(t, http.StatusCreated)
	k.commit("main", "seed", "seed").mustBe(t, http.StatusCreated)
	for w := range 3 {
		k.writers = append(k.writers, &keyedWriter{branch: fmt.Sprintf("api%d", w)})
	}
	for w := range 2 {
		k.pushers = append(k.pushers, newPusher(t, fmt.Sprintf("git%d", w)))
	}
	for range rounds {
		k.round()
	}
	k.stop()
}

// killRounds is the number of kills: PACKHORSE_KILL_ROUNDS, or else the number given, and half of
// it in short tests.
func killRounds(t *testing.T, rounds int) int {
	t.Helper()
	if testing.Short() {
		rounds /= 2
	}
	return fromEnvironment(t, "PACKHORSE_KILL_ROUNDS", rounds)
}

// fromEnvironment is the number in a variable, or else the one given.
func fromEnvironment(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return number
}

// killing is a server to be killed, and the knowledge of its clients. Of two servers that share
// their stores, the API is asked through the one and git through the other; when the one is killed,
// they change places.
type killing struct {
	t       *testing.T
	dir     string
	flags   []string      // of the server
	stores  *sharedStores // of two servers; nil: there is one
	server  *packhorsetest.Server
	other   *packhorsetest.Server // the server for git, if there are two
	number  int                   // of the server among two
	token   string
	random  *rand.Rand
	writers []*keyedWriter
	pushers []*pusher

	mu   sync.Mutex
	told map[string]string // guarded by mu: branch to the last commit that was acknowledged
}

func newKilling(t *testing.T, stores *sharedStores, seed1, seed2 uint64) *killing {
	t.Helper()
	return &killing{
		t: t, dir: t.TempDir(), stores: stores, told: map[string]string{}, random: rand.New(rand.NewPCG(seed1, seed2)),
	}
}

// start starts the server that is not running, or both.
func (k *killing) start() {
	k.t.Helper()
	begin := func(number int) *packhorsetest.Server {
		options := packhorsetest.Options{Bin: bin, Dir: k.dir}
		if k.stores != nil {
			options = k.stores.options(k.dir, number)
		}
		options.Flags = append(options.Flags, k.flags...)
		server, err := packhorsetest.Start(k.t.Context(), options)
		if err != nil {
			k.t.Fatal(err)
		}
		return server
	}
	again := k.server != nil
	k.server = begin(k.number)
	switch {
	case k.stores == nil:
	case again:
		k.server, k.other, k.number = k.other, k.server, 1-k.number
	default:
		k.other = begin(1 - k.number)
	}
	var err error
	if k.token, err = k.server.Token(k.t.Context(), "r", "--scope", "git:write,repo:write"); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killing) note(branch, tip string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told[branch] = tip
}

// kill kills the server that the API is asked through.
func (k *killing) kill() {
	k.t.Helper()
	if err := k.server.Kill(); err != nil {
		k.t.Fatal(err)
	}
}

// stop stops the servers.
func (k *killing) stop() {
	k.t.Helper()
	for _, server := range []*packhorsetest.Server{k.server, k.other} {
		if server == nil {
			continue
		}
		if err := server.Stop(); err != nil {
			k.t.Error(err)
		}
	}
}

// data returns the data folder of the server.
func (k *killing) data() string {
	if k.stores == nil {
		return filepath.Join(k.dir, "data")
	}
	return filepath.Join(k.stores.options(k.dir, k.number).Dir, "data")
}

// remote returns the URL that git uses.
func (k *killing) remote() string {
	return strings.Replace(cmp.Or(k.other, k.server).URL, "://", "://t:"+k.token+"@", 1) + "/r.git"
}

// round lets clients write until the server dies, starts it again, and looks.
func (k *killing) round() {
	k.t.Helper()
	k.crash()
	k.look()
}

// crash lets clients write until the server dies, restarts it, and repeats the requests without an
// answer.
func (k *killing) crash() {
	k.t.Helper()
	remote := k.remote()
	var clients sync.WaitGroup
	var killed atomic.Bool
	for _, w := range k.writers {
		clients.Go(func() { w.run(k) })
	}
	for _, p := range k.pushers {
		clients.Go(func() { p.run(k, remote, &killed) })
	}
	time.Sleep(time.Duration(100+k.random.IntN(500)) * time.Millisecond)
	k.kill()
	killed.Store(true)
	clients.Wait()
	k.start()
	for _, w := range k.writers {
		w.resume(k)
	}
}

// look clones everything and compares it with the acknowledged writes.
func (k *killing) look() {
	k.t.Helper()
	git := oracle.Open(k.t, filepath.Join(k.t.TempDir(), "mirror.git"))
	git.Git("clone", "--quiet", "--mirror", k.remote(), git.Dir)
	if out := git.Git("fsck", "--full", "--strict"); out != "" {
		k.t.Errorf("git fsck: %s", out)
	}
	for branch, tip := range k.told {
		if _, err := git.Try(nil, "merge-base", "--is-ancestor", tip, "refs/heads/"+branch); err != nil {
			k.t.Errorf("%s was acknowledged at %s: %v", branch, tip, err)
		}
	}
	for _, w := range k.writers {
		subjects := strings.Fields(git.Git("log", "--format=%s", "refs/heads/main..refs/heads/"+w.branch))
		if len(subjects) != w.number {
			k.t.Errorf("%s has %d commits, %d were asked for", w.branch, len(subjects), w.number)
		}
		for i, subject := range subjects {
			if want := fmt.Sprintf("%s-%d", w.branch, w.number-i); subject != want {
				k.t.Errorf("commit %d of %s is %q, want %q", i, w.branch, subject, want)
			}
		}
	}
}

// keyedWriter commits to a branch, each commit under a key, so that one whose answer was lost can
// be sent again.
type keyedWriter struct {
	branch string
	number int // of the last commit that was asked for
	lost   bool
}

func (w *keyedWriter) run(k *killing) {
	for {
		w.number++
		if !w.send(k) {
			w.lost = true
			return
		}
	}
}

// send sends the commit of the current number and reports whether it was acknowledged.
func (w *keyedWriter) send(k *killing) bool {
	name := fmt.Sprintf("%s-%d", w.branch, w.number)
	answer := k.commit(w.branch, name, name)
	if answer.err != nil {
		return false
	}
	answer.mustBe(k.t, http.StatusCreated)
	var done struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		}
	}
	if err := json.Unmarshal(answer.body, &done); err != nil {
		k.t.Error(err)
	}
	k.note(w.branch, done.Commit.SHA)
	return true
}

// resume repeats the request without an answer.
func (w *keyedWriter) resume(k *killing) {
	if w.lost && !w.send(k) {
		k.t.Error("a commit that was sent again was not answered")
	}
	w.lost = false
}

// pusher pushes a growing history with git.
type pusher struct {
	git    *oracle.Repository
	branch string
	number int
}

func newPusher(t *testing.T, branch string) *pusher {
	t.Helper()
	p := &pusher{git: oracle.New(t), branch: branch}
	p.git.Seed(oracle.History{
		Seed: uint64(len(branch)) + uint64(branch[len(branch)-1]), Commits: 30, Merges: true, Binary: true,
	})
	return p
}

func (p *pusher) run(k *killing, remote string, killed *atomic.Bool) {
	for !killed.Load() {
		p.number++
		tree := p.git.Git("rev-parse", "main^{tree}")
		tip := p.git.Git("commit-tree", tree, "-p", "main", "-m", fmt.Sprint(p.number))
		p.git.Git("update-ref", "refs/heads/main", tip)
		if _, err := p.git.Try(nil, "push", "--quiet", remote, "main:refs/heads/"+p.branch); err != nil {
			return
		}
		k.note(p.branch, tip)
	}
}

// reply is the result of a call.
type reply struct {
	status   int
	body     []byte
	sequence string // the journal position that a write reached
	err      error
}

func (r reply) mustBe(t *testing.T, status int) {
	t.Helper()
	if r.err != nil || r.status != status {
		t.Errorf("status is %d (%v), want %d: %s", r.status, r.err, status, r.body)
	}
}

// commit writes one file under a key.
func (k *killing) commit(branch, name, key string) reply {
	base := "main"
	if branch == "main" {
		base = ""
	}
	return k.api(http.MethodPost, "/api/v1/repos/commit-pack", key, commitPack(branch, base, name))
}

// commitPack is the body of a commit of one file, which has its name for its content, to a branch
// that begins at another one.
func commitPack(branch, base, name string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"target_branch":%q,"base_branch":%q,"commit_message":%q,`+
		`"author":{"name":"K","email":"k@example.com"},"files":[{"path":%[3]q,"content_id":"1"}]}}`+"\n"+
		`{"blob_chunk":{"content_id":"1","data":%[4]q,"eof":true}}`+"\n",
		branch, base, name, base64.StdEncoding.EncodeToString([]byte(name)))
}

// get asks for a path of the repository.
func (k *killing) get(path string) reply { return k.api(http.MethodGet, path, "", nil) }

func (k *killing) api(method, path, key string, body []byte) reply {
	return send(k.t.Context(), method, k.server.URL+path, k.token, key, body)
}

// send runs a call, under a key unless that is empty.
func send(ctx context.Context, method, url, token, key string, body []byte) reply {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{err: err}
	}
	answer, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	return reply{status: response.StatusCode, body: answer, sequence: response.Header.Get("X-Repo-Sequence"), err: err}
}
