package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/outbound"
	"packhorse/engine/webhook"
	"packhorse/pack/object"
	"packhorse/refs"
)

// hearing is a receiver on the loopback that takes everything.
type hearing struct {
	server *httptest.Server
	conns  atomic.Int64

	mu     sync.Mutex
	events []string // guarded by mu: "ref before after"
}

func newHearing(t *testing.T, answer http.HandlerFunc) *hearing {
	t.Helper()
	h := &hearing{}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event webhook.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.events = append(h.events, event.Ref+" "+event.Before+" "+event.After)
		h.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	h.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			h.conns.Add(1)
		}
	}
	h.server.Start()
	t.Cleanup(h.server.Close)
	return h
}

func (h *hearing) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// hooked returns the settings of a host that delivers to URLs, and may connect to the listed
// targets.
func hooked(t *testing.T, allow []string, urls ...string) engine.Config {
	t.Helper()
	guard, err := outbound.ParseGuard(allow)
	must(t, err)
	return engine.Config{Webhooks: engine.WebhookConfig{Guard: guard, Hooks: func(org string) []webhook.Hook {
		var hooks []webhook.Hook
		for _, url := range urls {
			if org == enginetest.Org {
				hooks = append(hooks, webhook.Hook{URL: url, Secret: "secret"})
			}
		}
		return hooks
	}}}
}

// eventually waits for something that other goroutines do.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Changes of branches and tags in all namespaces are events, however they were made; other changes
// are not.
func TestWebhookEvents(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	fs := vfs.NewMem()
	config := hooked(t, []string{"127.0.0.1"}, receiver.server.URL)
	host, shut := enginetest.OpenOn(t, fs, config)
	repo := enginetest.Create(t, host, "r")
	ctx := context.Background()
	actor := engine.Actor{Org: enginetest.Org, Subject: "s", Receipt: &refs.Receipt{
		Key: refs.ReceiptKey{Org: enginetest.Org, Repo: "r", Endpoint: "commit-pack", Key: "k"},
	}}
	details := engine.CommitDetails{Message: "m", Author: thor}
	first, err := upload(repo, actor, main, change{path: "f", content: "1"})
	must(t, err)
	again, err := upload(repo, actor, main, change{path: "f", content: "1"}) // a replay
	must(t, err)
	if again != first {
		t.Errorf("replayed %+v, first %+v", again, first)
	}
	second, err := upload(repo, acme, main, change{path: "f", content: "2"})
	must(t, err)
	steps := []func() error{
		func() error {
			_, err := repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: "b", Base: branchNamed("main")})
			return err
		},
		func() error {
			_, err := repo.CreateBranch(ctx, acme,
				engine.CreateBranchRequest{Branch: "e", Namespace: refs.Ephemeral, Base: branchNamed("main")})
			return err
		},
		func() error { _, err := repo.CreateTag(ctx, acme, refs.Main, "t", named(second.New)); return err },
		func() error {
			_, err := repo.AddNote(ctx, acme, engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(second.New)}, "note", false)
			return err
		},
		func() error {
			request := engine.RestoreRequest{Target: main, Details: details, Commit: named(first.New)}
			_, err := repo.RestoreCommit(ctx, acme, request)
			return err
		},
		func() error {
			_, err := upload(repo, acme, engine.CommitTarget{Branch: "b"}, change{path: "g", content: "3"})
			return err
		},
		func() error {
			_, err := repo.Merge(ctx, acme, engine.MergeRequest{
				Source: branchNamed("b"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.PreferForward,
				Details: details,
			})
			return err
		},
		func() error { _, err := repo.DeleteBranch(ctx, acme, refs.Ephemeral, "e"); return err },
		func() error { _, err := repo.DeleteTag(ctx, acme, refs.Main, "t"); return err },
		func() error { return pushRef(ctx, repo, "refs/heads/pushed", first.New, false) },
		func() error { return pushRef(ctx, repo, "refs/heads/imported", first.New, true) },
		func() error { return pushRef(ctx, repo, "refs/changes/1", first.New, false) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	_, err = host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "r"}})
	must(t, err)

	page, err := repo.Events(ctx, engine.EventsRequest{Limit: 100})
	must(t, err)
	var want []string
	for _, entry := range page.Entries {
		if entry.Cause != "import" && entry.Cause != "note" && entry.Ref != "refs/changes/1" {
			want = append(want, fmt.Sprintf("%s %s %s", entry.Ref, entry.Before, entry.After))
		}
	}
	if len(want) != 11 || len(page.Entries) != 14 {
		t.Fatalf("the journal holds %d events, %d to be told", len(page.Entries), len(want))
	}
	eventually(t, "all is told", func() bool { return len(receiver.heard()) >= len(want) && drained(t, host) })
	shut()
	host, shut = enginetest.OpenOn(t, fs, config)
	defer shut()
	if !drained(t, host) {
		t.Error("something was left to do")
	}
	got := receiver.heard()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// drained reports whether all known events have been delivered.
