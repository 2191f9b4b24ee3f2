package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
)

// load is clients that write to a repository through both servers of a pair, whatever happens to
// them, and the knowledge that they have gained. A server that is disturbed answers with 503, or
// 504 when it has tried for long, and with nothing else that was not asked for.
type load struct {
	p      *pair
	seed   string // the first commit of main
	keyed  []*keyedClient
	loose  []*looseClient
	git    []*gitClient
	parts  []*gitClient // that run only when they are told to
	clones []*cloner
	pause  atomic.Int64 // nanoseconds between two writes of a client
	cloned atomic.Int64 // clones that were whole
	broken atomic.Int64 // clones that failed

	mu    sync.Mutex
	told  map[string]string // guarded by mu: branch to the last tip that was acknowledged
	count [2]tally          // guarded by mu: by server
}

// tally counts what a server told.
type tally struct{ done, refused, unknown int }

// newLoad makes main, and branches for merges.
func newLoad(p *pair, keyed, git int) *load {
	p.t.Helper()
	l := &load{p: p, told: map[string]string{}}
	seeded := l.commit(p.sides[0], "main", "", "seed", "seed")
	seeded.mustBe(p.t, http.StatusCreated)
	l.seed = seeded.tip(p.t)
	for n := range keyed {
		c := &keyedClient{branch: fmt.Sprint("keyed", n), home: n % 2}
		body := map[string]any{"target_branch": c.branch + "-merged", "base_ref": l.seed}
		l.post(p.sides[0], "branches/create", "", body).mustBe(p.t, http.StatusCreated)
		l.keyed = append(l.keyed, c)
	}
	for n := range 2 {
		l.loose = append(l.loose, &looseClient{branch: fmt.Sprint("loose", n), home: n % 2, asked: map[string]fate{}})
	}
	for n := range git {
		l.git = append(l.git, newGitClient(p.t, "git", n, 0))
	}
	return l
}

// newGitClient returns a client that pushes a file of so many bytes with each commit.
func newGitClient(t *testing.T, name string, n, bytes int) *gitClient {
	t.Helper()
	c := &gitClient{pusher: newPusher(t, fmt.Sprint(name, n)), home: n % 2, bytes: bytes, refused: map[string]bool{}}
	c.tip = c.git.Git("rev-parse", "main")
	return c
}

// during runs the clients while something happens. They end when it has ended, and when each has an
// answer to what it asked for last.
func (l *load) during(happens func()) {
	l.p.t.Helper()
	var stopped atomic.Bool
	var clients sync.WaitGroup
	for _, c := range l.keyed {
		clients.Go(func() { l.until(&stopped, func() bool { return c.step(l) }) })
	}
	for _, c := range l.loose {
		clients.Go(func() { l.until(&stopped, func() bool { return c.step(l) }) })
	}
	for _, c := range l.git {
		clients.Go(func() { l.until(&stopped, func() bool { return c.step(l) }) })
	}
	for _, c := range l.clones {
		clients.Go(func() { l.until(&stopped, func() bool { return c.step(l) }) })
	}
	defer clients.Wait()
	defer stopped.Store(true)
	happens()
}

// until takes steps until the load ends.
func (l *load) until(stopped *atomic.Bool, step func() bool) {
	for !stopped.Load() && step() {
		time.Sleep(time.Duration(l.pause.Load()))
	}
}

// ledger is what the clients know at some time.
type ledger struct {
	told  map[string]string
	keyed []keyedClient
	loose []looseClient
	git   []gitClient
}

// ledger returns a copy of what the clients know. None of them is at work.
func (l *load) ledger() ledger {
	known := ledger{told: maps.Clone(l.told)}
	for _, c := range l.keyed {
		kept := *c
		kept.commits, kept.notes, kept.merges = slices.Clone(c.commits), slices.Clone(c.notes), slices.Clone(c.merges)
		known.keyed = append(known.keyed, kept)
	}
	for _, c := range l.loose {
		kept := *c
		kept.asked = maps.Clone(c.asked)
		known.loose = append(known.loose, kept)
	}
	for _, c := range l.git {
		kept := *c
		kept.refused, kept.pushed = maps.Clone(c.refused), slices.Clone(c.pushed)
		known.git = append(known.git, kept)
	}
	return known
}

// restore lets the clients forget what they did since, so that they do the same once more, under
// the same keys and with the same objects.
func (l *load) restore(known ledger) {
	l.told = known.told
	for i := range l.keyed {
		*l.keyed[i] = known.keyed[i]
	}
	for i := range l.loose {
		*l.loose[i] = known.loose[i]
	}
	for i := range l.git {
		*l.git[i] = known.git[i]
	}
}

