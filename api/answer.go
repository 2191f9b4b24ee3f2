package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"

	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/odb/rescue"
)

// answer is the answer of a handler.
type answer struct {
	status int
	size   int64 // announced; -1 for chunks
	whole  []byte
	write  func(ctx context.Context, w io.Writer) error

	sent int64 // of the body
	err  error // why it was cut
	lost bool  // the client does not read it any more
}

// Body implements [exchange.Request].
func (x *transfer) Body() io.Reader { return &x.body }

// SetHeader implements [exchange.Response].
func (x *transfer) SetHeader(name, value string) { x.fast.Response.Header.Set(name, value) }

// Respond implements [exchange.Response].
func (x *transfer) Respond(status int, contentType string, body []byte) {
	x.say(answer{status: status, size: int64(len(body)), whole: body}, contentType)
}

// Stream implements [exchange.Response].
func (x *transfer) Stream(status int, contentType string, write func(ctx context.Context, w io.Writer) error) {
	x.say(answer{status: status, size: -1, write: write}, contentType)
}

// Failed implements [exchange.Response].
func (x *transfer) Failed(err error) {
	p := problem.From(err)
	x.countAway(&p)
	x.fails(p.Code)
	x.server.note(x, &p, err)
}

// countAway makes a request that met a store which is away count as the 503 that it is, whatever
// the status with which its answer began.
func (x *transfer) countAway(p *problem.Problem) {
	if p.Away && x.refusedAs == 0 {
		x.refusedAs = p.Status
	}
}

// Refused implements [exchange.Response].
func (x *transfer) Refused(err error) {
	p := problem.From(err)
	x.reason, x.refusedAs = err.Error(), p.Status
	x.fails(p.Code)
	x.server.note(x, &p, err)
}

// fails keeps the code of the first error of the request.
func (x *transfer) fails(as code.Code) { x.code = cmp.Or(x.code, as) }

// StreamSized implements [exchange.Response].
func (x *transfer) StreamSized(
	status int, contentType string, size int64, write func(ctx context.Context, w io.Writer) error,
) {
	x.say(answer{status: status, size: size, write: write}, contentType)
}

func (x *transfer) say(a answer, contentType string) {
	x.answer = a
	x.fast.Response.Header.SetContentType(contentType)
}

// send passes the answer to fasthttp, which writes it when the server's handler has returned. It
// reports whether the request continues until then.
func (x *transfer) send() bool {
	response := &x.fast.Response
	response.SetStatusCode(x.answer.status)
	response.Header.Set("X-Request-Id", x.id)
	switch {
	case x.answer.write == nil:
		response.SetBodyRaw(x.answer.whole)
		x.answer.sent = x.answer.size
	case x.method == http.MethodHead:
		response.SkipBody = true
		response.Header.SetContentLength(int(x.answer.size))
		_ = x.run(func() error { x.giveUp(context.Canceled); return nil }) // a panic is logged
	default:
		response.SetBodyStream(&answerStream{x: x}, int(x.answer.size))
		return true
	}
	return false
}

// answerStream runs the write function of an answer inside fasthttp. It implements io.WriterTo and
// replaces fasthttp's own stream writer, which lets a body end cleanly after an error
// (docs/invariants.md 24).
type answerStream struct {
	x   *transfer
	ran bool
}

var errNoRead = errors.New("api: an answer is written, not read")

// Read is never called, since WriteTo is supported.
func (s *answerStream) Read([]byte) (int, error) { return 0, errNoRead }

// SupportsBodyWriteTo makes fasthttp call WriteTo.
func (s *answerStream) SupportsBodyWriteTo() bool { return true }

