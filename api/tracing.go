package api

import (
	"packhorse/odb/span"
)

// follow reads the headers of W3C Trace Context, and puts the trace into the context. What is
// malformed is ignored.
func (x *transfer) follow() {
	header := &x.fast.Request.Header
	if parents := header.PeekAll(span.ParentHeader); len(parents) > 0 {
		x.link = span.Parse(texts(parents), texts(header.PeekAll(span.StateHeader)))
		x.ctx = span.With(x.ctx, nil, x.link)
	}
}

// texts copies the values of a header.
func texts(values [][]byte) []string {
	copied := make([]string, len(values))
	for i, value := range values {
		copied[i] = string(value)
	}
	return copied
}
