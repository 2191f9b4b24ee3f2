package api

import (
	"context"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/odb/fair"
	"packhorse/odb/span"
)

// transfer is the [exchange.Exchange] of one request over fasthttp. It returns copies: fasthttp
// reuses its buffers for the next request.
type transfer struct {
	server  *Server
	fast    *fasthttp.RequestCtx
	conn    *conn
	client  netip.Addr // the client: the connection's peer, or the address named by a trusted proxy
	ctx     context.Context
	cancel  context.CancelCauseFunc
	id      string
	method  string
	path    string
	named   []string // the segments behind namedPrefix, in the family where the path names the repository
	parts   map[string]string
	query   string
	values  url.Values
	started time.Time
	body    body
	span    *span.Span // nil without a tracer
	link    span.Link  // of the request's span, or of the one that it came with; zero without both

	endpoint   *endpoint // nil until it is found
	refuse     Refuse    // of the door that the path belongs to
	git        exchange.GitPath
	grant      *auth.Grant   // nil until the token is verified
	identified time.Duration // what that took

	operation exchange.Operation // "" for none

	answer    answer
	account   *fair.Account // of its computing time; nil where no token is asked for
	unpaid    atomic.Int64  // bytes of pay that are not charged yet
	cost      cost          // the memory for its route
	holding   fair.Holding  // and for its growth
	answering atomic.Bool   // the answer is being written
	reason    string        // the cause of a refusal or a failure, for the log
	// refusedAs is the status of a refusal that the answer contains in a form of its own, 0 when there
	// is none.
	refusedAs int
	action    string             // see suppose; "" for that of the operation or of the endpoint
	code      code.Code          // of the first error; "" for none
	changes   *audit.Changes     // nil without an audit log
	free      map[*held]struct{} // resources of Reserve and Slot that are not released yet
	freeing   sync.Mutex         // guards free
	patience  *time.Timer        // cancels ctx when the answer does not begin in time; may be nil
}

var _ exchange.Exchange = (*transfer)(nil)

// newTransfer begins a request. It fails if the request is invalid for every endpoint; the transfer
// can be answered even then.
func (s *Server) newTransfer(fast *fasthttp.RequestCtx) (*transfer, error) {
	x := &transfer{
		server:  s,
		refuse:  s.refuse,
		fast:    fast,
		conn:    connOf(fast.Conn()),
		id:      s.ids.next(),
		method:  string(fast.Request.Header.Method()),
		started: time.Now(),
	}
	s.metrics.running.Inc()
	x.client = x.conn.peer
	if s.proxies.trusted(x.client) {
		x.client = s.proxies.client(x.client, fast.Request.Header.PeekAll("X-Forwarded-For"))
	}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	if s.audit != nil {
		x.ctx, x.changes = audit.Collect(x.ctx, x.id)
	}
	x.follow()
	x.body = body{
		conn: x.conn, announced: int64(fast.Request.Header.ContentLength()), max: s.limits.JSONBytes, cost: &x.cost,
	}
	x.cost.x = x
	if stream := fast.RequestBodyStream(); stream != nil {
		x.body.stream = stream
	}
	if x.body.announced == -2 { // neither length nor chunks: no body
		x.body.announced = 0
	}
	if err := checkHeader(&fast.Request.Header); err != nil {
		return x, err
	}
	var err error
	var path string
	if path, x.query, err = splitTarget(string(fast.Request.Header.RequestURI()), s.limits.URLBytes); err != nil {
		return x, err
	}
	if x.path, x.named, err = decodePath(path); err != nil {
		return x, err
	}
	s.origins.allow(x)
	if x.named != nil && isGitPath(x) {
		x.named = nil
	}
	if x.query != "" {
		if x.values, err = url.ParseQuery(x.query); err != nil {
			return x, errQuery
		}
	}
	return x, nil
}

// Context implements [exchange.Request].
func (x *transfer) Context() context.Context { return x.ctx }

// Serving implements [exchange.Request].
func (x *transfer) Serving() context.Context { return x.server.serving }

// RequestID implements [exchange.Request].
func (x *transfer) RequestID() string { return x.id }

// RemoteAddr implements [exchange.Request].
func (x *transfer) RemoteAddr() string {
	if x.client != x.conn.peer {
		return x.client.String()
	}
	return x.conn.RemoteAddr().String()
}

// Scheme implements [exchange.Request].
func (x *transfer) Scheme() string {
	if x.server.proxies.trusted(x.conn.peer) {
		if scheme := x.Header("X-Forwarded-Proto"); scheme == "http" || scheme == "https" {
			return scheme
		}
	}
	if x.server.tls != nil {
		return "https"
	}
	return "http"
}

// Method implements [exchange.Request].
func (x *transfer) Method() string { return x.method }

// Path implements [exchange.Request].
func (x *transfer) Path() string { return x.path }

// PathValue implements [exchange.Request].
func (x *transfer) PathValue(name string) string { return x.parts[name] }

// Query implements [exchange.Request].
func (x *transfer) Query() url.Values { return x.values }

// Header implements [exchange.Request].
func (x *transfer) Header(name string) string { return string(x.fast.Request.Header.Peek(name)) }

// BodyLength implements [exchange.Request].
func (x *transfer) BodyLength() int64 { return x.body.announced }

// BodyFlows implements [exchange.Request].
func (x *transfer) BodyFlows() { x.body.flows = true }

// finish ends the request, which must not be used afterwards. It is called once, by the goroutine
// that served it.
func (x *transfer) finish() {
	x.stopPatience()
	x.conn.current.Store(nil)
	x.cancel(context.Canceled)
	x.body.close()
	x.cost.end()
	x.holding.Close()
	x.freeing.Lock()
	free := x.free
	x.free = nil
	x.freeing.Unlock()
	for h := range free {
		h.release()
	}
	for _, tell := range []func(*transfer){x.server.account, x.server.audited} {
		_ = x.run(func() error { tell(x); return nil }) // a panic is logged
	}
}

// stopPatience is called when the answer begins.
func (x *transfer) stopPatience() {
	if x.patience != nil {
		x.patience.Stop()
	}
}
