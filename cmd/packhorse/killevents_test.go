package main_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestKillEvents has 16 writers commit to many repositories while three readers follow the events
// of the organization, each cut at random and going on from its last event, and kills a server
// twice in the middle: each reader hears of every event of every journal once, in the order of its
// repository. Of two servers, the readers take any for each connection, and one is suspended before
// it is killed. PACKHORSE_EVENT_COUNT sets the number of commits, PACKHORSE_EVENT_PAUSE how long a
// server is suspended at least.
func TestKillEvents(t *testing.T) {
	t.Parallel()
	eachStore(t, testKillEvents)
}

// testKillEvents is the test over stores.
func testKillEvents(t *testing.T, stores *sharedStores) {
	t.Helper()
	s := &eventStorm{
		t: t, stores: stores, dir: t.TempDir(), count: 2000, repos: 100, third: make(chan struct{}, 3),
		live: make([]atomic.Pointer[stormServer], 1),
	}
	if stores != nil {
		s.count, s.repos, s.live = 300, 20, make([]atomic.Pointer[stormServer], 2)
	}
	if text := os.Getenv("PACKHORSE_EVENT_COUNT"); text != "" {
		count, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		s.count = int64(count)
	}
	s.quiet, s.quieted = context.WithCancel(t.Context())
	defer s.quieted()
	for number := range s.live {
		s.start(number)
		defer func() { _ = s.live[number].Load().server.Kill() }() // it has stopped unless the test fails
	}
	for repo := range s.repos {
		answer := s.live[0].Load().call(t.Context(), http.MethodPost, "/api/v1/repos", repo, nil)
		answer.mustBe(t, http.StatusCreated)
	}
	heard := make([]*eventReader, 3)
	var readers, writers sync.WaitGroup
	for i := range heard {
		heard[i] = &eventReader{storm: s, random: rand.New(rand.NewPCG(54, uint64(i)))}
		readers.Go(heard[i].run)
	}
	for i := range 16 {
		random := rand.New(rand.NewPCG(55, uint64(i)))
		writers.Go(func() { s.write(random, &s.live[i%len(s.live)]) })
	}
	for round := range 2 {
		<-s.third
		if round == 0 && stores != nil {
			s.suspend(0)
		}
		s.restart(round % len(s.live))
	}
	writers.Wait()
	journals, total := s.journals()
	s.expected.Store(int64(total))
	s.quieted()
	readers.Wait()
	for i, reader := range heard {
		reader.check(i, journals, total)
	}
	for number := range s.live {
		if err := s.live[number].Load().server.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// eventStorm is servers under many writers.
type eventStorm struct {
	t      *testing.T
	stores *sharedStores // nil for a server over its own
	dir    string
	count  int64 // of commits to be acknowledged
	repos  int

	live         []atomic.Pointer[stormServer]
	acknowledged atomic.Int64
	third        chan struct{}   // has one for each third of the commits
	quiet        context.Context // ends when the writers are done
	quieted      context.CancelFunc
	expected     atomic.Int64 // events of all journals; 0 until then
}

// stormServer is the server between two kills.
type stormServer struct {
	server *packhorsetest.Server
	tokens []string // of the repositories
	org    string   // the token of the organization
	dead   context.Context
	died   context.CancelFunc
}

// start starts a server, for the first time or again.
func (s *eventStorm) start(number int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	options := packhorsetest.Options{Bin: bin, Dir: s.dir}
	if s.stores != nil {
		options = s.stores.options(s.dir, number)
	}
	server, err := packhorsetest.Start(ctx, options)
	if err != nil {
		s.t.Fatal(err)
	}
	live := &stormServer{server: server}
	if before := s.live[0].Load(); before != nil {
		live.tokens, live.org = before.tokens, before.org
	} else {
		if live.org, err = server.Token(ctx, "org", "--scope", "org:read"); err != nil {
			s.t.Fatal(err)
		}
		for i := range s.repos {
			token, err := server.Token(ctx, fmt.Sprint("r", i), "--scope", "git:write", "--scope", "repo:write")
			if err != nil {
				s.t.Fatal(err)
			}
			live.tokens = append(live.tokens, token)
		}
	}
	live.dead, live.died = context.WithCancel(s.t.Context())
	s.live[number].Store(live)
}

func (s *eventStorm) restart(number int) {
	s.t.Helper()
	before := s.live[number].Load()
	if err := before.server.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.start(number)
	before.died()
}

// suspend stops a server in the midst of what it does, and continues it when the others have done
// more.
func (s *eventStorm) suspend(number int) {
	s.t.Helper()
	var pause time.Duration
	if text := os.Getenv("PACKHORSE_EVENT_PAUSE"); text != "" {
		var err error
		if pause, err = time.ParseDuration(text); err != nil {
			s.t.Fatal(err)
		}
	}
	server := s.live[number].Load().server
	suspend(s.t, server)
	more := s.acknowledged.Load() + s.count/10
	time.Sleep(pause)
	s.await(more)
	wake(s.t, server)
	if pause > 0 { // it does something before it is killed
		s.await(more + s.count/10)
	}
}

// await waits until so many commits are acknowledged.
func (s *eventStorm) await(count int64) {
	for s.acknowledged.Load() < min(count, s.count) && !s.t.Failed() {
		time.Sleep(10 * time.Millisecond)
	}
}

// call runs a request on a repository.
func (l *stormServer) call(ctx context.Context, method, path string, repo int, body []byte) reply {
	return send(ctx, method, l.server.URL+path, l.tokens[repo], "", body)
}

// write commits to random repositories until there are enough commits. A commit whose answer was
// lost counts for nothing: the journals tell what it did.
func (s *eventStorm) write(random *rand.Rand, server *atomic.Pointer[stormServer]) {
	for s.acknowledged.Load() < s.count {
		live, name := server.Load(), fmt.Sprint("f", random.IntN(20))
		metadata := fmt.Sprintf(`{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a@b.c"},`+
			`"files":[{"path":%q,"content_id":"1"}]}}`, name)
		chunk := fmt.Sprintf(`{"blob_chunk":{"content_id":"1","data":%q,"eof":true}}`,
			base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d", random.Uint64())))
		answer := live.call(s.t.Context(), http.MethodPost, "/api/v1/repos/commit-pack", random.IntN(s.repos),
			[]byte(metadata+"\n"+chunk+"\n"))
		if answer.err != nil {
			<-live.dead.Done()
			continue
		}
		if s.stores != nil && answer.status == http.StatusServiceUnavailable {
			continue // it was suspended for longer than the others wait for it
		}
		answer.mustBe(s.t, http.StatusCreated)
		if done := s.acknowledged.Add(1); done%(s.count/3) == 0 && done < s.count {
			s.third <- struct{}{}
		}
	}
}

// stormEvent is an event as both calls tell it.
type stormEvent struct {
	Cursor, Event      string
	RepoName           string `json:"repo_name"`
	Sequence, Index    int
	Ref, Before, After string
	Actor, Time, Cause string
}

func (e *stormEvent) String() string {
	return fmt.Sprintf("%d.%d %s %s>%s %s %s %s", e.Sequence, e.Index, e.Ref, e.Before, e.After, e.Actor, e.Time, e.Cause)
}

// journals returns the events of each repository, and how many there are.
func (s *eventStorm) journals() (journals map[string][]string, total int) {
	s.t.Helper()
	journals = make(map[string][]string)
	for repo := range s.repos {
		name := fmt.Sprint("r", repo)
		for after, more := 0, true; more; {
			answer := s.live[0].Load().call(s.t.Context(), http.MethodGet,
				fmt.Sprintf("/api/v1/repos/events?limit=100&after=%d", after), repo, nil)
			answer.mustBe(s.t, http.StatusOK)
			var page struct {
				Events []stormEvent
				Next   int  `json:"next_after"`
				More   bool `json:"has_more"`
			}
			if err := json.Unmarshal(answer.body, &page); err != nil {
				s.t.Fatal(err)
			}
			for i := range page.Events {
				journals[name] = append(journals[name], page.Events[i].String())
			}
			after, more = page.Next, page.More
		}
		total += len(journals[name])
	}
	return journals, total
}

// eventReader follows the events of the organization.
type eventReader struct {
	storm   *eventStorm
	random  *rand.Rand
	last    string // the id of the last event
	cuts    int
	created int
	count   int
	heard   map[string][]string // the events of each repository
	cursors map[string]bool
}

// run listens until the writers are done, and then until all events were heard or the stream has
// nothing more to tell. It cuts each connection after some events.
func (r *eventReader) run() {
	r.heard, r.cursors = make(map[string][]string), make(map[string]bool)
	for r.storm.quiet.Err() == nil && !r.storm.t.Failed() {
		live := r.server()
		if !r.listen(r.storm.quiet, live, 1+r.random.IntN(int(max(r.storm.count/10, 10)))) {
			<-live.dead.Done()
		}
	}
	rest := int(r.storm.expected.Load()) - r.count + r.storm.repos - r.created
	if rest > 0 && !r.storm.t.Failed() {
		r.listen(r.storm.t.Context(), r.server(), rest)
	}
}

// server chooses a server.
func (r *eventReader) server() *stormServer {
	return r.storm.live[r.random.IntN(len(r.storm.live))].Load()
}

// listen takes up to some events of one connection, and reports whether the server was there.
func (r *eventReader) listen(ctx context.Context, live *stormServer, most int) bool {
	r.cuts++
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, live.server.URL+"/api/v1/events", nil)
	if err != nil {
		r.storm.t.Error(err)
		return true
	}
	request.Header.Set("Authorization", "Bearer "+live.org)
	request.Header.Set("Accept", "text/event-stream")
	if r.last != "" {
		request.Header.Set("Last-Event-ID", r.last)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ctx.Err() != nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		r.storm.t.Errorf("status %d: %s", response.StatusCode, body)
		return true
	}
	lines := bufio.NewReader(response.Body)
	for most > 0 {
		line, err := lines.ReadString('\n')
		if err != nil {
			return ctx.Err() != nil
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if line == ":\n" && r.storm.quiet.Err() != nil {
			return true
		}
		if !ok {
			continue
		}
		var event stormEvent
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			r.storm.t.Errorf("%v in %q", err, data)
			return true
		}
		r.take(&event)
		most--
	}
	return true
}

func (r *eventReader) take(event *stormEvent) {
	if r.cursors[event.Cursor] {
		r.storm.t.Errorf("%s was heard twice: %v", event.Cursor, event)
	}
	r.cursors[event.Cursor] = true
	r.last = event.Cursor
	if event.Event == "create" {
		r.created++
		return
	}
	r.heard[event.RepoName] = append(r.heard[event.RepoName], event.String())
	r.count++
}

// check compares what was heard with the journals.
func (r *eventReader) check(number int, journals map[string][]string, total int) {
	if r.created != r.storm.repos || r.count != total {
		r.storm.t.Errorf("reader %d heard of %d repositories and %d events, there are %d", number, r.created, r.count, total)
	}
	for name, journal := range journals {
		if !slices.Equal(r.heard[name], journal) {
			r.storm.t.Errorf("reader %d heard %d events of %s, its journal has %d, or other ones", number, len(r.heard[name]),
				name, len(journal))
		}
	}
	r.storm.t.Logf("reader %d: %d events over %d connections", number, r.count, r.cuts)
}
