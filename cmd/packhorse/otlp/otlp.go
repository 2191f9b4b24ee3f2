// Package otlp records spans with the SDK of OpenTelemetry, and sends them to a collector by
// OTLP over HTTP.
//
// Start at [Open]. It is the [span.Tracer] of a server that is told of a collector; no other
// package knows the SDK. A collector that is away costs nothing but the spans: they wait in a queue
// of bounded length, are tried again, and are dropped.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"packhorse/odb/span"
)

// Options of [Open]. Endpoint is required.
type Options struct {
	// Endpoint is the URL of a collector, without the path /v1/traces or with a path of its own.
	Endpoint string
	// Ratio is the share of traces that are recorded of those that begin here, 0 to 1. A request that
	// comes with a trace is recorded if its caller records it.
	Ratio   float64
	Version string // of the program
	Logger  *slog.Logger
}

// Tracer is a [span.Tracer]. Its methods may be called concurrently.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

var _ span.Tracer = (*Tracer)(nil)

// tracesPath is where a collector takes spans.
const tracesPath = "/v1/traces"

// CheckEndpoint returns the URL to which spans are sent. The error says what was expected.
func CheckEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q is no URL of a collector: expected one as in http://127.0.0.1:4318", text)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// Open begins to send spans to a collector. It does not wait for it. What else the exporter and the
// SDK read from OTEL_ variables is in force: headers, certificates, timeouts, sizes of queues, the
// name of the service. The caller closes the tracer.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	endpoint, err := CheckEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the exporter of spans: %w", err)
	}
	otel.SetErrorHandler(&complaints{logger: o.Logger})
	return New(ctx, sdk.NewBatchSpanProcessor(exporter), o)
}

// New is Open with another receiver of spans.
func New(ctx context.Context, to sdk.SpanProcessor, o Options) (*Tracer, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "packhorse"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSpanProcessor(to), sdk.WithResource(about), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Ratio))))
	return &Tracer{provider: provider, tracer: provider.Tracer("packhorse", trace.WithInstrumentationVersion(o.Version))}, nil
}

// Close sends the spans that have ended until ctx ends, and drops the rest.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

var kinds = map[span.Kind]trace.SpanKind{
	span.Internal: trace.SpanKindInternal, span.Server: trace.SpanKindServer, span.Client: trace.SpanKindClient,
}

// Begin implements [span.Tracer].
func (t *Tracer) Begin(parent span.Link, name string, kind span.Kind) span.Recorder {
	ctx := context.Background()
	if parent.IsValid() {
		// One that no collector would take, such as a tracestate that we take and the SDK does not, is
		// left out.
		state, _ := trace.ParseTraceState(parent.State)
		config := trace.SpanContextConfig{
			TraceID: parent.Trace, SpanID: parent.Span, TraceState: state, Remote: parent.Remote,
		}
		if parent.Sampled {
			config.TraceFlags = trace.FlagsSampled
		}
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(config))
	}
	_, begun := t.tracer.Start(ctx, name, trace.WithSpanKind(kinds[kind]))
	return &recorder{begun, parent.State}
}

// recorder is a [span.Recorder].
type recorder struct {
	span  trace.Span
	state string // passed on as it came
}

func (r *recorder) Link() span.Link {
	c := r.span.SpanContext()
	return span.Link{Trace: c.TraceID(), Span: c.SpanID(), Sampled: c.IsSampled(), State: r.state}
}

func (r *recorder) Rename(name string) { r.span.SetName(name) }

func (r *recorder) Text(key, value string) {
	r.span.SetAttributes(attribute.String(key, strings.ToValidUTF8(value, "\ufffd")))
}

func (r *recorder) Count(key string, value int64) { r.span.SetAttributes(attribute.Int64(key, value)) }

func (r *recorder) End(err error) {
	if err != nil {
		text := strings.ToValidUTF8(err.Error(), "\ufffd")
		r.span.SetStatus(codes.Error, text[:min(len(text), errorBytesMax)])
	}
	r.span.End()
}

// errorBytesMax bounds the text of an error.
const errorBytesMax = 1000

// complaintsEvery is the shortest time between two lines of the log about the exporter.
const complaintsEvery = time.Minute

// complaints log what the SDK complains about: most often that the collector is away, with each
// batch.
type complaints struct {
	logger *slog.Logger

	mu   sync.Mutex
	last time.Time // guarded by mu
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.last.IsZero() || now.Sub(c.last) >= complaintsEvery {
		c.last = now
		c.logger.Warn("spans were not sent", "error", err)
	}
}
