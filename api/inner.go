package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/mcp"
	"packhorse/api/problem"
	"packhorse/odb/span"
)

// calls runs calls of the API within a request: it is the [mcp.Caller] of the server.
type calls struct{ server *Server }

// inner is the [exchange.Exchange] of one call within a request. The client, the ID, the slots, the
// memory and the computing time are the request's, so that its limits are those of all its calls
// together. The request line, the headers, the body and the answer are the call's.
type inner struct {
	request  *transfer
	endpoint *endpoint
	call     mcp.Call
	body     *bytes.Reader
	ctx      context.Context // of the call, within that of the request

	header    http.Header // of the answer
	answer    answer
	out       capture
	reason    string
	refusedAs int
	code      code.Code      // of the first error; "" for none
	changes   *audit.Changes // nil without an audit log
}

var _ exchange.Exchange = (*inner)(nil)

// Offers implements [mcp.Caller].
func (c calls) Offers(grant *auth.Grant, method, path string) bool {
	m := c.server.table.paths[path]
	return m != nil && m.endpoints[method] != nil && m.endpoints[method].permits(grant) == nil
}

// Call implements [mcp.Caller]. outer is a request of this server.
func (c calls) Call(outer exchange.Exchange, call mcp.Call) (*mcp.Answer, error) {
	request, ok := outer.(*transfer)
	if !ok {
		return nil, errors.New("api: a call within a request of another server")
	}
	m := c.server.table.paths[call.Path]
	if m == nil || m.endpoints[call.Method] == nil {
		return nil, fmt.Errorf("api: no route %s %s", call.Method, call.Path)
	}
	started := time.Now()
	traced, s := span.Begin(request.ctx, call.Method+" "+call.Path)
	ctx, cancel := context.WithCancelCause(traced)
	defer cancel(context.Canceled)
	x := &inner{
		request: request, endpoint: m.endpoints[call.Method], call: call, body: bytes.NewReader(call.Body), ctx: ctx,
		header: make(http.Header), out: capture{max: call.AnswerMax},
	}
	if request.changes != nil {
		x.ctx, x.changes = audit.Collect(ctx, request.id)
	}
	err := x.request.run(func() error { return x.run(cancel) })
	if err != nil {
		x.tell(m.refuse, err)
	}
	c.server.accountInner(x, time.Since(started))
	c.server.auditedInner(x, started)
	s.Count("http.response.status_code", int64(cmp.Or(x.refusedAs, x.answer.status)))
	s.End(nil)
	if request.ctx.Err() != nil {
		return nil, context.Cause(request.ctx)
	}
	return &mcp.Answer{
		Status: x.answer.status, Header: x.header, Body: x.out.body.Bytes(), Size: x.answer.size, Truncated: x.out.full,
	}, nil
}

// run checks the call as [Server.admit] and runs it as [Server.handle], and takes its answer.
func (x *inner) run(cancel context.CancelCauseFunc) error {
	s, e := x.request.server, x.endpoint
	if err := e.permits(x.request.grant); err != nil {
		return err
	}
	if err := s.allows(e, x.request.grant, x.call.Query); err != nil {
		return err
	}
	if int64(len(x.call.Body)) > e.BodyMax {
		return &exchange.LimitError{Limit: "request body", Max: e.BodyMax}
	}
	if e.CostsBytes > 0 { // beside that of the request's own route
		release, err := x.Reserve(x.ctx, e.CostsBytes)
		if err != nil {
			return err
		}
		defer release()
	}
	if e.Computes { // all of the answer is made before the client gets its first byte
		patience := time.AfterFunc(s.limits.AnswerWait, func() { cancel(exchange.ErrLateAnswer) })
		defer patience.Stop()
	}
	if err := e.Handler(x, x.request.grant); err != nil {
		return err
	}
	if x.answer.status == 0 {
		return errNoAnswer
	}
	return x.take()
}

// take takes the answer, up to the size that the caller asks for.
func (x *inner) take() error {
	if x.answer.write == nil {
		_, _ = x.out.Write(x.answer.whole)
		return nil
	}
	if x.call.Method == http.MethodHead {
		return nil
	}
	x.out.ctx = x.ctx
	err := x.answer.write(x.ctx, &x.out)
	if x.out.full {
		return nil
	}
	if size := int64(x.out.body.Len()); err == nil && x.answer.size >= 0 && x.answer.size != size {
		err = fmt.Errorf("api: an answer of %d bytes was announced with %d", size, x.answer.size)
	}
	return err
}

// tell answers with an error, as the door of the route does.
func (x *inner) tell(render Refuse, err error) {
	err = causeOf(x.ctx, err)
	x.out = capture{max: x.out.max}
	p := render(x, err)
	setRetryAfter(x, &p)
	_, _ = x.out.Write(x.answer.whole)
	x.reason = err.Error()
	x.fails(p.Code)
	if x.request.ctx.Err() == nil {
		x.request.server.note(x.request, &p, err)
	}
}