// WriteTo runs the write function. An error makes fasthttp close the connection in the middle of
// the body.
func (s *answerStream) WriteTo(w io.Writer) (int64, error) {
	x := s.x
	s.ran = true
	x.answering.Store(true)
	out := &answerWriter{x: x, w: w}
	err := x.run(func() error { return x.answer.write(x.ctx, out) })
	out.w = nil
	if err == nil && x.answer.size >= 0 && x.answer.sent != x.answer.size {
		err = fmt.Errorf("api: an answer of %d bytes was announced with %d", x.answer.sent, x.answer.size)
	}
	if err != nil {
		p := problem.From(err)
		x.answer.err = err
		x.fails(p.Code)
		x.conn.cut.Store(true)
		if p.Corrupt || !x.answer.lost && x.ctx.Err() == nil {
			x.countAway(&p)
			x.server.note(x, &p, err)
		}
	}
	return x.answer.sent, err
}

// Close ends the request: fasthttp calls it after the answer, sent or not.
func (s *answerStream) Close() error {
	if !s.ran { // the write function may hold resources that it releases
		s.x.cancel(exchange.ErrGone)
		_, _ = s.WriteTo(nil)
	}
	s.x.finish()
	return nil
}

// giveUp runs the write function of an answer that is not sent, so that it releases its resources.
func (x *transfer) giveUp(cause error) {
	x.cancel(cause)
	_ = x.answer.write(x.ctx, &answerWriter{x: x})
}

// turnBytes is how much of an answer is written in the turn of its request: what a connection takes
// at once. A turn that waited for a client would be lost to others for a while.
const turnBytes = 64 << 10

// answerWriter is the writer for a write function.
type answerWriter struct {
	x *transfer
	w io.Writer // nil when the function has returned
}

var (
	errWriterClosed = errors.New("api: an answer was written after its function returned")
	errOverlong     = errors.New("api: more was written than was announced")
)

// Write sends p.
func (w *answerWriter) Write(p []byte) (int, error) {
	x := w.x
	switch {
	case w.w == nil:
		return 0, errWriterClosed
	case x.ctx.Err() != nil:
		return 0, context.Cause(x.ctx)
	case x.answer.size >= 0 && x.answer.sent+int64(len(p)) > x.answer.size:
		return 0, errOverlong
	}
	x.stopPatience()
	x.cost.await()
	beyond := x.answer.sent+int64(len(p)) > turnBytes
	if beyond {
		x.conn.endTurn()
	}
	n, err := w.w.Write(p)
	if beyond {
		x.pay(n)
	}
	x.answer.sent += int64(n)
	x.answer.lost = x.answer.lost || err != nil
	if err == nil {
		err = x.cost.goOn(true)
	}
	return n, err
}

// errPanic is the error of a request after a panic.
var errPanic = errors.New("api: panic")

// run calls f. A panic in it, or in a goroutine whose error f returns, becomes errPanic and is
// logged with its stack.
func (x *transfer) run(f func() error) error {
	err := rescue.Do(f)
	if p, ok := errors.AsType[*rescue.PanicError](err); ok {
		x.server.panicked(x.id, p)
		return errPanic
	}
	return err
}

// panicked counts and logs a panic below a request.
func (s *Server) panicked(requestID string, p *rescue.PanicError) {
	s.metrics.panics.Inc()
	s.logger.Error("panic", "request_id", requestID, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
}

// guard returns handle for fasthttp, in whose goroutine nothing catches a panic: one outside of run
// ends the connection, and its request gives back what it holds.
func (s *Server) guard(handle func(fast *fasthttp.RequestCtx)) func(fast *fasthttp.RequestCtx) {
	return func(fast *fasthttp.RequestCtx) {
		p, ok := errors.AsType[*rescue.PanicError](rescue.Do(func() error {
			handle(fast)
			return nil
		}))
		if !ok {
			return
		}
		id := ""
		if x := connOf(fast.Conn()).current.Load(); x != nil {
			id = x.id
			x.finish()
		}
		s.panicked(id, p)
		fast.Response.Reset()
		fast.Response.SetStatusCode(http.StatusInternalServerError)
		fast.SetConnectionClose()
	}
}