func drained(t *testing.T, host *engine.Host) bool {
	t.Helper()
	for status, err := range host.Webhooks().List(t.Context()) {
		must(t, err)
		if status.Parked+status.Dead > 0 || status.Behind > 0 {
			return false
		}
	}
	return true
}

// pushRef points a ref to a stored commit.
func pushRef(ctx context.Context, repo *engine.Repository, name string, id object.ID, imported bool) error {
	p, err := repo.Receive(ctx, acme, engine.PushRequest{
		Commands: []engine.Command{{Name: name, New: id}}, Pack: bytes.NewReader(emptyPack), Import: imported,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err != nil {
		return err
	}
	return result.Commands[0].Err
}

// emptyPack holds no objects.
var emptyPack = []byte(
	"PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e",
)

// A hook is not sent where the operator has not allowed it, in whatever way its URL says so, and no
// redirect is followed.
func TestWebhookRefused(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	redirecting := newHearing(t, func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusTemporaryRedirect
		if r.URL.Path == "/303" {
			status = http.StatusSeeOther
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	})
	_, port, err := net.SplitHostPort(receiver.server.Listener.Addr().String())
	must(t, err)
	tests := map[string]struct {
		url   string
		allow []string
		want  string
	}{
		"loopback":      {url: "http://127.0.0.1:" + port + "/", want: "refused"},
		"by name":       {url: "http://localhost:" + port + "/", want: "refused"},
		"IPv6":          {url: "http://[::ffff:127.0.0.1]:" + port + "/", want: "refused"},
		"a number":      {url: "http://2130706433:" + port + "/", want: "refused"},
		"hexadecimal":   {url: "http://0x7f000001:" + port + "/", want: "refused"},
		"another scope": {url: "http://127.0.0.1:" + port + "/", allow: []string{"10.0.0.0/8"}, want: "refused"},
		"metadata":      {url: "http://169.254.169.254/latest/", want: "refused"},
		"a user":        {url: "http://u:p@127.0.0.1:" + port + "/", allow: []string{"127.0.0.1"}, want: "refused"},
		"a redirect":    {url: redirecting.server.URL + "/307", allow: []string{"127.0.0.1"}, want: "redirects"},
		"another one":   {url: redirecting.server.URL + "/303", allow: []string{"127.0.0.1"}, want: "redirects"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := hooked(t, test.allow, test.url)
			config.Webhooks.GiveUp = -1 // one attempt
			host, shut := enginetest.OpenOn(t, vfs.NewMem(), config)
			defer shut()
			_, err := upload(enginetest.Create(t, host, "r"), acme, main, change{path: "f", content: "1"})
			must(t, err)
			var last string
			eventually(t, "the attempt has failed", func() bool {
				for status, err := range host.Webhooks().List(t.Context()) {
					must(t, err)
					last = status.LastError
				}
				return last != ""
			})
			if !strings.Contains(last, test.want) {
				t.Errorf("the error is %q", last)
			}
		})
	}
	t.Cleanup(func() {
		if got := receiver.conns.Load(); got != 0 {
			t.Errorf("%d connections were made", got)
		}
		if got := redirecting.heard(); len(got) != 2 {
			t.Errorf("the redirecting receiver was asked %d times", len(got))
		}
	})
}

// A receiver that closes connections between events is no failure.
func TestWebhookKeptConnection(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), hooked(t, []string{"127.0.0.1"}, receiver.server.URL))
	defer shut()
	repo := enginetest.Create(t, host, "r")
	const events = 20
	for n := range events {
		_, err := upload(repo, acme, main, change{path: "f", content: fmt.Sprint(n)})
		must(t, err)
		eventually(t, "the event is taken", func() bool { return host.Webhooks().Stats().Delivered == uint64(n+1) })
		receiver.server.CloseClientConnections()
	}
	if stats := host.Webhooks().Stats(); stats.Failed != 0 {
		t.Errorf("%+v", stats)
	}
}

// Receivers are not read to their end, nor waited for for ever: only the status of their answers
// counts.
func TestWebhookEndlessAnswer(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), hooked(t, []string{"127.0.0.0/8"}, receiver.server.URL))
	defer shut()
	_, err := upload(enginetest.Create(t, host, "r"), acme, main, change{path: "f", content: "1"})
	must(t, err)
	eventually(t, "the event is taken", func() bool { return host.Webhooks().Stats().Delivered == 1 && drained(t, host) })
}