// accountInner counts and logs a call within a request. Its bytes are not those of a connection, so
// that the sums of received and sent bytes leave them out.
func (s *Server) accountInner(x *inner, took time.Duration) {
	status := cmp.Or(x.refusedAs, x.answer.status)
	s.count(x.endpoint.label, x.call.Method, status, took)
	if !s.logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.request.id),
		slog.String("within", x.request.path),
		slog.String("method", x.call.Method),
		slog.String("path", x.call.Path),
		slog.Int("status", status),
		slog.Duration("took", took),
		slog.String("org", x.request.grant.Org), slog.String("repo", x.request.grant.Repo),
		slog.String("sub", x.request.grant.Subject),
	}
	if x.request.link.IsValid() {
		attrs = append(attrs, slog.String("trace_id", x.request.link.TraceID()))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", string(x.code)))
	}
	if x.reason != "" {
		attrs = append(attrs, slog.String("error", bounded(x.reason)))
	}
	s.logger.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// Context implements [exchange.Request].
func (x *inner) Context() context.Context { return x.ctx }

// Serving implements [exchange.Request].
func (x *inner) Serving() context.Context { return x.request.Serving() }

// RequestID implements [exchange.Request].
func (x *inner) RequestID() string { return x.request.RequestID() }

// RemoteAddr implements [exchange.Request].
func (x *inner) RemoteAddr() string { return x.request.RemoteAddr() }

// Scheme implements [exchange.Request].
func (x *inner) Scheme() string { return x.request.Scheme() }

// Method implements [exchange.Request].
func (x *inner) Method() string { return x.call.Method }

// Path implements [exchange.Request].
func (x *inner) Path() string { return x.call.Path }

// PathValue implements [exchange.Request]: the token alone names the repository.
func (x *inner) PathValue(string) string { return "" }

// Query implements [exchange.Request].
func (x *inner) Query() url.Values { return x.call.Query }

// Header implements [exchange.Request]. The headers of the request around it are for the door that
// it came through.
func (x *inner) Header(name string) string { return x.call.Header[http.CanonicalHeaderKey(name)] }

// Body implements [exchange.Request].
func (x *inner) Body() io.Reader { return x.body }

// BodyLength implements [exchange.Request].
func (x *inner) BodyLength() int64 { return x.body.Size() }

// BodyFlows implements [exchange.Request].
func (x *inner) BodyFlows() {}

// SetHeader implements [exchange.Response].
func (x *inner) SetHeader(name, value string) { x.header.Set(name, value) }

// Respond implements [exchange.Response].
func (x *inner) Respond(status int, contentType string, body []byte) {
	x.say(answer{status: status, size: int64(len(body)), whole: body}, contentType)
}

// Stream implements [exchange.Response].
func (x *inner) Stream(status int, contentType string, write func(ctx context.Context, w io.Writer) error) {
	x.say(answer{status: status, size: -1, write: write}, contentType)
}

// StreamSized implements [exchange.Response].
func (x *inner) StreamSized(
	status int, contentType string, size int64, write func(ctx context.Context, w io.Writer) error,
) {
	x.say(answer{status: status, size: size, write: write}, contentType)
}

func (x *inner) say(a answer, contentType string) {
	x.answer = a
	x.header.Set("Content-Type", contentType)
}

// Failed implements [exchange.Response].
func (x *inner) Failed(err error) {
	x.fails(problem.From(err).Code)
	x.request.Failed(err)
}

// Refused implements [exchange.Response].
func (x *inner) Refused(err error) {
	p := problem.From(err)
	x.reason, x.refusedAs = err.Error(), p.Status
	x.fails(p.Code)
	x.request.server.note(x.request, &p, err)
}

// fails keeps the code of the first error of the call.
func (x *inner) fails(as code.Code) { x.code = cmp.Or(x.code, as) }

// Slot implements [exchange.Resources].
func (x *inner) Slot(ctx context.Context) (func(), error) { return x.request.Slot(ctx) }

// Reserve implements [exchange.Resources].
func (x *inner) Reserve(ctx context.Context, sizeBytes int64) (func(), error) {
	return x.request.Reserve(ctx, sizeBytes)
}

// capture keeps the beginning of an answer.
type capture struct {
	ctx  context.Context // may be nil
	max  int
	body bytes.Buffer
	full bool // more was written than is kept
}

// errCaptured ends a write function whose answer is not asked for to its end.
var errCaptured = errors.New("api: the rest of the answer is not asked for")

// Write keeps what fits.
func (c *capture) Write(p []byte) (int, error) {
	if c.ctx != nil && c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n := min(len(p), c.max-c.body.Len())
	c.body.Write(p[:n])
	if n < len(p) {
		c.full = true
		return n, errCaptured
	}
	return n, nil
}
