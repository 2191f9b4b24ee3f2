package rest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// streamed is a client whose streams do, at each silence, what the next of some steps says.
type streamed struct {
	*client
	host  *engine.Host
	steps []func(x *exchangetest.Exchange, due context.CancelFunc)
	x     *exchangetest.Exchange
	stop  context.CancelFunc // of the server
}

func newStreamed(t *testing.T) *streamed {
	t.Helper()
	s := &streamed{host: enginetest.Open(t)}
	s.client = &client{t: t, door: rest.New(rest.Config{
		Host: s.host,
		Silence: func(ctx context.Context) (context.Context, context.CancelFunc) {
			waiting, due := context.WithCancel(ctx)
			if len(s.steps) == 0 {
				s.stop()
				return waiting, due
			}
			step := s.steps[0]
			s.steps = s.steps[1:]
			step(s.x, due)
			return waiting, due
		},
	}), grant: &auth.Grant{
		Org: enginetest.Org, Subject: "tester", Repo: "r", Scopes: auth.GitRead | auth.GitWrite,
	}}
	s.create("").want(http.StatusCreated)
	return s
}

// stream returns what a stream sends until the steps are done, and the server stops.
func (s *streamed) stream(h handler, query, last string) (answer, error) {
	s.t.Helper()
	s.x = exchangetest.New(http.MethodGet, "/?"+query, nil)
	s.x.RequestHeaders.Set("Accept", "application/json;q=0.1, text/event-stream")
	s.x.RequestHeaders.Set("Last-Event-ID", last)
	s.x.ServingCtx, s.stop = context.WithCancel(s.t.Context())
	defer s.stop()
	if err := h(s.x, s.grant); err != nil {
		rest.Refuse(s.x, err)
	}
	got, err := s.x.Finish()
	return answer{got, s.t}, err
}

// frames returns the ids of the events of a stream, and ":" for each comment. Each event names
// itself, and its data is JSON of one line.
func (a answer) frames() string {
	a.t.Helper()
	body, ok := strings.CutPrefix(string(a.Body), "retry: 1000\n\n")
	if !ok || a.Header.Get("Content-Type") != "text/event-stream" || a.Status != http.StatusOK {
		a.t.Errorf("the answer is %d, %v, %q", a.Status, a.Header, a.Body)
	}
	var frames []string
	for frame := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		lines := strings.Split(frame, "\n")
		switch {
		case frame == ":":
			frames = append(frames, ":")
		case frame == "":
		case len(lines) == 3 && strings.HasPrefix(lines[0], "id: ") && strings.HasPrefix(lines[1], "event: ") &&
			strings.HasPrefix(lines[2], `data: {`):
			frames = append(frames, lines[0][len("id: "):])
		default:
			a.t.Errorf("a frame is %q", frame)
		}
	}
	return strings.Join(frames, " ")
}

// A stream sends what is there, then what comes, a comment in a silence, and ends with the server.
func TestEventStream(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	s.commit("main", "a", "1")
	s.commit("main", "a", "2")
	s.steps = []func(*exchangetest.Exchange, context.CancelFunc){
		func(_ *exchangetest.Exchange, due context.CancelFunc) { due() },
		func(*exchangetest.Exchange, context.CancelFunc) { s.commit("main", "a", "3") },
		func(_ *exchangetest.Exchange, due context.CancelFunc) { due() },
	}
	got, err := s.stream(s.door.Events, "", "")
	if frames := got.frames(); err != nil || frames != "2 3 : 4 :" {
		t.Errorf("%s, %v", frames, err)
	}
	for _, test := range []struct{ query, last, want string }{
		{"after=2", "", "3 4"}, {"after=2", "3", "4"}, {"", "4", ""}, {"after=latest", "", ""}, {"after=latest", "2", "3 4"},
	} {
		got, err := s.stream(s.door.Events, test.query, test.last)
		if frames := got.frames(); err != nil || frames != test.want {
			t.Errorf("%+v: %s, %v", test, frames, err)
		}
	}
	for _, test := range []struct {
		query, last string
		status      int
		says        string
	}{
		{"after=x", "", 400, "after"},
		{"after=2.x", "", 400, "after"},
		{"", "x", 400, "Last-Event-ID"},
		{"after=9", "", 400, "reached"},
		{"", "9.1", 400, "reached"},
	} {
		got, err := s.stream(s.door.Events, test.query, test.last)
		if err != nil {
			t.Error(err)
		}
		got.refused(test.status, test.says)
	}
}

