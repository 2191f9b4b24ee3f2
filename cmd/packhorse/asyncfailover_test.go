package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestAsynchronousFailover lets the database of two servers fail over to a standby that lacks the
// last writes, which both servers have answered and read. From the first answer on, both show what
// the standby has: no ref and no object of what is lost, from whatever they held in memory or on
// disk; a repository that was made is gone, one that was deleted is back. Clients write the same
// once more, under the same keys and with the same objects, as if for the first time, and a
// receiver of webhooks hears of all that is there. PACKHORSE_STORM_ROUNDS sets the number of
// failovers.
func TestAsynchronousFailover(t *testing.T) {
	t.Parallel()
	rounds := longStormRounds(t)
	heard := &heardEvents{events: map[string]bool{}, attempts: map[string][]string{}}
	receiver := httptest.NewServer(heard)
	defer receiver.Close()
	dir := t.TempDir()
	hook(t, dir, receiver.URL)
	primary := postgrestest.Start(t)
	standby := primary.Standby(t)
	standby.Configure(t, "wal_retrieve_retry_interval = '50ms'") // until then the primary acknowledges nothing
	p := newDirectPair(t, dir, postgrestest.Hosts(primary.Database(t), primary, standby), "--log-level", "error",
		"--upstream-allow", "127.0.0.1")
	l := newLoad(p, min(rounds, 2), 1)
	if rounds > 1 {
		l.git = append(l.git, newGitClient(t, "large", 1, 200<<10))
	}
	for round := range rounds {
		if round > 0 {
			standby.Follow(t, primary)
		}
		l.some(3)
		deleted, made := p.another(fmt.Sprint("deleted", round)), p.another(fmt.Sprint("made", round))
		deleted.create("a")
		kept, keptOther, known := p.sides[0].refs(), deleted.refs(p.sides[0]), l.ledger()
		standby.Crash(t)
		primary.Configure(t, "synchronous_standby_names = ''")
		heard.refuse(true)
		l.some(3)
		made.create("a")
		deleted.delete()
		got := packhorse(t, nil, "gc", "--data", p.sides[round%2].data(), "--reader-grace", "1h")
		if got.status != 0 {
			t.Errorf("gc: %+v", got)
		}
		l.some(3)
		for _, s := range p.sides {
			s.clone() // what is about to be lost is in all caches
			made.refs(s)
		}
		lost := maps.Clone(l.told)
		primary.Crash(t)
		standby.Restart(t)
		standby.Promote(t)
		heard.refuse(false)
		var group sync.WaitGroup
		for _, s := range p.sides {
			group.Go(func() {
				if got := s.refs(); got != kept {
					t.Errorf("after the failover %s has\n%s\nand not\n%s", s.URL, got, kept)
				}
				if got := deleted.refs(s); got != keptOther {
					t.Errorf("after the failover %s has %q of what was deleted, and not %q", s.URL, got, keptOther)
				}
				if status := s.statusOf(made.token, "/api/v1/repo"); status != http.StatusNotFound {
					t.Errorf("a repository is lost, and %d", status)
				}
				for branch, tip := range lost {
					if tip == known.told[branch] {
						continue
					}
					if status := s.statusOf(p.token, "/api/v1/repos/commit?sha="+tip); status != http.StatusNotFound {
						t.Errorf("%s of %s is lost, and %d", tip, branch, status)
					}
				}
			})
		}
		group.Wait()
		if t.Failed() {
			return
		}
		l.restore(known)
		l.look()
		made.create("b")
		if one, two := made.refs(p.sides[0]), made.refs(p.sides[1]); one != two {
			t.Errorf("what was made anew is %q and %q", one, two)
		}
		l.some(5)
		l.look()
		heard.await(t, readJournal(t, func(path string) reply { return p.send(p.sides[0], http.MethodGet, path, "", nil) }),
			func() string { return packhorse(t, nil, "webhooks", "list", "--dead", "--data", p.sides[0].data()).out })
		primary, standby = standby, primary
		t.Log(l.figures())
	}
	p.stop()
}

