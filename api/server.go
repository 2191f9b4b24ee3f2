// Package api is the server: it accepts connections, checks requests against the routes, their
// tokens and the limits, and joins the front doors to the host.
//
// Start at [NewServer]. The table of routes is data, in routes.go. A request goes through serve.go:
// its header is checked (request.go), its endpoint found (route.go, namedpath.go), its token
// verified and its organization held to its rate (rates.go), its body wrapped (body.go), its
// handler run, and its answer written (answer.go). origins.go lets the pages of other origins read
// it. audit.go makes the records of the audit log. conn.go tracks the state of each connection and
// its time limits; watch.go cancels requests whose clients have gone. mcp.go joins the door
// api/mcp, and inner.go runs the calls of the API that a request through it makes. documents.go
// describes the table, and serves the descriptions; console.go serves the files of the console.
//
// fasthttp parses HTTP/1.1 and is used by no other package. It leaves body limits, truncation, time
// limits, unread bodies and panics to its user: invariants 21 to 29 of docs/invariants.md are
// enforced here, and tested on raw connections.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/valyala/fasthttp"

	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/console"
	"packhorse/api/exchange"
	"packhorse/api/openapi"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/odb/span"
)

// Config is the configuration of a server. Tokens, Refuse and Git are required.
type Config struct {
	Tokens *auth.Verifier
	Routes []Route // see [Routes]
	Refuse Refuse  // renders errors on Routes and on paths that are not known
	Git    Git
	// Documents are served to everybody; see [Documents]. They are not changed any more.
	Documents []openapi.File
	// Console are the files of the console, on the public listener and that of [Server.Admin]; none
	// turn it off. They are not changed any more.
	Console []console.File

	// Ready returns an error if the stores cannot serve; nil means that they always can. It must not
	// block.
	Ready func() error
	// Writable returns an error if writes are refused; nil means that they never are. The error
	// answers requests that write, before their bodies are read. It must not block.
	Writable func() error
	// Damage returns the number of damaged items found; nil means none. It must not block.
	Damage func() int
	// TLS makes Serve speak TLS. Its NextProtos are replaced: HTTP/1.1 is the only protocol.
	TLS *tls.Config
	// TrustedProxies are the networks of proxies that append the address of their client to
	// X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// Origins are the web origins whose pages may use the API and speak git, with tokens that they
	// bring; see [CheckOrigins]. None by default.
	Origins []string
	// Metrics is the registry of the server and of /metrics; by default one of its own, with the
	// metrics of the runtime and of the process.
	Metrics *prometheus.Registry
	// Audit gets a record of each request; nil means none. The caller closes it after Shutdown.
	Audit *audit.Writer
	// Figures are shown beside the server's metrics.
	Figures []Figure
	// Durations are, too.
	Durations []*Durations
	// Private moves /metrics off the public listener, to [Server.Admin].
	Private bool

	// Tracer records a span of each request; nil for none.
	Tracer span.Tracer

	// Processors are shared out among requests, and with what else takes turns there; all of the
	// machine's by default.
	Processors *fair.Processors

	Limits  Limits
	Now     func() time.Time // the clock of the rates of organizations; time.Now by default
	Logger  *slog.Logger     // slog.Default by default
	Version string           // of the program, for clients to show
}

// Server serves HTTP. Its methods may be called concurrently.
type Server struct {
	limits   Limits
	logger   *slog.Logger
	tokens   *auth.Verifier
	table    *table
	refuse   Refuse
	ready    func() error
	writable func() error
	damage   func() int
	tls      *tls.Config
	proxies  proxies
	origins  origins
	// preflight answers browsers that ask about a request of a page.
	preflight *endpoint
	registry  *prometheus.Registry
	private   bool
	audit     *audit.Writer // nil: there is no audit log
	console   []console.File
	tracer    span.Tracer // nil: none

	fast    *fasthttp.Server
	slots   *fair.Queue
	memory  *fair.Queue // of requests that work
	waiting *fair.Queue // memory of requests that wait for their clients

	rates      *rates // of organizations
	processors *fair.Processors
	metrics    *metrics
	ids        *ids

	ctx    context.Context // of every request; its cause says why all were cancelled
	cancel context.CancelCauseFunc

	leaving atomic.Bool     // see Leave
	serving context.Context // ends with the beginning of Shutdown, which calls drain
	drain   context.CancelFunc

	mu        sync.Mutex
	conns     connections    // guarded by mu
	listeners []net.Listener // guarded by mu
	stopping  bool           // guarded by mu; serving has ended
	empty     chan struct{}  // guarded by mu; closed when stopping and the last conn has gone
	isEmpty   bool           // guarded by mu; empty is closed
	watching  bool           // guarded by mu
	watcher   sync.WaitGroup
}

