// Package exchangetest is an [exchange.Exchange] in memory, for the tests of the front doors.
//
//	x := exchangetest.New("POST", "/api/v1/repos?x=1", strings.NewReader(`{}`))
//	err := door.Create(x, grant)
//	answer, err := x.Finish()
package exchangetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"packhorse/api/exchange"
)

// Exchange is one request with its answer in memory. Its exported fields may be changed before it
// is handled.
type Exchange struct {
	Ctx            context.Context // Background by default
	ServingCtx     context.Context // the result of Serving, Background by default
	RequestHeaders http.Header     // of the request
	// The result of BodyLength; New fills it in for bytes.Reader, bytes.Buffer and strings.Reader.
	Length     int64
	PathValues map[string]string // the results of PathValue
	SlotErr    error             // the error of Slot
	ReserveErr error             // the error of Reserve
	Failures   []error           // the arguments of Failed and Refused

	method string
	url    *url.URL
	query  url.Values
	body   io.Reader
	flows  bool

	operations []exchange.Operation

	headers http.Header
	status  int
	whole   []byte
	size    int64
	write   func(ctx context.Context, w io.Writer) error
	slots   atomic.Int64
	memory  atomic.Int64
}

var _ exchange.Exchange = (*Exchange)(nil)

// New makes a request. target is a path with an optional query; body may be nil. It panics on a
// target that is no URL.
func New(method, target string, body io.Reader) *Exchange {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		panic(fmt.Sprintf("exchangetest: target %q: %v", target, err))
	}
	x := &Exchange{
		Ctx: context.Background(), ServingCtx: context.Background(), RequestHeaders: http.Header{},
		method: method, url: u, body: body, headers: http.Header{},
	}
	switch body := body.(type) {
	case nil:
		x.body = http.NoBody
	case interface{ Len() int }:
		x.Length = int64(body.Len())
	default:
		x.Length = -1
	}
	return x
}

// Context returns Ctx.
func (x *Exchange) Context() context.Context { return x.Ctx }

// Serving returns ServingCtx.
func (x *Exchange) Serving() context.Context { return x.ServingCtx }

// RequestID is the same for every request.
func (x *Exchange) RequestID() string { return "test-request" }

// Operation is recorded for Operations.
func (x *Exchange) Operation(name exchange.Operation) { x.operations = append(x.operations, name) }

// Operations returns what the handler, and the stream, have called Operation with.
func (x *Exchange) Operations() []exchange.Operation { return x.operations }

// RemoteAddr is the same for every request.
func (x *Exchange) RemoteAddr() string { return "192.0.2.1:1234" }

// Scheme is that of every request.
func (x *Exchange) Scheme() string { return "http" }

// Method returns the method given to New.
func (x *Exchange) Method() string { return x.method }

// Path returns the path of the target, decoded.
func (x *Exchange) Path() string { return x.url.Path }

// PathValue returns a value of PathValues.
func (x *Exchange) PathValue(name string) string { return x.PathValues[name] }

// Query returns the query of the target.
func (x *Exchange) Query() url.Values {
	if x.query == nil {
		x.query = x.url.Query()
	}
	return x.query
}

// Header returns the first value of a header in RequestHeaders.
func (x *Exchange) Header(name string) string { return x.RequestHeaders.Get(name) }

// Body returns the body given to New. To play a client that stops, wrap a reader that fails.
func (x *Exchange) Body() io.Reader { return x.body }

// BodyLength returns Length.
func (x *Exchange) BodyLength() int64 { return x.Length }

// BodyFlows is recorded for Flows.
func (x *Exchange) BodyFlows() { x.flows = true }

// Flows reports whether the handler called BodyFlows.
func (x *Exchange) Flows() bool { return x.flows }

// SetHeader sets a header of the answer.
func (x *Exchange) SetHeader(name, value string) { x.headers.Set(name, value) }

// Respond keeps the answer for Finish.
func (x *Exchange) Respond(status int, contentType string, body []byte) {
	x.answer(status, contentType, int64(len(body)))
	x.whole = body
}

// Stream keeps write for Finish.
func (x *Exchange) Stream(status int, contentType string, write func(ctx context.Context, w io.Writer) error) {
	x.answer(status, contentType, -1)
	x.write = write
}

// StreamSized keeps write for Finish.
func (x *Exchange) StreamSized(
	status int, contentType string, size int64, write func(ctx context.Context, w io.Writer) error,
) {
	x.answer(status, contentType, size)
	x.write = write
}

// Failed adds to Failures.
func (x *Exchange) Failed(err error) { x.Failures = append(x.Failures, err) }

// Refused adds to Failures.
func (x *Exchange) Refused(err error) { x.Failed(err) }

func (x *Exchange) answer(status int, contentType string, size int64) {
	x.status, x.size, x.whole, x.write = status, size, nil, nil
	x.headers.Del("Content-Type")
	if contentType != "" {
		x.headers.Set("Content-Type", contentType)
	}
}

// Slot counts the slots in use. It fails with SlotErr.
func (x *Exchange) Slot(ctx context.Context) (func(), error) {
	if err := errors.Join(x.SlotErr, ctx.Err()); err != nil {
		return nil, err
	}
	x.slots.Add(1)
	return sync.OnceFunc(func() { x.slots.Add(-1) }), nil
}

// Reserve counts the memory in use. It fails with ReserveErr.
func (x *Exchange) Reserve(ctx context.Context, sizeBytes int64) (func(), error) {
	if err := errors.Join(x.ReserveErr, ctx.Err()); err != nil {
		return nil, err
	}
	x.memory.Add(sizeBytes)
	return sync.OnceFunc(func() { x.memory.Add(-sizeBytes) }), nil
}

// Answer is the answer that the client would have received.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Chunks [][]byte // the writes of a stream, one by one
}

// Finish runs the stream, if any, and returns the answer. Its error is one that would have cut the
// connection, or a violation of the rules of [exchange.Exchange] by the handler: it did not answer,
// or it kept a slot or memory.
func (x *Exchange) Finish() (*Answer, error) {
	if x.status == 0 {
		return nil, errors.New("exchangetest: the handler did not answer")
	}
	answer := &Answer{Status: x.status, Header: x.headers, Body: x.whole}
	var err error
	switch {
	case x.write == nil:
	case x.method == http.MethodHead: // it gives back what it holds
		ended, end := context.WithCancel(x.Ctx)
		end()
		_ = x.write(ended, io.Discard)
	default:
		err = x.write(x.Ctx, (*recorder)(answer))
		if err == nil && x.size >= 0 && int64(len(answer.Body)) != x.size {
			err = fmt.Errorf("exchangetest: %d bytes written, %d announced", len(answer.Body), x.size)
		}
	}
	if x.size >= 0 {
		answer.Header.Set("Content-Length", strconv.FormatInt(x.size, 10))
	}
	if x.method == http.MethodHead {
		answer.Body = nil
	}
	if slots, memory := x.slots.Load(), x.memory.Load(); slots != 0 || memory != 0 {
		err = errors.Join(err, fmt.Errorf("exchangetest: %d slots and %d bytes of memory were not given back", slots, memory))
	}
	return answer, err
}

type recorder Answer

func (r *recorder) Write(p []byte) (int, error) {
	r.Body = append(r.Body, p...)
	r.Chunks = append(r.Chunks, bytes.Clone(p))
	return len(p), nil
}
