package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// TestStoreAway makes every call of a client, first while the store is away, from its first call
// on, from its second one, and so on: that is 503 with Retry-After, or an answer that is cut, and
// changes nothing. Once the store is back, the same call succeeds.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	var store *odbtest.Away
	host := enginetest.OpenBehind(t, engine.Config{SecretKey: secretKey}, func(keys kv.Store) kv.Store {
		store = odbtest.NewAway(keys)
		return store
	})
	w := newWritableOn(t, host)
	first := w.contracted()
	values := answered{"FIRST": first}
	met := 0
	for _, c := range contracts() {
		method, _, _ := c.split()
		made := values.made(c)
		var got written
		for depth, failed := 0, 1; failed > 0; depth++ {
			if c.status/100 == 2 {
				store.Leave(depth)
			}
			var whole bool
			got, whole = w.try(made)
			if failed = store.Return(); failed == 0 {
				break
			}
			met++
			told := got.status == http.StatusServiceUnavailable && got.retry == "2" &&
				(method == http.MethodHead || bytes.Contains(got.body, []byte("the storage is not available")))
			if whole && !told {
				t.Errorf("%s, away after %d calls: %d, Retry-After %q: %s", made.route, depth, got.status, got.retry, got.body)
			}
		}
		if got.status != c.status {
			t.Fatalf("%s %s: status %d, want %d: %s", made.route, made.body, got.status, c.status, got.body)
		}
		values.keep(t, c, got.body)
	}
	if met < 200 {
		t.Errorf("only %d requests met a store that is away", met)
	}
	if n := host.DamageCount(); n != 0 {
		t.Errorf("%d things count as damaged", n)
	}
}

// try makes a call, and reports whether the answer is whole.
func (w *writable) try(c call) (got written, whole bool) {
	w.t.Helper()
	method, path, _ := strings.Cut(c.route, " ")
	request, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.address+path, strings.NewReader(c.body))
	must(err)
	request.Header.Set("Authorization", "Bearer "+w.token(c.repo, nil))
	request.Header.Set("Content-Type", "application/x-ndjson")
	if _, service, ok := strings.Cut(path, ".git/"); ok {
		request.Header.Set("Content-Type", "application/x-"+service+"-request")
	}
	response, err := w.client.Do(request)
	if errors.Is(err, io.EOF) { // cut before its header was sent
		return written{}, false
	}
	must(err)
	defer response.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(response.Body)
	if err == nil {
		w.hold(request, c.body, response, body)
	}
	return written{
		response.StatusCode, body, "", response.Header.Get("Retry-After"), response.Header.Get("X-Request-Id"),
	}, err == nil
}

// TestStoreAwayIsTold meets a store that is away before an answer, in the midst of one, and where
// the answer reports it in a form of its own: each counts as a 503, and is logged as a warning.
func TestStoreAwayIsTold(t *testing.T) {
	t.Parallel()
	for kind, err := range map[string]error{"unavailable": kv.ErrUnavailable, "unknown": kv.ErrUnknown} {
		err = fmt.Errorf("read head: %w", err)
		for name, handler := range map[string]api.Handler{
			"before the answer": func(exchange.Exchange, *auth.Grant) error { return err },
			"in the answer": func(x exchange.Exchange, _ *auth.Grant) error {
				x.Stream(200, "text/plain", func(_ context.Context, w io.Writer) error {
					_, _ = io.WriteString(w, half)
					return err
				})
				return nil
			},
			"as a report": func(x exchange.Exchange, _ *auth.Grant) error {
				x.Failed(err)
				x.Respond(200, "text/plain", []byte("ng refs/heads/main"))
				return nil
			},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				f := serve(t, map[string]api.Handler{"GET /x": handler}, nil)
				c := f.dial(t)
				c.send("GET /x HTTP/1.1\nHost: x\nAuthorization: " + token("team/r", "git:read") + "\n\n")
				c.receive(http.MethodGet)
				c = f.dial(t)
				c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
				a := c.receive(http.MethodGet)
				for _, count := range []string{
					`packhorse_http_requests_total{method="GET",route="/x",status="503"} 1`, "packhorse_corrupt_answers_total 0",
				} {
					if !strings.Contains(a.body, count+"\n") {
						t.Errorf("the metrics lack %q", count)
					}
				}
				warned := 0
				for said := range strings.Lines(f.log.String()) {
					if strings.Contains(said, "level=ERROR") {
						t.Errorf("logged %q", said)
					}
					if strings.Contains(said, `level=WARN msg="store unavailable" request_id=`) {
						warned++
					}
				}
				if warned != 1 {
					t.Errorf("%d warnings in %s", warned, f.log.String())
				}
			})
		}
	}
}

// TestReadyWithoutStore asks a server whose store goes away and comes back.
func TestReadyWithoutStore(t *testing.T) {
	t.Parallel()
	var away atomic.Pointer[error]
	f := serve(t, nil, func(c *api.Config) {
		c.Ready = func() error {
			if err := away.Load(); err != nil {
				return *err
			}
			return nil
		}
	})
	for err, want := range map[error]string{
		fmt.Errorf("at 10.0.0.7: %w", kv.ErrUnavailable): "not ready: the storage is not available, try again\n",
		errors.New("at 10.0.0.7: broken"):                "not ready\n",
	} {
		away.Store(&err)
		if status, text := readiness(f); status != http.StatusServiceUnavailable || text != want {
			t.Errorf("%v: %d %q", err, status, text)
		}
		away.Store(nil)
		if status, text := readiness(f); status != http.StatusOK || text != "ready\n" {
			t.Errorf("afterwards: %d %q", status, text)
		}
	}
}
