package githttp_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// openAway serves the repository of a store that can be away, with a history whose tip is main and
// a commit behind it that is to be pushed.
func openAway(t *testing.T) (r *remote, store *odbtest.Away, tip, next string, pack []byte) {
	t.Helper()
	host := enginetest.OpenBehind(t, engine.Config{}, func(keys kv.Store) kv.Store {
		store = odbtest.NewAway(keys)
		return store
	})
	r = serveHost(t, host, githttp.Config{})
	r.repo = enginetest.Create(t, host, repoName)
	git := oracle.New(t)
	tip = git.Seed(oracle.History{Seed: 62, Commits: 12, Files: 5})
	git.Git("push", "--quiet", r.url(""), tip+":refs/heads/main")
	tree := git.Git("rev-parse", tip+"~1^{tree}")
	next = git.Git("commit-tree", "-p", tip, "-m", "next", tree)
	return r, store, tip, next, packOf(git, next, "^"+tip)
}

// answerOf serves a request. cut says that the answer is not whole.
func (r *remote) answerOf(
	method, target, version string, body []byte,
) (a *exchangetest.Answer, p problem.Problem, cut bool) {
	x := exchangetest.New(method, target, bytes.NewReader(body))
	if version != "" {
		x.RequestHeaders.Set("Git-Protocol", "version="+version)
	}
	service := target[strings.LastIndexByte(target, '/')+1:]
	x.RequestHeaders.Set("Content-Type", "application/x-"+service+"-request")
	err := r.handle(x)
	if err != nil {
		return nil, problem.From(err), false
	}
	if a, err = x.Finish(); err != nil {
		return a, problem.From(err), true
	}
	return a, problem.Problem{}, false
}

// TestStoreAway makes every kind of request of git while the store is away from its first, second,
// ... call on. Each is told so, by the status, in git's own form, or by a cut, and moves nothing.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	r, store, tip, next, pack := openAway(t)
	base := "/" + repoName + ".git/"
	push := func(capabilities string) []byte {
		return pushBody(capabilities, []string{tip + " " + next + " refs/heads/main"}, pack)
	}
	requests := []struct {
		name, method, target, version string
		body                          []byte
	}{
		{"advertise", http.MethodGet, base + "info/refs?service=git-upload-pack", "0", nil},
		{"advertise to push", http.MethodGet, base + "info/refs?service=git-receive-pack", "0", nil},
		{"capabilities", http.MethodGet, base + "info/refs?service=git-upload-pack", "2", nil},
		{"ls-refs", http.MethodPost, base + "git-upload-pack", "2", request("command=ls-refs", delim, "peel", flush)},
		{
			"fetch", http.MethodPost, base + "git-upload-pack", "2",
			request("command=fetch", delim, "ofs-delta", "want "+tip, "done", flush),
		},
		{
			"shallow fetch", http.MethodPost, base + "git-upload-pack", "2",
			request("command=fetch", delim, "ofs-delta", "deepen 1", "want "+tip, "done", flush),
		},
		{
			"old fetch", http.MethodPost, base + "git-upload-pack", "0",
			request("want "+tip+" side-band-64k ofs-delta", flush, "done"),
		},
		{"push", http.MethodPost, base + "git-receive-pack", "0", push(allCapabilities)},
		{"push without a report", http.MethodPost, base + "git-receive-pack", "0", push("agent=test")},
	}
	before := r.refs(refs.Main)
	for _, q := range requests {
		met := 0
		for depth, failed := 0, 1; failed > 0; depth++ {
			store.Leave(depth)
			a, p, cut := r.answerOf(q.method, q.target, q.version, q.body)
			if failed = store.Return(); failed == 0 {
				if p.Status != 0 {
					t.Errorf("%s: %+v", q.name, p)
				}
				break
			}
			met++
			told := p.Away && p.Status == http.StatusServiceUnavailable && p.RetryAfter > 0
			if !cut && a != nil {
				told = bytes.Contains(a.Body, []byte("the storage is not available"))
			}
			if !told {
				t.Errorf("%s, away after %d calls: %+v, %+v, cut %t", q.name, depth, p, a, cut)
			}
			if now := r.refs(refs.Main); !slices.Equal(now, before) {
				t.Fatalf("%s, away after %d calls: refs are %q", q.name, depth, now)
			}
		}
		if met == 0 {
			t.Errorf("%s never met a store that is away", q.name)
		}
		if strings.HasPrefix(q.name, "push") {
			r.moveBack(t, tip, next)
		}
	}
	if n := r.host.DamageCount(); n != 0 {
		t.Errorf("%d things count as damaged", n)
	}
}

// moveBack moves main from next, where it must be, to tip.
func (r *remote) moveBack(t *testing.T, tip, next string) {
	t.Helper()
	body := pushBody(allCapabilities, []string{next + " " + tip + " refs/heads/main"}, emptyPack(t))
	if got := readReport(t, r.post("git-receive-pack", 0, body), true); !slices.Equal(got.lines,
		[]string{"unpack ok", "ok refs/heads/main"}) {
		t.Fatalf("main is not at the pushed commit: %+v", got)
	}
}

// emptyPack is a pack without objects.
func emptyPack(t *testing.T) []byte {
	t.Helper()
	return packOf(oracle.New(t), "")
}

// TestOutcomeUnknown loses the answer to the batch of a push, applied or not. git is told that the
// refs may have moved, and not to use a key that it does not have.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, store, tip, next, pack := openAway(t)
			store.Lose(applied)
			body := pushBody(allCapabilities, []string{tip + " " + next + " refs/heads/main"}, pack)
			got := readReport(t, r.post("git-receive-pack", 0, body), true)
			told := strings.Join(append(got.lines, got.remarks...), "\n")
			if !strings.Contains(told, "not known whether the refs have moved") || strings.Contains(told, "Idempotency") {
				t.Errorf("told %s", told)
			}
			want := map[bool]string{true: next, false: tip}[applied] + " refs/heads/main"
			if now := r.refs(refs.Main); !slices.Equal(now, []string{want}) {
				t.Errorf("refs are %q, want %q", now, want)
			}
		})
	}
}
