package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestTakeover kills that one of two servers which does all duties, while it hangs in a sync, and
// tells how long it took until the other one had maintenance, sent the event of a commit, and
// synced. PACKHORSE_TAKEOVER_ROUNDS is the number of kills; without it there are none.
func TestTakeover(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("PACKHORSE_TAKEOVER_ROUNDS"))
	if rounds == 0 {
		t.Skip("PACKHORSE_TAKEOVER_ROUNDS is not set")
	}
	stores, dir := newSharedStores(t), t.TempDir()
	heard, asked := make(chan time.Time, 1000), make(chan string, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		heard <- time.Now()
	}))
	defer receiver.Close()
	var hangs atomic.Pointer[string] // what of the upstream does, while there is such a thing
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		if path := hangs.Load(); path != nil && strings.Contains(r.URL.Path, *path) {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer far.Close()
	folder := filepath.Join(dir, "orgs", packhorsetest.Org)
	config := fmt.Sprintf("webhooks:\n  - {url: %q, secret: hush, events: [push]}\nupstreams: {gitea: %q}\n",
		receiver.URL, far.URL)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "org.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := write(t, "secret-key", strings.Repeat("k", 32))
	options := func(number int) packhorsetest.Options {
		o := stores.options(dir, number)
		o.Flags = append(o.Flags, "--upstream-allow", "127.0.0.1", "--secret-key", secret, "--log-level", "info")
		return o
	}
	does := func(s *packhorsetest.Server, duty string) {
		for begun := time.Now(); !strings.Contains(s.Output(), "duty="+duty); time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s is not taken over", duty)
			}
		}
	}
	number := 1
	victim := start(t, options(0))
	token := create(t, victim, "r")
	commit(t, victim, token, 1, 10)
	<-heard
	for round := range rounds {
		for _, duty := range []string{"maintenance", "webhooks", "upstreams", "scrub", "census"} {
			does(victim, duty)
		}
		other := start(t, options(number))
		number = 1 - number
		name := fmt.Sprint("u", round)
		path := "/" + name + ".git/"
		hangs.Store(&path)
		mine := mustToken(t, victim, name, "repo:write,git:write")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, victim.URL+"/api/v1/repos",
			strings.NewReader(fmt.Sprintf(`{"base_repo":{"provider":"gitea","owner":"ada","name":%q}}`, name)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+mine)
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusCreated {
			t.Fatalf("create %s: %+v, %v", name, response, err)
		}
		_ = response.Body.Close()
		awaitPath(asked, path)
		time.Sleep(time.Duration(round) * 331 * time.Millisecond) // at different times between two beats
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		hangs.Store(nil)
		commit(t, other, token, uint64(round)+2, 10)
		sent := time.Since(killed)
		awaitPath(asked, path)
		synced := time.Since(killed)
		hooked := (<-heard).Sub(killed)
		does(other, "maintenance")
		t.Logf("round %d: event after %v (commit %v), sync after %v, all duties after %v", round, hooked, sent, synced,
			time.Since(killed))
		victim = other
	}
}

// awaitPath waits for a request to a path.
func awaitPath(asked <-chan string, path string) {
	for at := ""; !strings.Contains(at, path); {
		at = <-asked
	}
}
