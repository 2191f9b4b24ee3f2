package exchangetest

import (
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

// Handler lets a front door answer real clients over net/http. handle answers a request; refuse
// answers the error of one that has not been answered. Bodies stream both ways, and a stream that
// fails is cut off.
func Handler(handle func(exchange.Exchange) error, refuse func(exchange.Exchange, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &served{w: w, r: r}
		if err := handle(x); err != nil {
			refuse(x, err)
		}
		x.send()
	})
}

// served is an exchange with a client of net/http.
type served struct {
	w http.ResponseWriter
	r *http.Request

	answered bool
	status   int
	size     int64 // announced; -1 for chunks
	whole    []byte
	write    func(ctx context.Context, w io.Writer) error
	held     atomic.Int64
}

var _ exchange.Exchange = (*served)(nil)

func (x *served) Context() context.Context             { return x.r.Context() }
func (x *served) Serving() context.Context             { return context.Background() }
func (x *served) RequestID() string                    { return "test-request" }
func (x *served) Operation(exchange.Operation)         {}
func (x *served) RemoteAddr() string                   { return x.r.RemoteAddr }
func (x *served) Scheme() string                       { return "http" }
func (x *served) Method() string                       { return x.r.Method }
func (x *served) Path() string                         { return x.r.URL.Path }
func (x *served) PathValue(string) string              { return "" }
func (x *served) Query() url.Values                    { return x.r.URL.Query() }
func (x *served) Body() io.Reader                      { return x.r.Body }
func (x *served) BodyLength() int64                    { return x.r.ContentLength }
func (x *served) BodyFlows()                           {}
func (x *served) SetHeader(name, value string)         { x.w.Header().Set(name, value) }
func (x *served) Failed(error)                         {}
func (x *served) Refused(error)                        {}
func (x *served) Slot(context.Context) (func(), error) { return x.hold() }

func (x *served) Reserve(context.Context, int64) (func(), error) { return x.hold() }

func (x *served) Header(name string) string {
	if name == "Host" { // net/http keeps it elsewhere
		return x.r.Host
	}
	return x.r.Header.Get(name)
}

func (x *served) hold() (func(), error) {
	x.held.Add(1)
	return sync.OnceFunc(func() { x.held.Add(-1) }), nil
}

func (x *served) Respond(status int, contentType string, body []byte) {
	x.answer(status, contentType, int64(len(body)))
	x.whole = body
}

func (x *served) Stream(status int, contentType string, write func(ctx context.Context, w io.Writer) error) {
	x.answer(status, contentType, -1)
	x.write = write
}

func (x *served) StreamSized(
	status int, contentType string, size int64, write func(ctx context.Context, w io.Writer) error,
) {
	x.answer(status, contentType, size)
	x.write = write
}

func (x *served) answer(status int, contentType string, size int64) {
	x.answered, x.status, x.size, x.whole, x.write = true, status, size, nil, nil
	x.w.Header().Set("Content-Type", contentType)
}

// send is called when the handler has returned. Its panics appear in the server's log, which tests
// include in their own.
func (x *served) send() {
	if !x.answered {
		panic("exchangetest: the handler did not answer")
	}
	if x.size >= 0 {
		x.w.Header().Set("Content-Length", strconv.FormatInt(x.size, 10))
	}
	x.w.WriteHeader(x.status)
	var err error
	switch {
	case x.r.Method == http.MethodHead:
	case x.write != nil:
		err = x.write(x.r.Context(), &flushed{x.w, http.NewResponseController(x.w)})
	default:
		_, err = x.w.Write(x.whole)
	}
	if held := x.held.Load(); held != 0 {
		panic(fmt.Sprintf("exchangetest: %d slots or reservations were not given back", held))
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flushed flushes after every write.
type flushed struct {
	w       io.Writer
	control *http.ResponseController
}

func (f *flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.control.Flush())
}
