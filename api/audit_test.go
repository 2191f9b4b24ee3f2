package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/contract"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// audited is a server with an audit log.
type audited struct {
	*writable
	writer *audit.Writer
	path   string
	seen   int // lines that were taken
}

func newAudited(t *testing.T, edits ...func(*api.Config)) *audited {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	writer, err := audit.Open(audit.Options{To: path, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	t.Cleanup(func() { _ = writer.Close(t.Context()) })
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{
		SecretKey: secretKey, Refs: refs.Options{Committed: writer.Committed},
	})
	t.Cleanup(shut)
	git := githttp.New(githttp.Config{Host: host, Agent: "packhorse/test"})
	a := &audited{writer: writer, path: path}
	a.writable = newWritableOn(t, host, append([]func(*api.Config){func(c *api.Config) {
		c.Audit = writer
		c.Git = api.Git{Serve: git.Serve, Refuse: githttp.Refuse}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}}, edits...)...)
	a.take(t, 2)
	return a
}

// text returns the log. The record of a request is in the queue before its answer is complete, and
// Reopen writes the queue.
func (a *audited) text(t *testing.T) []byte {
	t.Helper()
	must(a.writer.Reopen())
	text, err := os.ReadFile(a.path)
	must(err)
	return text
}

// take returns the next records, of which there are count.
func (a *audited) take(t *testing.T, count int) []audit.Record {
	t.Helper()
	lines := bytes.SplitAfter(a.text(t), []byte{'\n'})
	lines = lines[a.seen : len(lines)-1]
	records := make([]audit.Record, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal(line, &records[i]); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
	}
	if len(lines) != count {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), count, bytes.Join(lines, nil))
	}
	a.seen += count
	return records
}

