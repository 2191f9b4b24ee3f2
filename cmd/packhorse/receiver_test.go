package main_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// hook configures a receiver for the organization of a server that has not been started yet.
func hook(t *testing.T, dir, url string) {
	t.Helper()
	folder := filepath.Join(dir, "orgs", packhorsetest.Org)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("webhooks:\n  - {url: %q, secret: hush, events: [push]}\n", url)
	if err := os.WriteFile(filepath.Join(folder, "org.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// journalEvent is an event as GET /repos/events has it.
type journalEvent struct {
	Sequence, Index    int
	Ref, Before, After string
}

// readJournal reads all events of a repository.
func readJournal(t *testing.T, get func(path string) reply) []journalEvent {
	t.Helper()
	var all []journalEvent
	for after, more := 0, true; more; {
		answer := get(fmt.Sprintf("/api/v1/repos/events?limit=1000&after=%d", after))
		answer.mustBe(t, http.StatusOK)
		var page struct {
			Events []journalEvent
			Next   int  `json:"next_after"`
			More   bool `json:"has_more"`
		}
		if err := json.Unmarshal(answer.body, &page); err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Events...)
		after, more = page.Next, page.More
	}
	return all
}

// receiver is a receiver of webhooks. It records the accepted events in the order of arrival.
type receiver struct {
	t *testing.T

	mu             sync.Mutex // guards the fields below
	refuse         *rand.Rand // refuses one in 500; nil: none
	first          []pushed   // the first delivery of each event
	heard          map[string]int
	taken, refused int
}

// newReceiver starts a receiver, which ends with the test, for the organization of servers below
// dir that have not been started yet.
func newReceiver(t *testing.T, dir string) *receiver {
	t.Helper()
	r := &receiver{t: t, heard: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	hook(t, dir, server.URL)
	return r
}

// pushed is an event in the form that a receiver gets.
type pushed struct {
	Repository         struct{ ID, URL string }
	Ref, Before, After string
	CustomerID         string `json:"customer_id"`
	PushedAt           string `json:"pushed_at"`

	delivery string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the server was killed while it sent
	}
	event := pushed{delivery: request.Header.Get("X-Pierre-Delivery")}
	stamp, signature, _ := strings.Cut(strings.TrimPrefix(request.Header.Get("X-Pierre-Signature"), "t="), ",sha256=")
	mac := hmac.New(sha256.New, []byte("hush"))
	mac.Write([]byte(stamp + "." + string(body)))
	switch {
	case json.Unmarshal(body, &event) != nil, request.Header.Get("X-Pierre-Event") != "push",
		hex.EncodeToString(mac.Sum(nil)) != signature:
		r.t.Errorf("heard %v: %s", request.Header, body)
	case event.Repository.URL != "r" || event.CustomerID != packhorsetest.Org:
		r.t.Errorf("heard %s", body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil && r.refuse.IntN(500) == 0 {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.taken++
	if r.heard[event.delivery]++; r.heard[event.delivery] == 1 {
		r.first = append(r.first, event)
	}
}

// await waits until all events of a repository were accepted, and returns them as get has them from
// its journal; data is the folder of a server. A refused event is sent again after seconds, and
// blocks its ref until then, so the time without any progress is bounded.
func (r *receiver) await(data string, get func(path string) reply) []journalEvent {
	r.t.Helper()
	journal := slices.DeleteFunc(readJournal(r.t, get), func(event journalEvent) bool {
		return strings.HasPrefix(event.Ref, "refs/notes/") // no webhook tells these
	})
	begun, at := time.Now(), r.missing(journal)
	for since := begun; at > 0; time.Sleep(10 * time.Millisecond) {
		if now := r.missing(journal); now != at {
			at, since = now, time.Now()
		} else if time.Since(since) > 3*time.Minute {
			r.check(journal)
			dead := packhorse(r.t, nil, "webhooks", "list", "--dead", "--data", data).out
			r.t.Fatalf("%d of %d events never arrived; left to do: %s", at, len(journal), dead)
		}
	}
	r.t.Logf("all had arrived %v after the last disturbance", time.Since(begun))
	return journal
}

// missing counts the events of the journal that have not been taken.
func (r *receiver) missing(journal []journalEvent) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(journal) - len(r.heard)
}

// check compares the accepted events with the journal.
func (r *receiver) check(journal []journalEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := map[string]int{} // place in the journal
	for i, event := range journal {
		at[fmt.Sprintf("%d.%d", event.Sequence, event.Index)] = i
	}
	last := map[string]int{}
	for _, event := range r.first {
		_, position, _ := strings.Cut(event.delivery, ".")
		i, found := at[position]
		if !found {
			r.t.Errorf("%s is not in the journal: %+v", event.delivery, event)
			continue
		}
		if want := journal[i]; event.Ref != want.Ref || event.Before != want.Before || event.After != want.After {
			r.t.Errorf("heard %+v, the journal says %+v", event, want)
		}
		if before, ok := last[event.Ref]; ok && i < before {
			r.t.Errorf("%s: %s came after event %d of the journal", event.Ref, event.delivery, journal[before].Sequence)
		}
		last[event.Ref] = i
		delete(at, position)
	}
	if len(at) > 0 {
		r.t.Errorf("%d events were never heard of", len(at))
	}
	r.t.Logf("%d events, %d deliveries taken, %d of them repeated, %d refused", len(journal), r.taken,
		r.taken-len(r.heard), r.refused)
}
