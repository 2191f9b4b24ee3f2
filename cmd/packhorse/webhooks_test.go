package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestWebhooks lists dead letters and sends them again, through the server and in a folder that
// none has open.
func TestWebhooks(t *testing.T) {
	t.Parallel()
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
	dir := t.TempDir()
	hook(t, dir, receiver.URL)
	options := packhorsetest.Options{
		Dir: dir, Flags: []string{
			"--upstream-allow", "localhost,127.0.0.1", "--webhook-give-up", "0s", "--log-level", "error",
			"--admin-listen", "127.0.0.1:0",
		},
	}
	server := start(t, options)
	token := create(t, server, "r")
	commit(t, server, token, 1, 1)
	commit(t, server, token, 2, 1)

	data := filepath.Join(dir, "data")
	hooks := func(command ...string) string {
		t.Helper()
		got := packhorse(t, nil, append([]string{"webhooks"}, append(command, "--data", data)...)...)
		if got.status != 0 {
			t.Fatalf("webhooks %v: %+v", command, got)
		}
		return got.out
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s; %s", what, hooks("list", "--dead"))
			}
		}
	}
	name := packhorsetest.Org + " " + receiver.URL + ": "
	until("both are dead", func() bool {
		return strings.HasPrefix(hooks("list"), name+"0 parked, 0 transactions behind, 2 dead, last error: ")
	})
	if got := hooks("list", "--org", "nobody"); got != "" {
		t.Errorf("another organization's: %s", got)
	}
	lines := strings.Split(strings.TrimSpace(hooks("list", "--dead", "--json")), "\n")
	if len(lines) != 3 {
		t.Fatalf("lines %q", lines)
	}
	var letter struct {
		ID, URL, Error string
		Attempts       int
		Event          struct{ Ref string }
	}
	if err := json.Unmarshal([]byte(lines[2]), &letter); err != nil || letter.Event.Ref != "refs/heads/main" ||
		letter.Attempts != 1 ||
		letter.URL != receiver.URL || letter.Error != "the receiver answered 500 Internal Server Error" {
		t.Errorf("%s: %v", lines[2], err)
	}
	if got := hooks("list", "--dead"); !strings.Contains(got, "\ndead "+letter.ID+" to ") ||
		!strings.Contains(got, " of r, 1 attempt, died ") {
		t.Errorf("listed %s", got)
	}

	for _, other := range []struct{ flags, want string }{
		{"--url https://other.example/", "no webhook https://other.example/ has had an event: webhooks list prints those that have"},
		{"--org bogus", "no webhook of organization bogus has had an event"},
		{"--org bogus --url " + receiver.URL, "no webhook " + receiver.URL + " of organization bogus has had an event"},
	} {
		got := packhorse(t, nil, slices.Concat([]string{"webhooks", "retry", "--data", data}, strings.Fields(other.flags))...)
		if got.status != 1 || got.out != "" || !strings.Contains(got.errOut, other.want) {
			t.Errorf("%s: %+v", other.flags, got)
		}
	}
	if got := packhorse(t, nil, "webhooks", "retry", "bogus", "--data", data); got.status != 1 ||
		!strings.Contains(got.errOut, "there is no dead letter bogus: webhooks list --dead prints their IDs") {
		t.Errorf("of an unknown ID: %+v", got)
	}
	broken.Store(false)
	if got := hooks("retry", letter.ID); got != "1 dead letter will be sent again\n" {
		t.Errorf("one of them: %s", got)
	}
	until("it is taken", func() bool {
		return taken.Load() == 1 && strings.HasPrefix(hooks("list"), name+"0 parked, 0 transactions behind, 1 dead")
	})
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := hooks("retry"); got != "1 dead letter will be sent again\n" {
		t.Errorf("without a server: %s", got)
	}
	if got := hooks("list"); !strings.HasPrefix(got, name+"1 parked, 0 transactions behind, 0 dead") ||
		strings.Contains(got, "not configured") {
		t.Errorf("without a server: %s", got)
	}
	start(t, options)
	until("the other one is taken", func() bool {
		return taken.Load() == 2 && hooks("list") == name+"0 parked, 0 transactions behind, 0 dead\n"
	})
	if got := hooks("retry", "--org", packhorsetest.Org); got != "0 dead letters will be sent again\n" {
		t.Errorf("of a webhook without dead letters: %s", got)
	}
}

// A malformed --upstream-allow is refused at the start.
func TestUpstreamAllow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := packhorse(t, nil, "serve", "--data", filepath.Join(dir, "data"), "--orgs", dir, "--listen", "127.0.0.1:0",
		"--upstream-allow", "10.0.0.0/99")
	if got.status != 2 || !strings.Contains(got.errOut, "10.0.0.0/99") {
		t.Errorf("%+v", got)
	}
}
