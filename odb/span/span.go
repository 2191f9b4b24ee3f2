// Package span carries the trace of a request through contexts (W3C Trace Context), and begins
// spans of work in it.
//
// Start at [Begin], which work calls that deserves a span, and [With], by which a request, or work
// in the background, puts a [Tracer] and the span above into its context. traceparent.go reads and
// writes the header that carries a [Link] between programs. Without a tracer [Begin] returns a nil
// [Span], whose methods do nothing, and allocates nothing; a link that came with a request is then
// passed on as it came.
//
// The package knows no exporter, so that every floor may use it.
package span

import "context"

// Tracer begins spans. Its methods may be called concurrently.
type Tracer interface {
	// Begin begins a span below parent; the zero Link begins a trace.
	Begin(parent Link, name string, kind Kind) Recorder
}

// Recorder is a span as a tracer records it. It is used by one goroutine at a time.
type Recorder interface {
	// Link is what spans below the span, and other programs, refer to.
	Link() Link
	// Rename gives the span another name.
	Rename(name string)
	// Text and Count add an attribute.
	Text(key, value string)
	Count(key string, value int64)
	// End ends the span. An error, if it is not nil, is recorded as its failure.
	End(err error)
}

// Kind says on which side of a call a span is.
type Kind uint8

// The kinds of spans.
const (
	Internal Kind = iota
	Server        // a request that we answer
	Client        // a request that we send
)

// Span is a span that was begun. A nil Span, which is what there is without a tracer, does nothing.
// It is used by one goroutine at a time.
type Span struct{ recorder Recorder }

// key is that of the carried value in a context.
type key struct{}

// carried is what a context carries.
type carried struct {
	tracer Tracer // nil: there is none
	link   Link
}

// With returns a context in which [Begin] begins spans of tracer below link. tracer may be nil, and
// link zero.
func With(ctx context.Context, tracer Tracer, link Link) context.Context {
	if tracer == nil && !link.IsValid() {
		return ctx
	}
	return context.WithValue(ctx, key{}, &carried{tracer: tracer, link: link})
}

// From returns the link of the present span, or of the one that the request came with; the zero
// Link if there is none.
func From(ctx context.Context) Link {
	if c, ok := ctx.Value(key{}).(*carried); ok {
		return c.link
	}
	return Link{}
}

// Move returns a context with the trace of another one: work that outlives a request, or is shared
// by several, keeps that of the request that began it.
func Move(to, from context.Context) context.Context {
	if c, ok := from.Value(key{}).(*carried); ok {
		return context.WithValue(to, key{}, c)
	}
	return to
}

// Begin begins a span below the one in ctx, and returns it with a context for the work in it. The
// caller ends it.
func Begin(ctx context.Context, name string) (context.Context, *Span) {
	return BeginKind(ctx, name, Internal)
}

// BeginKind is Begin for a span of a kind.
func BeginKind(ctx context.Context, name string, kind Kind) (context.Context, *Span) {
	c, ok := ctx.Value(key{}).(*carried)
	if !ok || c.tracer == nil {
		return ctx, nil
	}
	recorder := c.tracer.Begin(c.link, name, kind)
	return context.WithValue(ctx, key{}, &carried{tracer: c.tracer, link: recorder.Link()}), &Span{recorder}
}

// Rename gives the span another name.
func (s *Span) Rename(name string) {
	if s != nil {
		s.recorder.Rename(name)
	}
}

// Text adds an attribute, unless value is empty.
func (s *Span) Text(key, value string) {
	if s != nil && value != "" {
		s.recorder.Text(key, value)
	}
}

// Count adds an attribute.
func (s *Span) Count(key string, value int64) {
	if s != nil {
		s.recorder.Count(key, value)
	}
}

// End ends the span. An error, if it is not nil, is recorded as its failure. A function that
// returns a named error ends its span by
//
//	defer func() { s.End(err) }()
func (s *Span) End(err error) {
	if s != nil {
		s.recorder.End(err)
	}
}
