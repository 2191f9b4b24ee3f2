package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/outbound"
	"packhorse/engine/upstream"
	"packhorse/engine/webhook"
)

// hostileURLs are base URLs of upstreams and URLs of webhooks that would make the host connect to
// itself or to its network. PORT is that of a listener on the loopback interface; names under .test
// are known to a resolver of the test.
var hostileURLs = []string{
	"http://127.0.0.1:PORT", "http://127.1:PORT", "http://127.0.1:PORT", "http://2130706433:PORT",
	"http://0177.0.0.1:PORT", "http://017700000001:PORT",
	"http://0x7f000001:PORT", "http://0x7f.0.0.1:PORT", "http://0:PORT", "http://0.0.0.0:PORT", "http://127.8.9.10:PORT",
	"http://127.0.0.1.:PORT",
	"http://[::1]:PORT", "http://[::]:PORT", "http://[0:0:0:0:0:0:0:1]:PORT", "http://[::ffff:127.0.0.1]:PORT",
	"http://[::ffff:7f00:1]:PORT",
	"http://[::127.0.0.1]:PORT", "http://[64:ff9b::7f00:1]:PORT", "http://[64:ff9b:1::7f00:1]:PORT",
	"http://[2002:7f00:1::]:PORT",
	"http://[2001:0:7f00:1::1]:PORT", "http://[fe80::1%25lo]:PORT", "http://[fd00:ec2::254]:PORT", "http://10.0.0.1:PORT",
	"http://172.16.0.1:PORT",
	"http://192.168.0.1:PORT", "http://100.64.0.1:PORT", "http://169.254.169.254", "http://168.63.129.16",
	"http://224.0.0.1:PORT",
	"http://localhost:PORT", "http://LOCALHOST:PORT", "http://a.localhost:PORT", "http://localhost.:PORT",
	"http://private.test:PORT",
	"http://mapped.test:PORT", "http://both.test:PORT", "http://rebinding.test:PORT", "http://user:secret@127.0.0.1:PORT",
	"http://public.test@127.0.0.1:PORT",
	`http://public.test\@127.0.0.1:PORT`, "http://127.0.0.1:PORT#public.test", "http://１２７.0.0.1:PORT",
	"http://%6cocalhost:PORT", "http://127.0.0.1:+PORT",
	"file:///etc", "gopher://127.0.0.1:PORT", "http://redirecting.test:PORT", "http://sideways.test:PORT",
}

// world is a network of its own: a resolver, and a dialler that lets connections through to one
// listener, asked for as redirecting.test or sideways.test, whose answers redirect to forbidden
// addresses.
type world struct {
	port     string
	allowed  string // the listener's address, by which these two names go
	rebound  atomic.Int64
	dialled  atomic.Int64
	followed atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch host, _, _ := net.SplitHostPort(r.Host); host {
		case "redirecting.test":
			http.Redirect(rw, r, "http://127.0.0.1:"+w.port+"/", http.StatusTemporaryRedirect)
		case "sideways.test":
			http.Redirect(rw, r, "http://redirecting.test:"+w.port+"/followed", http.StatusFound)
		default:
			w.followed.Add(1)
		}
		if r.URL.Path == "/followed" {
			w.followed.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	w.allowed = server.Listener.Addr().String()
	_, w.port, _ = net.SplitHostPort(w.allowed)
	return w
}

// resolve maps the two names of the listener to a network reserved for documentation, so that dial
// can distinguish them.
func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	addrs := map[string][]string{
		"private.test": {"10.0.0.1"}, "mapped.test": {"::ffff:127.0.0.1"}, "both.test": {"93.184.216.34", "127.0.0.1"},
		"rebinding.test":   {"127.0.0.1"},
		"redirecting.test": {"192.0.2.1"}, "sideways.test": {"192.0.2.1"},
	}[host]
	if host == "rebinding.test" && w.rebound.Add(1) == 1 {
		addrs = []string{"93.184.216.34"} // whose connection fails
	}
	var list []netip.Addr
	for _, addr := range addrs {
		list = append(list, netip.MustParseAddr(addr))
	}
	if list == nil {
		return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
	}
	return list, nil
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch host, _, _ := net.SplitHostPort(address); host {
	case "192.0.2.1":
		return (&net.Dialer{}).DialContext(ctx, network, w.allowed)
	case "93.184.216.34":
		return nil, errors.New("unreachable")
	}
	w.dialled.Add(1)
	return nil, errors.New("this must not be dialled: " + address)
}

