package main_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv/postgres/postgrestest"
)

// TestSuspended suspends one of two servers, while clients write through both, in the middle of a
// clone, a push and a commit, until the other has taken it for dead, does its duties, and has
// rewritten and swept what it reads. When the server goes on, it joins again: the clone ends whole
// or fails, the push and the commit are whole or refused, every acknowledged write is there, and
// a receiver of webhooks has heard of all.
// PACKHORSE_STORM_ROUNDS sets the number of times, each of a minute at least; without it the test
// is skipped.
func TestSuspended(t *testing.T) {
	t.Parallel()
	rounds := longStormRounds(t)
	dir := t.TempDir()
	receiver := newReceiver(t, dir)
	p := newPair(t, dir, postgrestest.Start(t), "--upstream-allow", "127.0.0.1", "--log-level", "error",
		"--maintenance-hot-count", "200", "--maintenance-reader-grace", "0s")
	l := newLoad(p, 2, 2)
	for n := range p.sides {
		l.parts = append(l.parts, newGitClient(t, "parts", n, 24<<20))
	}
	for round := range rounds {
		l.suspend(round%2, time.Minute)
		l.look()
		t.Logf("%d: %s", round, l.figures())
	}
	journal := receiver.await(p.sides[0].data(), p.get)
	p.stop()
	receiver.check(journal)
}

// suspend suspends a server for a time at least.
func (l *load) suspend(number int, atLeast time.Duration) {
	p, t := l.p, l.p.t
	t.Helper()
	zombie, other := p.sides[number], p.sides[1-number]
	far := l.parts[1-number] // pushes through the other server, so that the clone reads from the bucket
	far.step(l)
	clone := zombie.holdClone(t)
	half := l.parts[number]
	push := l.pushUntil(half)
	commit := p.commitUntil(t, zombie, fmt.Sprintf("half-%d", half.number))
	l.during(func() {
		l.awaitProgress(number, 5)
		<-clone.held
		<-push.held
		suspend(t, zombie.Server)
		begun := time.Now()
		l.pause.Store(int64(300 * time.Millisecond))
		defer l.pause.Store(0)
		duties := awaitDuties(t, p.direct, 1, nil)
		far.step(l)
		for range 2 {
			got := packhorse(t, nil, "gc", "--data", other.data(), "--grace", "0s")
			if got.status != 0 {
				t.Errorf("gc: %+v", got)
			}
		}
		l.awaitProgress(1-number, 5)
		time.Sleep(atLeast - time.Since(begun)) // none if it is past
		t.Logf("suspended for %v; the other has %v", time.Since(begun), duties)
		wake(t, zombie.Server)
		close(push.release)
		close(commit.release)
		t.Log("the clone: ", clone.finishEither(t))
		t.Log("the push: ", push.wait())
		t.Log("the commit: ", commit.wait())
		zombie.awaitReady(http.StatusOK)
		l.awaitProgress(number, 5)
	})
	awaitDuties(t, p.direct, 2, nil)
}

// halfway is work that is held in its middle.
type halfway struct {
	held    <-chan struct{} // closed when it is there
	release chan struct{}
	wait    func() string // for its end, and tells it
}

// finishEither reads the rest, which must be whole, or fail. It tells which.
func (c *heldClone) finishEither(t *testing.T) string {
	t.Helper()
	close(c.gate.release)
	if err := <-c.ended; err != nil {
		if wrongClone.MatchString(err.Error()) {
			t.Errorf("clone: %v", err)
		}
		return err.Error()
	}
	if out := c.git.Git("fsck", "--full", "--strict", "--no-dangling"); out != "" {
		t.Errorf("git fsck: %s", out)
	}
	return "whole"
}

func (s *side) address() string { return strings.TrimPrefix(s.URL, "http://") }

// pushUntil begins a push that stops sending after some bytes. What becomes of it is noted.
func (l *load) pushUntil(c *gitClient) *halfway {
	t, s := l.p.t, l.p.sides[c.home]
	t.Helper()
	g := newGate(t, s.URL)
	g.requests = 4 << 20
	ended := make(chan struct{})
	c.remote = strings.Replace(s.remote(), s.address(), g.address(), 1)
	before := len(c.pushed)
	go func() {
		defer close(ended)
		c.step(l)
	}()
	return &halfway{held: g.held, release: g.release, wait: func() string {
		<-ended
		c.remote = ""
		if len(c.pushed) > before {
			return "done"
		}
		return fmt.Sprint(c.lastErr)
	}}
}

// commitUntil begins a commit whose content stops coming. Afterwards it must be acknowledged and
// there, or refused and nowhere.
func (p *pair) commitUntil(t *testing.T, s *side, branch string) *halfway {
	t.Helper()
	metadata, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"target_branch": branch, "base_branch": "main", "commit_message": branch,
		"author": map[string]string{"name": "K", "email": "k@example.com"},
		"files":  []map[string]string{{"path": branch, "content_id": "1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	chunk := func(eof bool) []byte {
		return fmt.Appendf(nil, "{\"blob_chunk\":{\"content_id\":\"1\",\"data\":%q,\"eof\":%t}}\n",
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(branch), 20_000)), eof)
	}
	reader, writer := io.Pipe()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost,
		s.URL+"/api/v1/repos/commit-pack", reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	release, held, ended := make(chan struct{}), make(chan struct{}), make(chan reply, 1)
	go func() {
		_, _ = writer.Write(append(metadata, '\n'))
		for range 10 {
			_, _ = writer.Write(chunk(false))
		}
		close(held)
		<-release
		_, _ = writer.Write(chunk(true))
		_ = writer.Close()
	}()
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			ended <- reply{err: err}
			return
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		ended <- reply{status: response.StatusCode, body: body, err: err}
	}()
	return &halfway{held: held, release: release, wait: func() string {
		answer := <-ended
		_ = reader.Close()
		found := p.send(p.sides[1], http.MethodGet, "/api/v1/repos/commits?branch="+branch, "", nil).status == http.StatusOK
		if answer.err == nil && found != (answer.status == http.StatusCreated) {
			t.Errorf("the commit was told %d %s, and is there: %t", answer.status, answer.body, found)
		}
		return fmt.Sprint(answer.status, " ", string(answer.body), answer.err)
	}}
}
