package otlp_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"packhorse/cmd/packhorse/otlp"
	"packhorse/odb/span"
)

// recording returns a tracer that records into memory.
func recording(t *testing.T, ratio float64) (*otlp.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer, err := otlp.New(t.Context(), recorder, otlp.Options{Ratio: ratio, Version: "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, recorder
}

func parse(t *testing.T, flags string) span.Link {
	t.Helper()
	l := span.Parse([]string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags}, []string{"vendor=1"})
	if !l.IsValid() {
		t.Fatal("no link")
	}
	return l
}

// Spans are below that of the caller and below each other, and have their attributes and failures.
func TestSpans(t *testing.T) {
	t.Parallel()
	tracer, recorder := recording(t, 0) // the caller records, so we do
	remote := parse(t, "01")
	ctx, request := span.BeginKind(span.With(t.Context(), tracer, remote), "request", span.Server)
	inner, work := span.Begin(ctx, "work")
	sent := make(map[string]string)
	span.Carry(inner, func(name, value string) { sent[name] = value })
	work.Text("none", "")
	work.Count("count", 3)
	work.End(errors.New("bad \xff"))
	request.Rename("GET /x")
	request.Text("text", "a")
	request.End(nil)

	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	below, above := spans[0], spans[1]
	if above.Name() != "GET /x" || above.SpanKind() != trace.SpanKindServer || above.Status().Code != codes.Unset ||
		above.Parent().SpanID() != remote.Span || !above.Parent().IsRemote() || len(above.Attributes()) != 1 {
		t.Errorf("the request: %v", above)
	}
	if below.Parent().SpanID() != above.SpanContext().SpanID() || below.SpanKind() != trace.SpanKindInternal ||
		below.SpanContext().TraceID() != remote.Trace || len(below.Attributes()) != 1 ||
		below.Status() != (sdk.Status{Code: codes.Error, Description: "bad \ufffd"}) {
		t.Errorf("the work: %v", below)
	}
	want := "00-0af7651916cd43dd8448eb211c80319c-" + below.SpanContext().SpanID().String() + "-01"
	if sent["Traceparent"] != want || sent["Tracestate"] != "vendor=1" {
		t.Errorf("passed on %v, want %s", sent, want)
	}
	name, version := false, false
	for _, about := range below.Resource().Attributes() {
		name = name || about.Key == "service.name" && about.Value.AsString() == "packhorse"
		version = version || about.Key == "service.version" && about.Value.AsString() == "1.2"
	}
	if !name || !version {
		t.Errorf("the service: %v", below.Resource())
	}
}

// Who calls decides on the traces that it began, the ratio on others.
func TestSampling(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ratio    float64
		parent   span.Link
		recorded bool
	}{
		"all, ours":            {1, span.Link{}, true},
		"none, ours":           {0, span.Link{}, false},
		"all, not the caller":  {1, parse(t, "00"), false},
		"none, but the caller": {0, parse(t, "01"), true},
	}
	for name, test := range tests {
		tracer, recorder := recording(t, test.ratio)
		ctx, s := span.Begin(span.With(t.Context(), tracer, test.parent), "x")
		_, below := span.Begin(ctx, "y")
		below.End(nil)
		s.End(nil)
		if got := len(recorder.Ended()) == 2; got != test.recorded {
			t.Errorf("%s: %d spans", name, len(recorder.Ended()))
		}
		if l := span.From(ctx); !l.IsValid() || l.Sampled != test.recorded {
			t.Errorf("%s: %+v is passed on", name, l)
		}
	}
}

func TestCheckEndpoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://127.0.0.1:4318":        "http://127.0.0.1:4318/v1/traces",
		"https://example.com/":         "https://example.com/v1/traces",
		"https://example.com/a/traces": "https://example.com/a/traces",
		"":                             "", "127.0.0.1:4318": "", "grpc://example.com": "", "http://": "", "http://%": "",
	} {
		if got, err := otlp.CheckEndpoint(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// A tracer whose collector is away ends in time.
func TestCollectorAway(t *testing.T) {
	tracer, err := otlp.Open(t.Context(), otlp.Options{Endpoint: "http://127.0.0.1:1", Ratio: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 { // more than wait
		_, s := span.Begin(span.With(t.Context(), tracer, span.Link{}), "x")
		s.End(nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
}