// NewServer makes a server that waits for Serve.
func NewServer(config Config) (*Server, error) {
	if config.Tokens == nil || config.Refuse == nil || config.Git.Serve == nil || config.Git.Refuse == nil {
		return nil, errors.New("api: the server needs tokens and two doors")
	}
	if err := CheckOrigins(config.Origins); err != nil {
		return nil, err
	}
	config.Limits.setDefaults()
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Ready == nil {
		config.Ready = func() error { return nil }
	}
	if config.Writable == nil {
		config.Writable = func() error { return nil }
	}
	if config.Damage == nil {
		config.Damage = func() int { return 0 }
	}
	if config.Processors == nil {
		config.Processors = fair.NewProcessors(0)
	}
	if config.Metrics == nil {
		config.Metrics = prometheus.NewRegistry()
		config.Metrics.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	queue := func(capacity, repoShare int64) fair.Options {
		return fair.Options{
			Capacity: capacity, RepoShare: repoShare, Waiting: config.Limits.QueueCount, Wait: config.Limits.QueueWait,
		}
	}
	t, err := newTable(&config)
	if err != nil {
		return nil, err
	}
	s := &Server{
		limits:     config.Limits,
		logger:     config.Logger,
		tokens:     config.Tokens,
		table:      t,
		refuse:     config.Refuse,
		ready:      config.Ready,
		writable:   config.Writable,
		damage:     config.Damage,
		registry:   config.Metrics,
		private:    config.Private,
		audit:      config.Audit,
		console:    config.Console,
		tracer:     config.Tracer,
		proxies:    config.TrustedProxies,
		origins:    config.Origins,
		slots:      fair.NewQueue(queue(int64(config.Limits.HeavySlots), repoQuarters)),
		memory:     fair.NewQueue(queue(config.Limits.MemoryBytes, repoQuarters)),
		waiting:    fair.NewQueue(queue(max(1, config.Limits.MemoryBytes/waitsShare), repoQuarters)),
		rates:      newRates(config.Now, config.Tokens.OrgConfig),
		processors: config.Processors,
		ids:        newIDs(),
		conns:      connections{all: make(map[*conn]struct{}), places: make(map[netip.Prefix]int)},
		empty:      make(chan struct{}),
	}
	if config.TLS != nil {
		s.tls = config.TLS.Clone()
		s.tls.NextProtos = []string{"http/1.1"}
		s.tls.MinVersion = max(s.tls.MinVersion, tls.VersionTLS12)
	}
	if s.metrics, err = newMetrics(s, &config); err != nil {
		return nil, err
	}
	for _, e := range slices.Concat(
		s.health(), documents(config.Documents), consoleEndpoints(config.Console), []*endpoint{s.mcp(config.Version)},
	) {
		if err := t.add(config.Refuse, e); err != nil {
			return nil, err
		}
	}
	s.preflight = s.origins.preflight()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.serving, s.drain = context.WithCancel(context.Background())
	s.fast = &fasthttp.Server{
		Handler: s.guard(s.serve),
		ExpectHandler: func(fast *fasthttp.RequestCtx) int {
			status := http.StatusInternalServerError
			s.guard(func(fast *fasthttp.RequestCtx) { status = s.expect(fast) })(fast)
			return status
		},
		ErrorHandler: func(fast *fasthttp.RequestCtx, err error) {
			s.guard(func(fast *fasthttp.RequestCtx) { s.malformed(fast, err) })(fast)
		},
		ConnState: connState,
		// One byte of a body is read before the handler sees the request, and no more (HeaderReceived
		// cannot say none).
		MaxRequestBodySize:           1,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReadBufferSize:               headerBytesMax,
		WriteBufferSize:              writeBufferBytes,
		ReduceMemoryUsage:            true, // lets others use the write buffer of an idle connection
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		Name:                         "packhorse",
		Logger:                       quiet{s.logger},
	}
	return s, nil
}

func connState(c net.Conn, state fasthttp.ConnState) {
	if state == fasthttp.StateIdle {
		connOf(c).beginIdle()
	}
}

// quiet logs the messages of fasthttp at debug level: all are about single connections.
type quiet struct{ logger *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, args ...any) {
	q.logger.Debug("connection", "message", fmt.Sprintf(format, args...))
}

// Serve accepts connections until Shutdown, when it returns nil, or until the listener fails for
// good. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners = append(s.listeners, l)
	if !s.watching {
		s.watching = true
		rescue.Keep(s.ctx, &s.watcher, watchInterval, s.watch, func(err error) { s.logger.Error("panic", "error", err) })
	}
	s.mu.Unlock()
	if s.tls == nil && !isLoopback(l.Addr()) {
		s.logger.Warn("serving without TLS on a non-loopback address", "address", l.Addr().String())
	}
	err := s.fast.Serve(&listener{Listener: l, server: s})
	_ = l.Close()
	return err
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// Leave makes /readyz report that the server is draining, and ends each connection with its next
// answer. Everything is still served, also on new connections, until Shutdown, so that load
// balancers notice in time.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown stops accepting, ends idle connections, and lets running requests finish until ctx ends.
// Then it cancels the running requests, gives them [Limits].CancelWait to answer, and cuts the
// rest. It returns nil when no request was cut, else ctx's error. No connection is hijacked, so all
// of them are counted.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		s.drain()
		for _, l := range s.listeners {
			_ = l.Close()
		}
		if len(s.conns.all) == 0 {
			s.isEmpty = true
			close(s.empty)
		}
	}
	s.mu.Unlock()
	defer s.watcher.Wait()
	defer s.cancel(exchange.ErrDraining)

	if s.emptied(ctx) {
		return nil
	}
	s.cancel(exchange.ErrDraining)
	grace, stop := context.WithTimeout(context.Background(), s.limits.CancelWait)
	defer stop()
	if s.emptied(grace) {
		return nil
	}
	for _, c := range s.connections() {
		c.abort()
	}
	return ctx.Err()
}

// idleSweep is the interval at which connections that became idle during the stop are closed.
const idleSweep = 20 * time.Millisecond

// emptied ends connections as they become idle, and reports whether none was left before ctx ended.
func (s *Server) emptied(ctx context.Context) bool {
	ticker := time.NewTicker(idleSweep)
	defer ticker.Stop()
	for {
		for _, c := range s.connections() {
			c.stopIdle()
		}
		select {
		case <-s.empty:
			return true
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns.all))
	for c := range s.conns.all {
		all = append(all, c)
	}
	return all
}