// acknowledged is how many writes each server has acknowledged so far.
func (l *load) acknowledged() [2]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [2]int{l.count[0].done, l.count[1].done}
}

// awaitProgress waits until a server has acknowledged some more writes.
func (l *load) awaitProgress(number, more int) {
	l.p.t.Helper()
	begun, want := time.Now(), l.acknowledged()[number]+more
	for l.acknowledged()[number] < want {
		if time.Since(begun) > patienceOfTests {
			l.p.t.Fatalf("server %d acknowledges nothing", number)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// patienceOfTests is for what never happens.
const patienceOfTests = 4 * time.Minute

// fate is what became of a write, as its client knows.
type fate int

const (
	done fate = iota + 1
	refused
	unknown // it happened or not
)

// judge counts an answer and says what became of the write.
func (l *load) judge(number int, answer reply, statuses ...int) fate {
	f := unknown
	switch {
	case answer.err != nil: // it broke off
	case slices.Contains(statuses, answer.status):
		f = done
	case answer.status == http.StatusGatewayTimeout: // after 30 seconds of tries
	case answer.status != http.StatusServiceUnavailable:
		l.p.t.Errorf("server %d says %d %s", number, answer.status, answer.body)
	case !strings.Contains(string(answer.body), "it is not known whether"):
		f = refused
	}
	l.note(number, f)
	return f
}

func (l *load) note(number int, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f {
	case done:
		l.count[number].done++
	case refused:
		l.count[number].refused++
	case unknown:
		l.count[number].unknown++
	}
}

func (l *load) tip(branch, tip string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[branch] = tip
}

// post asks a server, under a key unless that is empty.
func (l *load) post(s *side, path, key string, body any) reply {
	data, err := json.Marshal(body)
	if err != nil {
		return reply{err: err}
	}
	return l.p.send(s, http.MethodPost, "/api/v1/repos/"+path, key, data)
}

// commit writes a file of the name to a branch.
func (l *load) commit(s *side, branch, base, name, key string) reply {
	return l.p.send(s, http.MethodPost, "/api/v1/repos/commit-pack", key, commitPack(branch, base, name))
}

// send runs a call of the repository r. A call that never ends is an error of the test.
func (p *pair) send(s *side, method, path, key string, body []byte) reply {
	ctx, cancel := context.WithTimeout(p.t.Context(), patienceOfTests)
	defer cancel()
	return send(ctx, method, s.URL+path, p.token, key, body)
}

// get asks the second server for a path of the repository r.
func (p *pair) get(path string) reply { return p.send(p.sides[1], http.MethodGet, path, "", nil) }

// tip is the commit that an answer names.
func (r reply) tip(t *testing.T) string {
	t.Helper()
	var said struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		}
	}
	if err := json.Unmarshal(r.body, &said); err != nil {
		t.Error(err)
	}
	return said.Commit.SHA
}

// keyedClient commits to a branch, merges it into another, and appends to a note, each under a key,
// and asks both servers in turn until one answers.
type keyedClient struct {
	branch         string
	home           int // of the server that is asked first
	number         int // of the last write
	commits, notes []string
	merges         []string
}

// step does one write, and returns whether to go on.
func (c *keyedClient) step(l *load) bool {
	c.number++
	name := fmt.Sprintf("%s-%d", c.branch, c.number)
	author := map[string]string{"name": "K", "email": "k@example.com"}
	ask, status := func(s *side) reply { return l.commit(s, c.branch, "main", name, name) }, http.StatusCreated
	list := &c.commits
	switch c.number % 4 {
	case 0:
		list = &c.notes
		ask = func(s *side) reply {
			return l.post(s, "notes", name, map[string]string{"sha": l.seed, "action": "append", "note": name})
		}
	case 2:
		list, status = &c.merges, http.StatusOK
		ask = func(s *side) reply {
			return l.post(s, "merge", name, map[string]any{
				"source_branch": c.branch, "target_branch": c.branch + "-merged", "strategy": "merge", "commit_message": name,
				"author": author,
			})
		}
	}
	*list = append(*list, name)
	for begun, number := time.Now(), c.home; time.Since(begun) < patienceOfTests; number = 1 - number {
		if answer := ask(l.p.sides[number]); l.judge(number, answer, status) == done {
			if list == &c.commits {
				l.tip(c.branch, answer.tip(l.p.t))
			}
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.p.t.Errorf("%s was never answered", name)
	return false
}

// looseClient commits to a branch without a key, each commit once.
type looseClient struct {
	branch string
	home   int
	number int
	asked  map[string]fate
}

func (c *looseClient) step(l *load) bool {
	c.number++
	name := fmt.Sprintf("%s-%d", c.branch, c.number)
	answer := l.commit(l.p.sides[c.home], c.branch, "main", name, "")
	c.asked[name] = l.judge(c.home, answer, http.StatusCreated)
	if c.asked[name] == done {
		l.tip(c.branch, answer.tip(l.p.t))
		return true
	}
	time.Sleep(20 * time.Millisecond)
	return true
}

// gitClient pushes with git. Each push is a commit of its own on what it knows of its branch; a
// commit that was refused must never be seen again.
type gitClient struct {
	*pusher
	home    int
	bytes   int    // of a file in each commit; 0: there is none
	tip     string // of the branch, as far as is known
	pending []string
	refused map[string]bool
	pushed  []string
	lastErr error
	remote  string // instead of its server, if not empty
}

// wrongPush matches what git must never be told.
var wrongPush = regexp.MustCompile(`error: [45]0[0-25-9]\b|internal error|HTTP [45]0[0-25-9]\b`)

func (c *gitClient) step(l *load) bool {
	if len(c.pending) > 0 && !c.ask(l) {
		time.Sleep(20 * time.Millisecond)
		return true
	}
	c.number++
	next := c.git.Git("commit-tree", c.tree(), "-p", c.tip, "-m", fmt.Sprintf("%s-%d", c.branch, c.number))
	s := l.p.sides[c.home]
	_, err := c.git.Try(nil, "push", "--quiet", cmp.Or(c.remote, s.remote()), next+":refs/heads/"+c.branch)
	c.lastErr = err
	switch {
	case err == nil:
		c.tip, c.pushed = next, append(c.pushed, next)
		l.tip(c.branch, next)
		l.note(c.home, done)
		return true
	case wrongPush.MatchString(err.Error()):
		l.p.t.Errorf("push to server %d: %v", c.home, err)
	case strings.Contains(err.Error(), "the storage is not available"):
		c.refused[next] = true
		l.note(c.home, refused)
	default: // it broke off, or another one of unknown outcome was there after all
		c.pending = append(c.pending, next)
		l.note(c.home, unknown)
	}
	time.Sleep(20 * time.Millisecond)
	return true
}

// tree is that of the next commit.
func (c *gitClient) tree() string {
	if c.bytes == 0 {
		return c.tip + "^{tree}"
	}
	data := make([]byte, c.bytes)
	_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%032s", fmt.Sprint(c.branch, c.number))))).Read(data)
	blob := strings.TrimSpace(string(c.git.Input(data, "hash-object", "-w", "--stdin")))
	return strings.TrimSpace(string(c.git.Input(fmt.Appendf(nil, "100644 blob %s\tlarge\n", blob), "mktree")))
}

// cloner clones now and then from both servers in turn. A clone is whole, with everything that was
// acknowledged before it began, or fails.
type cloner struct{ number int }

// wrongClone matches what says that git was sent wrong bytes.
var wrongClone = regexp.MustCompile(`(?i)corrupt|bad object|inflate|mismatch|missing (blob|tree|commit)|not a commit`)

func (c *cloner) step(l *load) bool {
	t := l.p.t
	c.number++
	l.mu.Lock()
	told := maps.Clone(l.told)
	l.mu.Unlock()
	dir, err := os.MkdirTemp(l.p.dir, "clone")
	if err != nil {
		t.Error(err)
		return false
	}
	defer func() { _ = os.RemoveAll(dir) }()
	git := oracle.Open(t, dir)
	s := l.p.sides[c.number%2]
	if _, err := git.Try(nil, "clone", "--quiet", "--mirror", s.remote(), dir); err != nil {
		if wrongPush.MatchString(err.Error()) || wrongClone.MatchString(err.Error()) {
			t.Errorf("clone from server %d: %v", c.number%2, err)
		}
		l.broken.Add(1)
		return true
	}
	l.cloned.Add(1)
	for branch, tip := range told {
		if _, err := git.Try(nil, "merge-base", "--is-ancestor", tip, "refs/heads/"+branch); err != nil {
			t.Errorf("a clone from server %d lacks %s of %s, which was acknowledged before: %v", c.number%2, tip, branch, err)
		}
	}
	return true
}

// ask finds out where the branch is, and returns whether somebody knew.
func (c *gitClient) ask(l *load) bool {
	out, err := c.git.Try(nil, "ls-remote", l.p.sides[c.home].remote(), "refs/heads/"+c.branch)
	if err != nil {
		if wrongPush.MatchString(err.Error()) {
			l.p.t.Errorf("ls-remote of server %d: %v", c.home, err)
		}
		return false
	}
	tip, _, found := strings.Cut(string(out), "\t")
	switch {
	case !found && len(c.pushed) == 0: // the branch is not there yet
	case tip == c.tip:
	case slices.Contains(c.pending, tip):
		c.tip, c.pushed = tip, append(c.pushed, tip)
		l.tip(c.branch, tip)
	default:
		l.p.t.Errorf("%s is at %q, which nobody pushed since %s: %v", c.branch, tip, c.tip, c.pending)
	}
	// What is still under way may yet arrive while it is on the tip, so it is kept.
	c.pending = slices.DeleteFunc(c.pending, func(id string) bool { return id == c.tip })
	return true
}

// look clones from both servers and compares all of it with what the clients know.
func (l *load) look() {
	t := l.p.t
	t.Helper()
	git, other := l.p.sides[0].clone(), l.p.sides[1].clone()
	defer func() { _ = os.RemoveAll(git.Dir); _ = os.RemoveAll(other.Dir) }()
	if one, two := git.Git("for-each-ref"), other.Git("for-each-ref"); one != two {
		t.Errorf("one server has\n%s\nthe other\n%s", one, two)
	}
	for branch, tip := range l.told {
		if _, err := git.Try(nil, "merge-base", "--is-ancestor", tip, "refs/heads/"+branch); err != nil {
			t.Errorf("%s was acknowledged at %s: %v", branch, tip, err)
		}
	}
	subjects := func(branch string) []string {
		list := strings.Fields(git.Git("log", "--first-parent", "--format=%s", "refs/heads/main..refs/heads/"+branch))
		slices.Reverse(list)
		return list
	}
	noted := map[string]int{}
	for _, c := range l.keyed {
		for branch, want := range map[string][]string{c.branch: c.commits, c.branch + "-merged": c.merges} {
			if len(want) > 0 && !slices.Equal(subjects(branch), want) {
				t.Errorf("%s has the commits %v, want %v", branch, subjects(branch), want)
			}
		}
		for _, name := range c.notes {
			noted[name] = 0
		}
	}
	if len(noted) > 0 {
		for name := range strings.FieldsSeq(git.Git("notes", "show", l.seed)) {
			noted[name]++
		}
		for name, count := range noted {
			if count != 1 {
				t.Errorf("%s is in the note %d times", name, count)
			}
		}
	}
	for _, c := range l.loose {
		c.check(t, subjects)
	}
	for _, c := range slices.Concat(l.git, l.parts) {
		for id := range c.refused {
			if _, err := git.Try(nil, "cat-file", "-e", id); err == nil {
				t.Errorf("%s has %s, which was refused", c.branch, id)
			}
		}
	}
	l.checkJournal(git)
}

// check compares the branch of a client with what it was told.
func (c *looseClient) check(t *testing.T, subjects func(branch string) []string) {
	t.Helper()
	if !slices.Contains(slices.Collect(maps.Values(c.asked)), done) {
		return // there may be no branch
	}
	counts := map[string]int{}
	for _, name := range subjects(c.branch) {
		counts[name]++
	}
	for name, f := range c.asked {
		if got := counts[name]; got > 1 || f == done && got == 0 || f == refused && got > 0 {
			t.Errorf("%s is there %d times, its fate was %d", name, got, f)
		}
		delete(counts, name)
	}
	if len(counts) > 0 {
		t.Errorf("nobody asked for %v", counts)
	}
}

// checkJournal follows each ref through the events of the repository, to where it is now.
func (l *load) checkJournal(git *oracle.Repository) {
	t := l.p.t
	t.Helper()
	const none = "0000000000000000000000000000000000000000"
	now := map[string]string{}
	last := 0
	for _, event := range readJournal(t, l.p.get) {
		before := event.Before
		if before == none {
			before = ""
		}
		if event.Sequence < last || now[event.Ref] != before {
			t.Errorf("after %d, the journal moves %s from %s, where it is not: %s", last, event.Ref, before, now[event.Ref])
		}
		last, now[event.Ref] = event.Sequence, event.After
	}
	for line := range strings.Lines(git.Git("for-each-ref", "--format=%(objectname) %(refname)") + "\n") {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, there := now[ref]; there && now[ref] != id {
			t.Errorf("%s is at %s, and at %s in the journal", ref, id, now[ref])
		}
		delete(now, ref)
	}
	for ref, id := range now {
		if id != none && strings.HasPrefix(ref, "refs/heads/") {
			t.Errorf("%s is in the journal at %s, and not in the clone", ref, id)
		}
	}
}

// figures tells what the clients were told so far.
func (l *load) figures() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text []string
	for number, c := range l.count {
		text = append(text, fmt.Sprintf("server %d: %d done, %d refused, %d unknown", number, c.done, c.refused, c.unknown))
	}
	return fmt.Sprintf("%s; %d clones were whole, %d failed", strings.Join(text, "; "), l.cloned.Load(), l.broken.Load())
}