// TestAuditOperations makes calls of every operation, on both paths: each leaves one record, with
// the id of the operation, the repository, the token and the status, and with the changes of refs
// that the journal tells.
func TestAuditOperations(t *testing.T) {
	t.Parallel()
	ids := make(map[string]string)
	for _, o := range contract.All() {
		id := o.ID
		if o.Twin != "" {
			id = o.Twin
		}
		ids[o.Method+" "+o.Path] = id
	}
	a := newAudited(t)
	first := a.contracted()
	a.take(t, 3)
	values := answered{"FIRST": first, "CREDENTIAL": "none"}
	const repo = "own/er"
	moves := 0
	recorded := make(map[string]bool)
	for _, c := range contracts() {
		c.route, c.body = values.fill(c.route), values.fill(c.body)
		method, base, path := c.split()
		got := a.do(values.made(c), nil)
		values.keep(t, c, got.body)
		template, _, _ := strings.Cut(path, "?")
		template = strings.NewReplacer(values["CREDENTIAL"], "{id}", "release%2Fv1", "{name}").Replace(template)
		want := ids[method+" "+base+template]
		r := a.take(t, 1)[0]
		if want == "" || r.Action != want || r.Status != got.status || r.Via != audit.HTTP {
			t.Errorf("%s: %+v, want the action %q and the status %d", c.route, r, want, got.status)
		}
		if r.Organization != "acme" || r.Repository != repo || r.Subject != "ci" || r.KeyID != "k" || len(r.TokenHash) != 32 {
			t.Errorf("%s: %+v", c.route, r)
		}
		if r.Error == "" != (got.status < 400) || r.Address != "127.0.0.1" || r.ReceivedBytes != int64(len(c.body)) ||
			method != http.MethodHead && r.SentBytes != int64(len(got.body)) {
			t.Errorf("%s: %+v", c.route, r)
		}
		recorded[method+" "+base+template] = true
		moves += a.agrees(t, repo, r)
	}
	if moves < 20 {
		t.Errorf("only %d changes of refs", moves)
	}
	for route, id := range ids { // the other path of each call: refusals are enough
		if recorded[route] {
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{n}", "own%2Fer", "{id}", "none", "{name}", "none").Replace(path)
		a.ask(t, method, path, token(repo), "", nil)
		if r := a.take(t, 1)[0]; r.Action != id || r.Status/100 != 4 || r.Repository != repo {
			t.Errorf("%s: %+v, want the action %s", route, r, id)
		}
	}
}

// agrees compares the changes in a record with the journal of the repository, and returns how many
// there are.
func (a *audited) agrees(t *testing.T, repo string, r audit.Record) int {
	t.Helper()
	if len(r.Changes) == 0 {
		return 0
	}
	page := a.do(call{
		fmt.Sprintf("GET /api/v1/repos/events?after=%d&limit=100", r.Changes[0].Sequence-1), repo, "",
	}, nil)
	page.done(t)
	a.take(t, 1)
	var told struct {
		Events []struct {
			Sequence uint64
			Ref      string
			Before   string
			After    string
		}
	}
	if err := json.Unmarshal(page.body, &told); err != nil {
		t.Fatal(err)
	}
	for i, change := range r.Changes {
		e := told.Events[i]
		if e.Sequence != change.Sequence || e.Ref != change.Ref || e.Before != change.Old.String() ||
			e.After != change.New.String() {
			t.Errorf("%s: %+v, and the journal tells %+v", r.Action, change, e)
		}
	}
	return len(r.Changes)
}

// TestAuditRefusals refuses requests at every step: each leaves one record with its status and the
// kind of the error, and nothing that is secret. Health leaves none.
func TestAuditRefusals(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	a := newAudited(t, func(c *api.Config) {
		c.Writable = func() error {
			if away.Load() {
				return kv.ErrUnavailable
			}
			return nil
		}
	})
	read, write, other := token("r", "git:read"), token("r", "git:write", "repo:write"), token("other", "git:write")
	forged := write[:len(write)-20] + strings.Repeat("A", 20)
	const password = "hunter2-hunter2"
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+password))
	const branch = `{"target_branch":"b","base_branch":"main"}`
	for name, test := range map[string]struct {
		target, token, body string
		header              map[string]string
		want                audit.Record
	}{
		"no token": {"GET " + v1 + "/branches", "", "", nil, audit.Record{
			Action: "branches", Status: 401, Error: code.TokenMissing,
		}},
		"no token, in the other family": {"GET /api/repos/a%2Fb/branches", "", "", nil, audit.Record{
			Action: "branches", Repository: "a/b", Status: 401, Error: code.TokenMissing,
		}},
		"a forged token": {"GET " + v1 + "/branches", forged, "", nil, audit.Record{
			Action: "branches", Status: 401, Error: code.TokenInvalid, TokenHash: auth.TokenHash(forged),
		}},
		"a password": {"GET /r.git/info/refs?service=git-upload-pack", basic, "", nil, audit.Record{
			Action: "gitLsRefs", Repository: "r", Status: 401, Error: code.TokenInvalid,
		}},
		"no scope": {"POST " + v1 + "/branches/create", read, branch, nil, audit.Record{
			Action: "createBranch", Repository: "r", Status: 401, Error: code.ScopeMissing,
		}},
		"no scope, in the other family": {"POST /api/repos/r/branches/create", read, branch, nil, audit.Record{
			Action: "createBranch", Repository: "r", Status: 403, Error: code.ScopeMissing,
		}},
		"another repository": {"GET /api/repos/r/branches", other, "", nil, audit.Record{
			Action: "branches", Repository: "r", Status: 403, Error: code.WrongRepository,
		}},
		"another repository of git": {"POST /r.git/git-receive-pack", other, "", nil, audit.Record{
			Action: "gitPush", Repository: "r", Status: 403, Error: code.WrongRepository,
		}},
		"a policy": {"POST " + v1 + "/branches/create", "Bearer " + a.token("r", []string{"no-push"}), branch, nil, audit.Record{
			Action: "createBranch", Repository: "r", Status: 403, Error: code.PolicyDenied,
		}},
		"no path": {"GET /nowhere", write, "", nil, audit.Record{
			Action: audit.Unrouted, TokenHash: auth.TokenHash(write), Status: 404, Error: code.EndpointNotFound,
		}},
		"no repository": {"GET " + v1 + "/branches", other, "", nil, audit.Record{
			Action: "branches", Repository: "other", Status: 404, Error: code.RepositoryNotFound,
		}},
		"no method": {"DELETE /healthz", "", "", nil, audit.Record{
			Action: audit.Unrouted, Status: 405, Error: code.MethodNotAllowed,
		}},
		"a body that is too large": {"POST " + v1 + "/branches/create", write, strings.Repeat(" ", 2<<20), nil, audit.Record{
			Action: "createBranch", Repository: "r", Status: 413, Error: code.BodyTooLarge,
		}},
		"LFS": {"POST /r.git/info/lfs/objects/batch", "", "{}", nil, audit.Record{
			Action: "gitLFS", Repository: "r", Status: 501,
		}},
		"a store that is away": {"POST " + v1 + "/branches/create", write, branch, nil, audit.Record{
			Action: "createBranch", Repository: "r", Status: 503, Error: code.Unavailable,
		}},
		"secrets everywhere": {
			"GET " + v1 + "/branches?token=" + strings.TrimPrefix(write, "Bearer ") + "&ref=hunter2", "", "",
			map[string]string{"X-Token": write, "Idempotency-Key": "hunter2"},
			audit.Record{
				Action: "branches", Status: 401, Error: code.TokenMissing,
			},
		},
	} {
		method, target, _ := strings.Cut(test.target, " ")
		header := map[string]string{"User-Agent": "agent of " + name, "X-Forwarded-For": "203.0.113.9, 198.51.100.1"}
		maps.Copy(header, test.header)
		away.Store(test.want.Status == 503)
		a.ask(t, method, target, test.token, test.body, header)
		got := a.take(t, 1)[0]
		want := test.want
		if got.Subject != "" {
			want.Organization, want.Subject, want.KeyID = "acme", "ci", "k"
			want.TokenHash = auth.TokenHash(test.token)
		}
		anonymous := test.token == "" || strings.HasPrefix(string(got.Error), "token_") || want.Action == audit.Unrouted
		if (got.Subject == "") != anonymous {
			t.Errorf("%s: the subject is %q", name, got.Subject)
		}
		want.Via, want.UserAgent, want.Address = audit.HTTP, "agent of "+name, "198.51.100.1"
		want.RequestID, want.SentBytes, want.ReceivedBytes = got.RequestID, got.SentBytes, got.ReceivedBytes
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
	}
	for _, open := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, _, _ := a.ask(t, "GET", open, "", "", nil); status != 200 {
			t.Errorf("%s: status %d", open, status)
		}
	}
	a.take(t, 0)
	text := string(a.text(t))
	for _, secret := range []string{read, write, other, forged, basic, password, "hunter2", a.token("r", []string{"no-push"})} {
		for _, form := range []string{secret, strings.TrimPrefix(secret, "Bearer "), strings.TrimPrefix(secret, "Basic ")} {
			if strings.Contains(text, form) {
				t.Errorf("the log has the secret %s", form)
			}
		}
	}
}

