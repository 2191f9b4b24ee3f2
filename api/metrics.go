package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"packhorse/api/auth"
	"packhorse/engine/pathpolicy"
	"packhorse/refs"
)

// metrics are the metrics of the door in /metrics. No label names an organization or a repository
// (docs/invariants.md 37).
type metrics struct {
	requests *prometheus.CounterVec   // route, method, status
	seconds  *prometheus.HistogramVec // route, method, status_class
	running  prometheus.Gauge
	received prometheus.Counter
	sent     prometheus.Counter
	cut      prometheus.Counter
	panics   prometheus.Counter
	corrupt  prometheus.Counter
	refusals *prometheus.CounterVec // reason
	denials  *prometheus.CounterVec // op

	rateRefusals prometheus.Counter

	slotWait, memoryWait prometheus.Observer
	git                  gitMetrics
}

// Figure is a metric with a value from another package.
type Figure struct {
	Name string // without the prefix "packhorse_"
	Help string
	// Labels are those of the series, with their values; nil for none. Other figures of the name have
	// the same labels with other values, and the same Help.
	Labels map[string]string
	// Counter says that the number only grows.
	Counter bool
	// Value is called by any goroutine, and must not block.
	Value func() float64
}

func (f *Figure) collector() prometheus.Collector {
	options := prometheus.Opts{Namespace: namespace, Name: f.Name, Help: f.Help, ConstLabels: f.Labels}
	if f.Counter {
		return prometheus.NewCounterFunc(prometheus.CounterOpts(options), f.Value)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts(options), f.Value)
}

const namespace = "packhorse"

func newMetrics(s *Server, config *Config) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value)
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "http_requests_total", Help: "Requests answered.",
		}, []string{"route", "method", "status"}),
		seconds: newDurations("http_request_duration_seconds", "Time from the header of a request to the end of the answer.",
			"route", "method", "status_class"),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "http_requests_in_flight", Help: "Requests that have begun and not ended.",
		}),
		received: counter("http_received_bytes_total", "Bytes of request bodies."),
		sent:     counter("http_sent_bytes_total", "Bytes of answers' bodies."),
		cut:      counter("http_answers_cut_total", "Answers that ended before they were whole."),
		panics:   counter("panics_total", "Requests that ended in a panic."),
		corrupt:  counter("corrupt_answers_total", "Requests that met stored bytes which failed a check."),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "token_refusals_total", Help: "Requests whose token was refused, by the reason.",
		}, []string{"reason"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "policy_denials_total", Help: "Changes of refs that a token's policy forbids, by the op.",
		}, []string{"op"}),
		rateRefusals: counter("rate_refusals_total", "Requests refused above the rate of their organization."),
		git:          newGitMetrics(),
	}
	for _, reason := range auth.Reasons() {
		m.refusals.WithLabelValues(reason)
	}
	for _, op := range deniedOps {
		m.denials.WithLabelValues(string(op))
	}
	waits := newDurations("request_queue_seconds", "Time that requests waited for a heavy slot or for memory.", "queue")
	m.slotWait, m.memoryWait = waits.WithLabelValues("slots"), waits.WithLabelValues("memory")
	collectors := []prometheus.Collector{
		m.requests, m.seconds, m.running, m.received, m.sent, m.cut, m.panics, m.corrupt, m.refusals, m.denials, waits,
		m.rateRefusals, m.git.seconds, m.git.received, m.git.sent, buildInfo(config.Version),
		gauge("http_connections", "Open connections.", func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.conns.all))
		}),
		connectionCounter(s, "http_connections_refused_total", prometheus.Labels{"limit": "all"},
			"Connections refused, by the limit.",
			func(c *connections) uint64 { return c.refusedAll }),
		connectionCounter(s, "http_connections_refused_total", prometheus.Labels{"limit": "address"},
			"Connections refused, by the limit.",
			func(c *connections) uint64 { return c.refusedPlace }),
		connectionCounter(s, "http_connections_evicted_total", nil,
			"Connections without a good token that made room for new ones.",
			func(c *connections) uint64 { return c.evicted }),
		gauge("organizations", "Organizations whose tokens are accepted.", func() float64 {
			return float64(s.tokens.OrgCount())
		}),
		gauge("organizations_unread",
			"Paths in the folder of organizations that cannot be read; what was known of them is in force.", func() float64 {
				return float64(s.tokens.Unread())
			}),
		gauge("heavy_slots_used", "Heavy computations running.", func() float64 {
			used, _ := s.slots.State()
			return float64(used)
		}),
		gauge("heavy_slots_waiting", "Requests waiting for a slot.", func() float64 {
			_, waiting := s.slots.State()
			return float64(waiting)
		}),
		gauge("request_memory_bytes", "Memory that running requests are expected to hold.", func() float64 {
			used, _ := s.memory.State()
			return float64(used)
		}),
		gauge("request_memory_waiting", "Requests waiting for memory.", func() float64 {
			_, waiting := s.memory.State()
			return float64(waiting)
		}),
		gauge("request_waiting_bytes", "Memory that requests are expected to hold which wait for their clients.",
			func() float64 {
				used, _ := s.waiting.State()
				return float64(used)
			}),
	}
	for i := range config.Figures {
		collectors = append(collectors, config.Figures[i].collector())
	}
	for _, d := range config.Durations {
		collectors = append(collectors, d.histogram)
	}
	for _, c := range collectors {
		if err := s.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func connectionCounter(
	s *Server, name string, labels prometheus.Labels, help string, value func(*connections) uint64,
) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: labels,
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(value(&s.conns))
	})
}

