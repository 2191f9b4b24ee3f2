package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// serve is the handler of every request.
func (s *Server) serve(fast *fasthttp.RequestCtx) {
	x, err := s.newTransfer(fast)
	x.conn.current.Store(x)
	x.beginSpan()
	doubtful := err != nil // where this request ends: a proxy may see its end elsewhere
	x.conn.beginBody(false)
	if err == nil {
		err = x.run(func() error { return s.admit(x) })
	}
	x.conn.counted = false
	if err == nil {
		err = x.run(func() error { return s.handle(x) })
	}
	if err == nil && x.answer.status == 0 {
		err = errNoAnswer
	}
	if err != nil {
		s.tell(x, err)
	}
	if doubtful || !x.body.drain() || s.isLeaving() || asksToClose(x.Header("Connection")) {
		fast.SetConnectionClose()
	}
	if !x.send() {
		x.finish()
	}
}

// asksToClose reports whether a Connection header says close; fasthttp knows it in small letters
// and alone.
func asksToClose(header string) bool {
	for option := range strings.SplitSeq(header, ",") {
		if strings.EqualFold(strings.TrimSpace(option), "close") {
			return true
		}
	}
	return false
}

var errNoAnswer = errors.New("api: the handler did not answer")

// expect decides before "100 Continue" is sent, so that clients do not upload a body that will be
// refused. fasthttp closes the connection after a refusal.
func (s *Server) expect(fast *fasthttp.RequestCtx) int {
	x, err := s.newTransfer(fast)
	if err == nil {
		err = x.run(func() error { return s.admit(x) })
	}
	x.conn.beginBody(err == nil && x.endpoint.Patient)
	if err == nil {
		x.cancel(context.Canceled)
		s.metrics.running.Dec() // serve begins it anew
		x.conn.counted = true
		return http.StatusContinue
	}
	s.tell(x, err)
	x.send()
	x.finish()
	return x.answer.status
}

// malformed answers requests that fasthttp could not parse. The connection ends with the answer.
func (s *Server) malformed(fast *fasthttp.RequestCtx, err error) {
	status, as, message := http.StatusBadRequest, code.MalformedHTTP, "malformed request"
	var large *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		status, as, message = http.StatusRequestHeaderFieldsTooLarge, code.HeaderTooLarge, "the header is too long"
	case errors.As(err, &timeout) && timeout.Timeout():
		status, as, message = http.StatusRequestTimeout, code.RequestTimeout, "the request did not come in time"
	}
	c := connOf(fast.Conn())
	x := &transfer{server: s, fast: fast, conn: c, client: c.peer, id: s.ids.next(), started: time.Now(), refuse: s.refuse}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	s.metrics.running.Inc()
	s.tell(x, refuse(status, as, message))
	x.send()
	x.finish()
}

// admit finds the endpoint of a request, and checks its token and the announced size of its body.
// It reads nothing from the client.
func (s *Server) admit(x *transfer) error {
	if s.origins.isPreflight(x) {
		x.endpoint = s.preflight
		return nil
	}
	if x.named != nil { // its token says where the repository's name ends
		if err := s.identify(x); err != nil {
			s.suppose(x)
			return err
		}
	}
	m, err := s.table.find(x)
	if err != nil {
		return err
	}
	x.refuse = m.refuse
	e := m.endpoints[x.method]
	if e == nil {
		x.SetHeader("Allow", m.allow)
		return errNoMethod
	}
	x.endpoint = e
	if !e.open {
		if err := s.authorize(x); err != nil {
			return err
		}
		if err := s.allows(e, x.grant, x.values); err != nil {
			return err
		}
	}
	x.body.max = e.BodyMax
	if x.body.announced > e.BodyMax {
		return &exchange.LimitError{Limit: "request body", Max: e.BodyMax}
	}
	return nil
}

// allows refuses guards in a query, and writes that must not be done.
func (s *Server) allows(e *endpoint, grant *auth.Grant, query url.Values) error {
	if err := rest.CheckQuery(query, e.writes() && e.Method == http.MethodDelete); err != nil {
		return err
	}
	if !e.writes() {
		return nil
	}
	if name := grant.Unenforced; name != "" {
		return refuse(http.StatusBadRequest, code.InvalidPolicy, fmt.Sprintf(
			"the token's claim %.40q states a policy that is not enforced here, so nothing may be written with it", name))
	}
	return s.writable()
}

const errNoRepo = "the token names no repository"

// identify verifies the token, once.
func (s *Server) identify(x *transfer) error {
	if x.grant != nil {
		return nil
	}
	began := time.Now()
	grant, err := s.tokens.VerifyFrom(x.client, x.Header("Authorization"))
	x.identified = time.Since(began)
	if err != nil {
		s.metrics.refusals.WithLabelValues(auth.ReasonOf(err)).Inc()
		return err
	}
	x.grant = grant
	s.acquaint(x.conn)
	return nil
}

// countRequest holds the organization of a request to its rate. Only a good token counts, so that
// nobody else can use it up, and only once: expect may have looked at the request before.
func (s *Server) countRequest(x *transfer) error {
	if x.conn.counted {
		return nil
	}
	err := s.rates.take(x.grant.Org)
	if err != nil {
		s.metrics.rateRefusals.Inc()
	}
	return err
}

