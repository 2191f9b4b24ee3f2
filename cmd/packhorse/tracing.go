package main

import (
	"context"
	"log/slog"
	"time"

	"packhorse/cmd/packhorse/otlp"
	"packhorse/odb/span"
)

// tracingFlags configure what is told to a collector of spans.
type tracingFlags struct {
	OtlpEndpoint string  `help:"URL of an OpenTelemetry collector to which spans are sent by OTLP over HTTP, as in http://127.0.0.1:4318. No spans are recorded without." placeholder:"URL" is:"collector"`
	TraceRatio   float64 `help:"Share of the traces to record, of those that begin here: 0 to 1. A request with a traceparent is recorded if its caller is." default:"1"`
}

// tracingWait bounds how long the end of a server waits for the collector to take the last spans.
const tracingWait = 5 * time.Second

// open returns the tracer, nil if spans are sent nowhere.
func (f tracingFlags) open(ctx context.Context, logger *slog.Logger) (*otlp.Tracer, error) {
	if f.OtlpEndpoint == "" {
		return nil, nil
	}
	return otlp.Open(ctx, otlp.Options{Endpoint: f.OtlpEndpoint, Ratio: f.TraceRatio, Version: version, Logger: logger})
}

// spans is the server's tracer for the floors below, nil without one.
func (s *server) spans() span.Tracer {
	if s.tracer == nil {
		return nil
	}
	return s.tracer
}

// endTracing sends the last spans, when nothing begins any more.
func (s *server) endTracing(ctx context.Context) {
	if s.tracer == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, tracingWait)
	defer cancel()
	if err := s.tracer.Close(bounded); err != nil {
		s.logger.Warn("spans were not sent", "error", err)
	}
}