// TestHostileUpstreamsAndWebhooks gives each URL to an organization as the base of its upstreams
// and as its webhook: no connection is made.
func TestHostileUpstreamsAndWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	urls := make(map[string]string) // by organization
	for i, url := range hostileURLs {
		urls[fmt.Sprintf("org%d", i)] = strings.ReplaceAll(url, "PORT", w.port)
	}
	guard, err := outbound.ParseGuard([]string{"redirecting.test", "sideways.test"})
	if err != nil {
		t.Fatal(err)
	}
	client := guard.Client(outbound.Options{Resolve: w.resolve, Dial: w.dial})
	n := openNear(t, vfs.NewMem(), engine.Config{
		SecretKey: []byte(strings.Repeat("k", credential.KeySize)),
		Upstreams: engine.UpstreamConfig{
			Enabled: true, Client: client, Guard: guard,
			Bases:    func(org string) map[string]string { return map[string]string{"gitea": urls[org]} },
			Settings: upstream.Settings{RetryMin: time.Hour, RetryMax: time.Hour},
		},
		Webhooks: engine.WebhookConfig{
			Client: client, GiveUp: -1,
			Hooks: func(org string) []webhook.Hook { return []webhook.Hook{{URL: urls[org] + "/hook", Secret: "s"}} },
		},
	})
	refusedAtOnce := 0
	for org, url := range urls {
		actor := engine.Actor{Org: org, Subject: "eve"}
		base := &engine.UpstreamBase{Origin: upstream.Origin{Provider: "gitea", Owner: "o", Name: "n"}}
		_, err := n.host.CreateRepository(t.Context(), actor, engine.CreateRequest{Name: "synced", Upstream: base})
		switch {
		case errors.Is(err, engine.ErrInvalid):
			refusedAtOnce++
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the refusal tells the password: %v", url, err)
			}
		case err != nil:
			t.Errorf("%s: %v", url, err)
		}
		if _, err := n.host.CreateRepository(t.Context(), actor, engine.CreateRequest{Name: "pushed"}); err != nil {
			t.Fatal(err)
		}
		repo, err := n.host.Repository(t.Context(), org, "pushed")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upload(
			repo, actor, engine.CommitTarget{Branch: "main"}, change{path: "file", content: "text"},
		); err != nil {
			t.Fatal(err)
		}
	}
	if refusedAtOnce < 40 {
		t.Errorf("only %d upstreams were refused at once", refusedAtOnce)
	}
	for org, url := range urls {
		n.undelivered(org, url)
		n.unsynced(org, url)
	}
	if w.dialled.Load() != 0 || w.followed.Load() != 0 {
		t.Errorf("%d connections, and %d redirects were followed", w.dialled.Load(), w.followed.Load())
	}
}

// undelivered waits until the event of an organization is a dead letter.
func (n *near) undelivered(org, url string) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for letter, err := range n.host.Webhooks().Letters(n.t.Context(), org) {
			if err != nil {
				n.t.Fatal(err)
			}
			if letter.Error == "" || strings.Contains(letter.Error, "secret") {
				n.t.Errorf("%s: a dead letter says %q", url, letter.Error)
			}
			return
		}
	}
	n.t.Errorf("%s: the event is no dead letter", url)
}

// unsynced waits until the sync of an organization's repository has failed, if there is one.
func (n *near) unsynced(org, url string) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		repo, err := n.host.Repository(n.t.Context(), org, "synced")
		if errors.Is(err, engine.ErrNotFound) {
			return
		}
		if err != nil {
			n.t.Fatal(err)
		}
		if state, ok := repo.Sync(); ok && state.Phase == upstream.Failed {
			isPrivate := strings.Contains(url, "private.test")
			if state.LastError == "" || strings.Contains(state.LastError, "10.0.0.1") ||
				strings.Contains(state.LastError, "resolves to") ||
				isPrivate && !strings.Contains(state.LastError, "no address that may be connected to") {
				n.t.Errorf("%s: the sync says %q", url, state.LastError)
			}
			return
		}
	}
	n.t.Errorf("%s: the sync has not failed", url)
}