// A request that is no HTTP leaves a record, too.
func TestAuditMalformed(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	c := a.dial(t)
	c.send("GET /\\..\n\n")
	c.receive(http.MethodGet)
	if r := a.take(t, 1)[0]; r.Action != audit.Unrouted || r.Status != 400 || r.Error != code.MalformedHTTP {
		t.Errorf("got %+v", r)
	}
}

// A call through MCP leaves a record of its own, with the changes, before that of the request
// around it.
func TestAuditMCP(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	s := a.speak(t, token("r", "git:write"), "")
	before := len(a.lines(t))
	if r := use(t, s, "commit", map[string]any{
		"target_branch": "main", "commit_message": "m", "author": map[string]any{"name": "A", "email": "a@example.com"},
		"files": []any{map[string]any{"path": "f", "text": "2\n"}},
	}); r.IsError {
		t.Fatal(said(r))
	}
	lines := a.lines(t)[before:]
	var inner, outer audit.Record
	must(json.Unmarshal([]byte(lines[len(lines)-2]), &inner))
	must(json.Unmarshal([]byte(lines[len(lines)-1]), &outer))
	if inner.Action != "commitPack" || inner.Via != audit.MCP || inner.Status != 201 || inner.Subject != "ci" ||
		len(inner.Changes) != 1 || inner.Changes[0].Ref != "refs/heads/main" || inner.Changes[0].Sequence == 0 {
		t.Errorf("the call: %+v", inner)
	}
	if outer.Action != "mcp" || outer.Via != audit.HTTP || outer.RequestID != inner.RequestID || len(outer.Changes) > 0 {
		t.Errorf("the request: %+v", outer)
	}
}