// textBytesMax bounds the text from a client, such as a header or the reason of a refusal, in a log
// line.
const textBytesMax = 300

func bounded(text string) string { return text[:min(len(text), textBytesMax)] }

// count counts an answer of a route.
func (s *Server) count(label, method string, status int, took time.Duration) {
	s.metrics.requests.WithLabelValues(label, method, strconv.Itoa(status)).Inc()
	s.metrics.seconds.WithLabelValues(label, method, statusClass(status)).Observe(took.Seconds())
}

// deniedOps are the ops whose denials are counted by name. A token may have any other text as an
// op, which counts as "other".
var deniedOps = []refs.Op{refs.NoPush, refs.NoForcePush, refs.VerifySig, pathpolicy.NoWrite, otherOp}

const otherOp refs.Op = "other"

// countDenial counts err if it is the refusal of a policy.
func (m *metrics) countDenial(err error) {
	denied, ok := errors.AsType[*refs.DeniedError](err)
	if !ok {
		return
	}
	op := otherOp
	if slices.Contains(deniedOps, denied.Op) {
		op = denied.Op
	}
	m.denials.WithLabelValues(string(op)).Inc()
}

// account counts and logs a request that has ended. Neither its query nor any header but the user
// agent is logged, so that no secret can be.
func (s *Server) account(x *transfer) {
	took := time.Since(x.started)
	label, method := "none", x.method
	if x.endpoint != nil {
		label = x.endpoint.label
	} else if !knownMethod(method) {
		method = "other"
	}
	status := cmp.Or(x.refusedAs, x.answer.status)
	s.count(label, method, status, took)
	x.endSpan(method, label, status)
	s.metrics.received.Add(float64(x.body.read))
	s.metrics.sent.Add(float64(x.answer.sent))
	s.metrics.running.Dec()
	if x.answer.err != nil {
		s.metrics.cut.Inc()
	}
	if x.operation != "" {
		s.metrics.git.count(x, status, took)
	}
	if !s.logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("request_id", x.id),
		slog.String("remote", x.RemoteAddr()),
		slog.String("method", x.method),
		slog.String("path", x.path),
		slog.Int("status", status),
		slog.Int64("received_bytes", x.body.read),
		slog.Int64("sent_bytes", x.answer.sent),
		slog.Duration("took", took),
		slog.String("user_agent", bounded(x.Header("User-Agent"))),
	)
	if x.link.IsValid() {
		attrs = append(attrs, slog.String("trace_id", x.link.TraceID()))
	}
	if x.client != x.conn.peer {
		attrs = append(attrs, slog.String("proxy", x.conn.RemoteAddr().String()))
	}
	if g := x.grant; g != nil {
		attrs = append(attrs, slog.String("org", g.Org), slog.String("repo", g.Repo), slog.String("sub", g.Subject),
			slog.String("kid", g.KeyID))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", string(x.code)))
	}
	if x.reason != "" {
		attrs = append(attrs, slog.String("error", bounded(x.reason)))
	}
	if x.answer.err != nil {
		attrs = append(attrs, slog.String("cut", x.answer.err.Error()))
	}
	s.logger.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

func knownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return true
	}
	return false
}