// some lets the clients write until each server has acknowledged some.
func (l *load) some(count int) {
	l.p.t.Helper()
	l.during(func() {
		for number := range l.p.sides {
			l.awaitProgress(number, count)
		}
	})
}

// refs lists the refs of the repository r, as soon as the server can.
func (s *side) refs() string {
	s.pair.t.Helper()
	return s.refsAt(s.remote())
}

func (s *side) refsAt(remote string) string {
	t := s.pair.t
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, err := oracle.New(t).Try(nil, "ls-remote", remote)
		if err == nil {
			return string(out)
		}
		if time.Since(begun) > patienceOfTests {
			t.Errorf("ls-remote: %v", err)
			return ""
		}
	}
}

// statusOf asks until the answer is not 503.
func (s *side) statusOf(token, path string) int {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		answer := send(s.pair.t.Context(), http.MethodGet, s.URL+path, token, "", nil)
		if answer.status != http.StatusServiceUnavailable || time.Since(begun) > patienceOfTests {
			return answer.status
		}
	}
}

// another is a repository of a pair beside r.
type another struct {
	p           *pair
	name, token string
}

func (p *pair) another(name string) *another {
	p.t.Helper()
	token, err := p.sides[0].Token(p.t.Context(), name, "--scope", "repo:write,git:write", "--ttl", "24h")
	if err != nil {
		p.t.Fatal(err)
	}
	return &another{p, name, token}
}

// create makes the repository, with a commit of a name.
func (a *another) create(name string) {
	t := a.p.t
	t.Helper()
	url := a.p.sides[0].URL + "/api/v1/repos"
	send(t.Context(), http.MethodPost, url, a.token, "", nil).mustBe(t, http.StatusCreated)
	send(t.Context(), http.MethodPost, url+"/commit-pack", a.token, "", commitPack("main", "", name)).
		mustBe(t, http.StatusCreated)
}

func (a *another) delete() {
	t := a.p.t
	t.Helper()
	if status, text := call(t, http.DefaultClient, http.MethodDelete, a.p.sides[1].URL+"/api/v1/repos/delete", a.token); status/100 != 2 {
		t.Errorf("delete: %d %s", status, text)
	}
}

// refs is the repository as a server has it.
func (a *another) refs(s *side) string {
	a.p.t.Helper()
	return s.refsAt(strings.Replace(s.URL, "://", "://t:"+a.token+"@", 1) + "/" + a.name + ".git")
}

// heardEvents is a receiver of webhooks that knows what it has heard of, and not when.
type heardEvents struct {
	mu       sync.Mutex      // guards the fields below
	events   map[string]bool // refs and where they went
	refusing bool
	attempts map[string][]string // at each ref, for the report of a failure
}

func (h *heardEvents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event pushed
	if err != nil || json.Unmarshal(body, &event) != nil {
		return // it broke off
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[event.Ref] = append(h.attempts[event.Ref], fmt.Sprintf("%s %s %s refused %t",
		time.Now().Format(time.TimeOnly+".000"), r.Header.Get("X-Pierre-Delivery"), event.After, h.refusing))
	if h.refusing {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.events[event.Ref+" "+event.After] = true
}

func (h *heardEvents) refuse(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusing = on
}

// missing returns the events of a journal that are still to come. Notes have none.
func (h *heardEvents) missing(journal []journalEvent) (missing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, event := range journal {
		if key := event.Ref + " " + event.After; !strings.HasPrefix(event.Ref, "refs/notes/") && !h.events[key] {
			missing = append(missing, fmt.Sprint(event.Sequence, " ", key))
		}
	}
	return missing
}

// await waits for all events of a journal.
func (h *heardEvents) await(t *testing.T, journal []journalEvent, left func() string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		missing := h.missing(journal)
		if len(missing) == 0 {
			return
		}
		if time.Since(begun) > patienceOfTests {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("%d of %d events never arrived, such as %v; left to do: %s\nattempts at its ref:\n%s", len(missing),
				len(journal), missing[:min(len(missing), 10)], left(), strings.Join(h.attempts[strings.Fields(missing[0])[1]], "\n"))
		}
	}
}
