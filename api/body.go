package api

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"packhorse/api/exchange"
)

// body is the body of a request. It ends with io.EOF only where the client ended it: fasthttp takes
// the end of the connection for the end of a body (docs/invariants.md 21).
type body struct {
	conn      *conn
	stream    io.Reader // nil without a body
	announced int64     // -1 in chunks
	max       int64
	read      int64 // bytes so far
	flows     bool  // the next byte ends the pauses
	cost      *cost // of the request, which waits for its client here; nil while the rest is discarded
	end       error // once the stream has ended
}

// The limit for the framing of chunks: 16 bytes for each byte of content, plus this.
const (
	framingFactor = 16
	framingBytes  = 1 << 20
)

var errBodyClosed = errors.New("api: the request's body was read after its answer")

// Read implements exchange.Request's Body.
func (b *body) Read(p []byte) (int, error) {
	if b.end != nil || len(p) == 0 {
		return 0, b.end
	}
	if b.stream == nil {
		b.end = io.EOF
		return 0, b.end
	}
	if b.announced < 0 {
		b.conn.bound = framingFactor*(b.read+int64(len(p))) + framingBytes
	}
	b.cost.await()
	n, err := b.stream.Read(p)
	b.read += int64(n)
	if b.cost != nil {
		b.cost.x.pay(n)
	}
	flowing := b.flows && n > 0 || b.read > silentBytes
	if b.flows && n > 0 {
		b.flows = false
		b.conn.flows()
	}
	if b.read > b.max {
		b.end = &exchange.LimitError{Limit: "request body", Max: b.max}
		return 0, b.end
	}
	if err != nil {
		b.end = b.ending(err)
	}
	if refusal := b.cost.goOn(flowing || errors.Is(b.end, io.EOF)); refusal != nil {
		b.end = refusal
		return 0, b.end
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.end
}

// ending translates an error of the stream.
func (b *body) ending(err error) error {
	switch {
	case errors.Is(err, io.EOF) && b.read == b.announced:
		return io.EOF
	case b.conn.stalled && b.cost.sentAway():
		return exchange.ErrBusy
	case b.conn.stalled:
		return exchange.ErrSlowBody
	case b.conn.ended: // the last chunk of a body in chunks precedes the end of the connection
		return exchange.ErrEndedEarly
	case errors.Is(err, io.EOF) && b.announced < 0:
		return io.EOF
	case isConnError(err):
		return exchange.ErrEndedEarly
	default: // the errors of fasthttp about chunks and trailers have no common type
		return exchange.ErrBadBody
	}
}

// isConnError reports whether err is one of the operating system's about the connection.
func isConnError(err error) bool {
	var syscallError *os.SyscallError
	return errors.As(err, &syscallError) || errors.Is(err, net.ErrClosed)
}

// drain reads to the end of the body if it is near, and reports whether it was reached: the chunk
// trailer, or a short rest that the handler left unread. Only then the connection can serve another
// request.
func (b *body) drain() bool {
	b.cost = nil // discarding is free
	if b.end == nil && b.stream != nil && b.announced-b.read <= b.conn.server.limits.DrainBytes {
		b.discard()
	}
	return b.stream == nil || errors.Is(b.end, io.EOF)
}

func (b *body) discard() {
	limits := &b.conn.server.limits
	until := time.Now().Add(limits.DrainWait)
	buffer := discardBuffers.Get().(*[]byte) // the pool makes nothing else
	defer discardBuffers.Put(buffer)
	for left := limits.DrainBytes; b.end == nil && left > 0; {
		if b.conn.silence = time.Until(until); b.conn.silence <= 0 {
			return
		}
		n, _ := b.Read(*buffer)
		left -= int64(n)
	}
}

// close makes later reads fail, because the stream then belongs to the next request.
func (b *body) close() {
	b.stream, b.end = nil, errBodyClosed
}
