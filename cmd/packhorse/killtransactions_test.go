package main_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestKillTransactions kills the server at random instants of transactions over three repositories,
// each of which commits one file to all of them: afterwards all three have the same number of
// commits, as many as were acknowledged, or one more. Readers look at all of them meanwhile: what
// one repository has shown of a transaction, the others show from then on, also after the kill. It
// is skipped unless PACKHORSE_TRANSACTION_ROUNDS sets the number of kills.
func TestKillTransactions(t *testing.T) {
	t.Parallel()
	rounds := fromEnvironment(t, "PACKHORSE_TRANSACTION_ROUNDS", 0)
	if rounds == 0 {
		t.Skip("PACKHORSE_TRANSACTION_ROUNDS is not set")
	}
	eachStore(t, func(t *testing.T, stores *sharedStores) {
		t.Helper()
		s := &transactionStorm{killing: newKilling(t, stores, 7, uint64(rounds)), repos: []string{"t0", "t1", "t2"}}
		s.start()
		s.mint()
		for _, repo := range s.repos {
			s.call(repo, http.MethodPost, "/api/v1/repos", "", nil).mustBe(t, http.StatusCreated)
		}
		lost := 0
		for range rounds {
			if s.round() {
				lost++
			}
		}
		t.Logf("%d kills, %d transactions, %d had happened without an answer; %d reads", rounds, s.asked, lost, s.reads.Load())
		if s.reads.Load() == 0 {
			t.Error("nobody has read")
		}
		s.stop()
	})
}

// transactionStorm sends one transaction after the other.
type transactionStorm struct {
	*killing
	repos  []string
	tokens map[string]string
	asked  int // the number of the last transaction that was asked for
	done   int // and of the last that was acknowledged

	seen  atomic.Int64 // the last transaction that any repository has shown
	reads atomic.Int64
}

// mint gets a token for each repository.
func (s *transactionStorm) mint() {
	s.t.Helper()
	s.tokens = make(map[string]string)
	for _, repo := range s.repos {
		var err error
		s.tokens[repo], err = s.server.Token(s.t.Context(), repo, "--scope", "git:write,repo:write", "--ttl", "24h")
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *transactionStorm) call(repo, method, path, key string, body []byte) reply {
	return send(s.t.Context(), method, s.server.URL+path, s.tokens[repo], key, body)
}

// send makes a transaction of a number: small ones, and now and then one that goes into files.
func (s *transactionStorm) send(number int) reply {
	var operations, contents []string
	content := strconv.Itoa(number)
	if number%5 == 0 {
		content = strings.Repeat(content, 300_000)
	}
	for _, repo := range s.repos {
		operations = append(operations, fmt.Sprintf(
			`{"repo":%q,"auth":{"token":%q},"commit":{"target_branch":"main","commit_message":"%d",`+
				`"author":{"name":"K","email":"k@example.com"},"files":[{"path":"f%d","content_id":%[1]q}]}}`,
			repo, s.tokens[repo], number, number%50))
		contents = append(contents, fmt.Sprintf(`{"blob_chunk":{"content_id":%q,"data":%q,"eof":true}}`, repo,
			base64.StdEncoding.EncodeToString([]byte(repo+content))))
	}
	body := fmt.Sprintf("{\"transaction\":{\"operations\":[%s]}}\n%s\n", strings.Join(operations, ","),
		strings.Join(contents, "\n"))
	return s.call("t0", http.MethodPost, "/api/v1/transactions", fmt.Sprint("k", number), []byte(body))
}

// round sends transactions until the server dies, restarts it, and looks. It reports whether the
// last one had happened without an answer; it is sent again in any case.
func (s *transactionStorm) round() (lost bool) {
	s.t.Helper()
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			s.asked++
			got := s.send(s.asked)
			if got.err != nil {
				return
			}
			got.mustBe(s.t, http.StatusOK)
			s.done = s.asked
		}
	})
	for reader := range s.repos {
		ended.Go(func() { s.read(reader) })
	}
	time.Sleep(time.Duration(50+s.random.IntN(300)) * time.Millisecond)
	s.kill()
	ended.Wait()
	s.start()
	at := s.last(s.repos[0])
	for _, repo := range s.repos[1:] {
		if other := s.last(repo); other != at {
			s.t.Errorf("%s is at transaction %d, and %s at %d", s.repos[0], at, repo, other)
		}
	}
	if at != s.done && at != s.asked {
		s.t.Errorf("the last transaction is %d, acknowledged %d, asked for %d", at, s.done, s.asked)
	}
	s.send(s.asked).mustBe(s.t, http.StatusOK)
	s.done = s.asked
	for _, repo := range s.repos {
		if last := s.last(repo); last != s.asked {
			s.t.Errorf("%s is at transaction %d after %d was sent again", repo, last, s.asked)
		}
	}
	return at == s.asked
}

// read reads the repositories in turn, beginning with one of them, until the server dies.
func (s *transactionStorm) read(first int) {
	for n := first; ; n++ {
		repo, seen := s.repos[n%len(s.repos)], s.seen.Load()
		got := s.call(repo, http.MethodGet, "/api/v1/repos/commits?limit=1", "", nil)
		var page struct{ Commits []struct{ Message string } }
		if got.err != nil {
			return
		}
		at := 0
		err := json.Unmarshal(got.body, &page)
		if err == nil && got.status != http.StatusNotFound && len(page.Commits) == 1 { // else there is no commit
			at, err = strconv.Atoi(strings.TrimSpace(page.Commits[0].Message))
		}
		if err != nil || int64(at) < seen {
			s.t.Errorf("%s is at transaction %d where %d had been seen before: %v: %s", repo, at, seen, err, got.body)
			return
		}
		s.reads.Add(1)
		for old := seen; old < int64(at) && !s.seen.CompareAndSwap(old, int64(at)); {
			old = s.seen.Load()
		}
	}
}

// last is the number of the last transaction in a repository, 0 for none; it checks that its commit
// is on top of the one before.
func (s *transactionStorm) last(repo string) int {
	s.t.Helper()
	got := s.call(repo, http.MethodGet, "/api/v1/repos/commits?limit=2", "", nil)
	var page struct{ Commits []struct{ Message string } }
	if got.status == http.StatusNotFound {
		return 0
	}
	if err := json.Unmarshal(got.body, &page); got.err != nil || err != nil || len(page.Commits) == 0 {
		s.t.Fatalf("%v, %v: %s", got.err, err, got.body)
	}
	number := func(i int) int {
		n, err := strconv.Atoi(strings.TrimSpace(page.Commits[i].Message))
		if err != nil {
			s.t.Error(err)
		}
		return n
	}
	if len(page.Commits) == 2 && number(1) != number(0)-1 {
		s.t.Errorf("%s has transaction %d on top of %d", repo, number(0), number(1))
	}
	return number(0)
}