// A transaction of several changes can be cut anywhere.
func TestEventStreamWithinATransaction(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	s.commit("main", "a", "1")
	s.commit("dev", "a", "2")
	s.commit("more", "a", "3")
	if _, err := s.host.CreateRepository(t.Context(), engine.Actor{Org: enginetest.Org},
		engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "r"}}); err != nil {
		t.Fatal(err)
	}
	s.grant.Repo = "fork"
	for last, want := range map[string]string{"": "1.0 1.1 1", "1.0": "1.1 1", "1.1": "1", "1": ""} {
		got, err := s.stream(s.door.Events, "", last)
		if frames := got.frames(); err != nil || frames != want {
			t.Errorf("after %q: %s, want %s: %v", last, frames, want, err)
		}
	}
	got, err := s.stream(s.door.OrgEvents, "", "")
	all := strings.Fields(got.frames())
	if err != nil || len(all) != 8 { // two creations, three commits, and the three refs of the fork
		t.Fatalf("%q, %v", all, err)
	}
	for i, id := range all {
		got, err := s.stream(s.door.OrgEvents, "cursor=x", id)
		if frames, want := got.frames(), strings.Join(all[i+1:], " "); err != nil || frames != want {
			t.Errorf("after %s: %s, want %s: %v", id, frames, want, err)
		}
	}
	got, err = s.stream(s.door.OrgEvents, "", "x")
	if err != nil {
		t.Error(err)
	}
	got.refused(http.StatusBadRequest, "Last-Event-ID")
	got, err = s.stream(s.door.OrgEvents, "cursor=latest", "")
	if frames := got.frames(); err != nil || frames != "" {
		t.Errorf("from the end on: %s, %v", frames, err)
	}
}

// A stream ends with its token, its repository, its client, and memory that is not there.
func TestEventStreamEnds(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	s.commit("main", "a", "1")
	due := func(_ *exchangetest.Exchange, due context.CancelFunc) { due() }
	s.grant.Expires = time.Now().Add(-time.Second)
	s.steps = []func(*exchangetest.Exchange, context.CancelFunc){due, due}
	got, err := s.stream(s.door.Events, "", "")
	if frames := got.frames(); err != nil || frames != "2" || len(s.steps) != 1 {
		t.Errorf("the token: %s, %v", frames, err)
	}
	s.grant.Expires, s.steps = time.Time{}, nil

	x := exchangetest.New(http.MethodGet, "/", nil)
	x.RequestHeaders.Set("Accept", "text/event-stream")
	x.ReserveErr = exchange.ErrBusy
	if err := s.door.Events(x, s.grant); !errors.Is(err, exchange.ErrBusy) {
		t.Errorf("without memory: %v", err)
	}

	var leave context.CancelFunc
	x = exchangetest.New(http.MethodGet, "/", nil)
	x.RequestHeaders.Set("Accept", "text/event-stream")
	x.Ctx, leave = context.WithCancel(t.Context())
	s.steps = []func(*exchangetest.Exchange, context.CancelFunc){
		func(*exchangetest.Exchange, context.CancelFunc) { leave() },
	}
	if err := s.door.Events(x, s.grant); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Finish(); !errors.Is(err, context.Canceled) {
		t.Errorf("the client has gone: %v", err)
	}

	s.steps = []func(*exchangetest.Exchange, context.CancelFunc){func(*exchangetest.Exchange, context.CancelFunc) {
		s.call(s.door.DeleteRepository, http.MethodDelete, "/", nil).want(http.StatusOK)
	}}
	got, err = s.stream(s.door.Events, "", "")
	if frames := got.frames(); err != nil || frames != "2" {
		t.Errorf("the repository is gone: %s, %v", frames, err)
	}
	got, err = s.stream(s.door.Events, "", "2")
	if err != nil {
		t.Error(err)
	}
	got.refused(http.StatusNotFound, "r")
}