func (a *audited) lines(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(string(a.text(t)), "\n"), "\n")
}

// A transaction over several repositories tells the changes of all of them, and who had the token
// of each; a fork tells the refs that it begins with.
func TestAuditSeveralRepositories(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	a.do(call{"POST " + v1, "two", ""}, nil).done(t)
	a.do(call{"POST " + v1 + "/commit-pack", "two", commitLines("", "f", "1")}, nil).done(t)
	a.take(t, 2)
	ada, err := auth.Mint(keys().private, auth.Claims{
		Org: "acme", Subject: "ada", Repo: "two", Scopes: []string{"git:write"}, Expires: time.Now().Add(time.Hour),
	})
	must(err)
	a.do(call{
		"POST /api/v1/transactions", "r", transaction(inRepo("r", "x", ""), inRepo("two", "x", ada), inRepo("two", "y", "")),
	}, nil).done(t)
	r := a.take(t, 1)[0]
	var told []string
	for _, c := range r.Changes {
		told = append(told, fmt.Sprintf("%s %s %s %d", c.Repository, c.Subject, c.Ref, c.Sequence))
	}
	slices.Sort(told)
	want := []string{"  refs/heads/x 3", "two ada refs/heads/x 3", "two ada refs/heads/y 3"}
	if r.Action != "orgTransaction" || r.Repository != "r" || !slices.Equal(told, want) {
		t.Errorf("%+v, want %q", r, want)
	}
	if text := string(a.text(t)); strings.Contains(text, ada) {
		t.Error("the log has the token of the body")
	}
	fork := fmt.Sprintf(`{"base_repo":{"provider":"code","owner":"acme","name":"two","operation":"fork","auth":{"token":%q}}}`, ada)
	a.do(call{"POST " + v1, "fork", fork}, nil).done(t)
	if r := a.take(t, 1)[0]; r.Action != "createRepository" || r.Repository != "fork" || len(r.Changes) == 0 ||
		r.Changes[0].Sequence != 1 || r.Changes[0].Repository != "" || r.Changes[0].New.IsZero() {
		t.Errorf("the fork: %+v", r)
	}
}

// What a request changes after its record was written, and what nobody asked for, gets a record of
// its own.
func TestAuditBackground(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	ctx, changes := audit.Collect(t.Context(), "the-request")
	done := refs.Committed{Org: "acme", Name: "r", Actor: "upstream", Cause: "pull-upstream", Updates: []refs.Entry{
		{Sequence: 9, Ref: "refs/heads/main", After: object.ID{1}},
	}}
	a.writer.Committed(ctx, done)
	var r audit.Record
	if changes.End(&r); len(r.Changes) != 1 || r.Changes[0].Repository != "r" {
		t.Errorf("the request: %+v", r)
	}
	a.writer.Committed(ctx, done)
	a.writer.Committed(t.Context(), done)
	records := a.take(t, 2)
	for i, id := range []string{"the-request", ""} {
		r := records[i]
		if r.Via != audit.Background || r.Action != "pull-upstream" || r.Subject != "upstream" || r.RequestID != id ||
			r.Repository != "r" || len(r.Changes) != 1 || r.Changes[0].Repository != "" || r.Changes[0].Sequence != 9 {
			t.Errorf("%+v", r)
		}
	}
}
