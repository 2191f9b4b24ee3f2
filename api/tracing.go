package api

import (
	"errors"
	"net/http"

	"packhorse/odb/span"
)

// follow reads the headers of W3C Trace Context, and puts the trace into the context. What is
// malformed is ignored.
func (x *transfer) follow() {
	header := &x.fast.Request.Header
	if parents := header.PeekAll(span.ParentHeader); len(parents) > 0 {
		x.link = span.Parse(texts(parents), texts(header.PeekAll(span.StateHeader)))
	}
	x.ctx = span.With(x.ctx, x.server.tracer, x.link)
}

// beginSpan begins the span of a request that is going to be answered. endSpan names it.
func (x *transfer) beginSpan() {
	x.ctx, x.span = span.BeginKind(x.ctx, "request", span.Server)
	if x.span != nil {
		x.link = span.From(x.ctx)
	}
}

// endSpan ends the span of a request, with what the log has of it. Of the token it has nothing:
// whoever may see the log finds that there, by the ID of the trace.
func (x *transfer) endSpan(method, label string, status int) {
	if x.span == nil {
		return
	}
	x.span.Rename(method + " " + label)
	x.span.Text("http.request.method", method)
	x.span.Text("http.route", label)
	x.span.Count("http.response.status_code", int64(status))
	x.span.Count("http.request.body.size", x.body.read)
	x.span.Count("http.response.body.size", x.answer.sent)
	x.span.Text("packhorse.request.id", x.id)
	x.span.Text("packhorse.git.operation", string(x.operation))
	if x.grant != nil {
		x.span.Text("packhorse.repository", x.grant.Repo)
	}
	err := x.answer.err
	if err == nil && status >= http.StatusInternalServerError {
		err = errors.New(bounded(x.reason))
	}
	x.span.End(err)
}

// texts copies the values of a header.
func texts(values [][]byte) []string {
	copied := make([]string, len(values))
	for i, value := range values {
		copied[i] = string(value)
	}
	return copied
}