func (s *Server) authorize(x *transfer) error {
	if err := s.identify(x); err != nil {
		return err
	}
	if err := s.countRequest(x); err != nil {
		return err
	}
	// Before the scope, and whether that repository exists or not.
	if x.endpoint.git && x.grant.Repo != x.git.Repo || namesOther(x) {
		return refuse(http.StatusForbidden, code.WrongRepository,
			fmt.Sprintf("the token is for another repository, %.100q", x.grant.Repo))
	}
	return x.endpoint.permits(x.grant)
}

// permits refuses a grant without the scope of the endpoint, or without a repository where it needs
// one.
func (e *endpoint) permits(grant *auth.Grant) error {
	if !grant.Allows(e.Scope) {
		return refuse(e.Denied, code.ScopeMissing, fmt.Sprintf("the token lacks the scope %s", e.Scope))
	}
	if e.Org {
		return nil
	}
	switch err := engine.CheckRepositoryName(grant.Repo); {
	case err == nil:
		return nil
	case e.Creates && grant.Repo != "" && grant.Repo != rest.OrgClaim:
		return refuse(http.StatusBadRequest, code.InvalidRequest,
			fmt.Sprintf("%.200q is not a repository name: %v; %s", grant.Repo, err, refs.RepositoryNames))
	default:
		return refuse(e.Denied, code.WrongRepository, errNoRepo)
	}
}

// namesOther reports whether the path names another repository than the token. A token for the
// whole organization may name any, on the endpoints that take one.
func namesOther(x *transfer) bool {
	if x.named == nil || x.endpoint.Org && x.grant.Repo == rest.OrgClaim {
		return false
	}
	return x.parts["n"] != x.grant.Repo
}

// handle runs the handler.
func (s *Server) handle(x *transfer) error {
	e := x.endpoint
	x.conn.beginBody(e.Patient)
	if !e.open {
		tenant := x.tenant()
		budget := s.limits.WorkMax
		if e.git {
			budget = 0 // histories may be of any size; a push has limits of its own
		}
		x.holding.Begin(s.memory, tenant, e.CostsBytes)
		x.account = s.processors.Account(tenant, budget)
		x.ctx = fair.Hold(fair.With(x.ctx, x.account), &x.holding)
	}
	if err := x.cost.begin(); err != nil {
		return err
	}
	if e.Computes {
		x.patience = time.AfterFunc(s.limits.AnswerWait, func() { x.cancel(exchange.ErrLateAnswer) })
	}
	err := s.perform(x)
	if err == nil && x.answer.write != nil {
		if err = x.cost.goOn(true); err != nil { // a handler that left its body unread
			x.giveUp(err)
		}
	}
	return err
}

// outsideTurn is about what a request costs before and after its turn: the header and the sockets.
const outsideTurn = 50 * time.Microsecond

// perform runs the handler itself, in a turn at the processors.
func (s *Server) perform(x *transfer) error {
	if x.account != nil {
		light := !x.endpoint.Computes && !x.endpoint.git
		if err := x.account.Begin(x.ctx, light, x.identified+outsideTurn); err != nil {
			return err
		}
		x.conn.turn = x.account
	}
	if x.endpoint.git {
		return s.table.git(x, x.git, x.grant)
	}
	return x.endpoint.Handler(x, x.grant)
}

// tell answers with an error.
func (s *Server) tell(x *transfer, err error) {
	err = causeOf(x.ctx, err)
	var p problem.Problem
	if failed := x.run(func() error { p = x.refuse(x, err); return nil }); failed != nil {
		p = problem.From(failed)
		x.Respond(p.Status, problem.ContentType, p.JSON())
	}
	setRetryAfter(x, &p)
	x.reason = err.Error()
	x.fails(p.Code)
	s.note(x, &p, err)
}

// causeOf returns the reason for which the context of a request has ended, if err is that it has.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// setRetryAfter tells after how many whole seconds to try again, if p says so.
func setRetryAfter(x exchange.Response, p *problem.Problem) {
	if p.RetryAfter > 0 {
		x.SetHeader("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
}

// note counts and logs the error of a request, if it is not the client's fault. It logs only the
// details that an operator needs: see account.
func (s *Server) note(x *transfer, p *problem.Problem, err error) {
	if p.Corrupt {
		s.metrics.corrupt.Inc()
	}
	s.metrics.countDenial(err)
	if panicked, ok := errors.AsType[*rescue.PanicError](err); ok { // that the answer tells in a form of its own
		s.panicked(x.id, panicked)
		return
	}
	level, message := slog.LevelError, "request failed"
	switch {
	case p.Away:
		level, message = slog.LevelWarn, "store unavailable"
	case !p.Corrupt && p.Status != http.StatusInternalServerError, errors.Is(err, errPanic):
		return
	}
	attrs := []any{"request_id", x.id}
	if x.link.IsValid() {
		attrs = append(attrs, "trace_id", x.link.TraceID())
	}
	if g := x.grant; g != nil {
		attrs = append(attrs, "org", g.Org, "repo", g.Repo)
	}
	s.logger.Log(context.Background(), level, message, append(attrs, "error", err)...)
}

// isLeaving reports whether the server is about to stop, or stopping: clients should not come back.
func (s *Server) isLeaving() bool { return s.leaving.Load() || s.serving.Err() != nil }
