// Package exchange is the view that the front doors have of HTTP: one request and the answer to it.
//
// Package api implements [Exchange] over its server; exchangetest implements it in memory. Start at
// [Exchange]. A front door reads the request, calls the host, and answers with exactly one of
// Respond, Stream and StreamSized.
package exchange

import (
	"context"
	"io"
	"net/url"
)

// Exchange is one request and its answer.
//
// It belongs to the goroutine that runs the handler. Strings it returns are copies and stay valid.
// An error that the handler returns is answered by its front door; a panic is answered 500 by the
// server.
type Exchange interface {
	Request
	Response
	Resources
}

// Request is the request of a client.
type Request interface {
	// Context ends when the client has gone, when the server's drain limit has passed, or when the
	// answer is complete.
	Context() context.Context
	// Serving ends when the server begins to stop. A handler that only waits for an event then stops
	// waiting, and answers with the data that it has.
	Serving() context.Context
	// RequestID names the request in logs and in the X-Request-Id header of its answer, which the
	// server sets.
	RequestID() string
	// Operation names the git operation that the request turned out to be, for metrics, traces and the
	// audit log; a later call replaces an earlier one. Without a call the request is none, and the
	// audit log has what its route says. It is called by the goroutine of the handler or of the write
	// function of Stream.
	Operation(name Operation)
	// RemoteAddr is the address of the client: "host:port" of the peer, or the host alone that a
	// trusted proxy names.
	RemoteAddr() string

	// Scheme is "http" or "https", as the client has used it: a trusted proxy names it in
	// X-Forwarded-Proto.
	Scheme() string

	// Method is upper case. Answer HEAD as GET: the server leaves out the body.
	Method() string
	// Path is the decoded path. A path with a backslash, a dot segment or a control byte never gets
	// here, escaped or not, and one with an escaped slash only where the path names the repository.
	Path() string
	// PathValue returns the part of the path that stands for {name} in the path of the route, decoded;
	// "" if the route has no such part.
	PathValue(name string) string
	// Query is parsed on the first call. The caller must not change it.
	Query() url.Values
	// Header returns the value of a request header, or "" without one. Names are case-insensitive. It
	// is the first value of a repeated header; the server has refused a second Authorization,
	// Content-Length, Content-Encoding, Content-Type, Idempotency-Key and Host.
	Header(name string) string

	// Body reads the request's body up to the limit of the route; with [LimitError] past it,
	// [ErrEndedEarly] when the client ended it early, [ErrSlowBody] when it stalled, and [io.EOF] only
	// at its true end: a write may commit only after it has seen that.
	//
	// The handler reads all of the body before it returns. A short unread rest is then discarded, and
	// a long one ends the connection with the answer. The server could go on reading while the write
	// function of Stream runs, and curl and git would send and receive at once; but most other clients
	// do not, and would wait for ever.
	Body() io.Reader
	// BodyLength is the body's size in bytes as announced, 0 without a body, -1 when it is sent in
	// chunks.
	BodyLength() int64
	// BodyFlows announces that the client sends the rest of the body without long pauses: the pack
	// after the commands of a push, the chunks after the metadata. On a route that allows pauses the
	// body may be silent for [PauseMax] until its next byte has come; afterwards, and on every other
	// route, for [SilenceMax].
	BodyFlows()
}

// Response is the answer. Exactly one of Respond, Stream and StreamSized is called; a later call
// replaces an earlier one, so that a later error can still be answered.
type Response interface {
	// SetHeader sets a header of the answer. The server sets Content-Length, Connection, Date, Server
	// and X-Request-Id.
	SetHeader(name, value string)
	// Respond answers with a whole body. body must not be changed afterwards.
	Respond(status int, contentType string, body []byte)
	// Stream answers with a body of unknown size. write runs once, after the handler has returned,
	// even if the client has gone by then, and when the method is HEAD with a context that has ended.
	// Its output is sent at once, so write 64 to 256 KiB at a time, and less only to keep the client
	// informed. An error, or a panic, in write cuts the connection, so that the answer never looks
	// complete. w is not usable after write returns.
	Stream(status int, contentType string, write func(ctx context.Context, w io.Writer) error)
	// StreamSized is Stream with a Content-Length of size bytes; writing fewer or more cuts the
	// connection.
	StreamSized(status int, contentType string, size int64, write func(ctx context.Context, w io.Writer) error)
	// Failed reports an error that the answer contains in a form of its own, such as the report of a
	// push. It is counted and logged if it is not the client's fault, like an error that the handler
	// or write returns.
	Failed(err error)
	// Refused is Failed for an error that refuses all of the request: the log and the metrics show its
	// status in place of the answer's.
	Refused(err error)
}

// Resources are shared by concurrent requests.
type Resources interface {
	// Slot waits for one of the server's slots for heavy work and returns the function that releases
	// it, which may be called more than once. Hold a slot while work is computed, never while reading
	// the body or writing the answer: the client decides how long those take. It may be called by any
	// goroutine, also after the request has ended, for work that others wait for. Errors: [ErrBusy]
	// when no slot became free in time, or ctx's error.
	Slot(ctx context.Context) (release func(), err error)
	// Reserve admits a request that will hold about sizeBytes of memory, and returns the function that
	// releases it, which may be called more than once. Errors: [ErrBusy] when memory did not become
	// free in time, or ctx's error.
	Reserve(ctx context.Context, sizeBytes int64) (release func(), err error)
}
