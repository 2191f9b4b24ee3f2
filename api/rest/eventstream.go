package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.
const (
	eventStreamType = "text/event-stream"
	lastEventID     = "Last-Event-ID"
	// latest is the position of a client that wants no events of the past.
	latest = "latest"

	// heartbeatEvery is the silence after which a stream sends a comment, so that neither side, nor a
	// proxy in between, takes the other for gone.
	heartbeatEvery = 15 * time.Second
	// eventsAtOnce is the number of events that a stream reads and writes at once.
	eventsAtOnce = 100
	// streamCosts is the memory that a stream holds while it is open: the buffers of its connection.
	// It bounds how many streams an organization may have open.
	streamCosts = 64 << 10

	// streamBegin tells a client to connect again after a second, when a stream has ended.
	streamBegin = "retry: 1000\n\n"
	heartbeat   = ":\n\n"
)

// sentEvent is an event as a stream sends it. data has no line break.
type sentEvent struct {
	id, name string
	data     []byte
}

// eventStream is a journal to be streamed, and a position in it.
type eventStream interface {
	// read returns the next events, limit at most, moves the position behind them, and reports whether
	// there are more now.
	read(ctx context.Context, limit int) (events []sentEvent, more bool, err error)
	// await returns when there may be another event, or with the error of ctx.
	await(ctx context.Context) error
}

// wantsEventStream reports whether a request asks for server-sent events.
func wantsEventStream(x exchange.Exchange) bool {
	for accepted := range strings.SplitSeq(x.Header("Accept"), ",") {
		if exchange.IsMediaType(accepted, eventStreamType) {
			return true
		}
	}
	return false
}

// positionOf returns the position from which a request goes on, and what gave it: the header of a
// stream that connects again, or the parameter, which is that of the first connection.
func positionOf(x exchange.Exchange, parameter string) (text, by string) {
	if last := x.Header(lastEventID); last != "" && wantsEventStream(x) {
		return last, lastEventID
	}
	return x.Query().Get(parameter), parameter
}

// streamEvents answers with the events of a journal, those that are there and those that come,
// until the client goes, the server stops, or the token is no longer good. A client goes on with
// the id of the last event that it has got.
//
// It holds one page of events, and none while it waits for the next one.
func (d *Door) streamEvents(x exchange.Exchange, grant *auth.Grant, from eventStream) error {
	release, err := x.Reserve(x.Context(), streamCosts)
	if err != nil {
		return err
	}
	events, more, err := from.read(x.Context(), eventsAtOnce)
	if err != nil {
		release()
		return err
	}
	serving := x.Serving()
	x.SetHeader("Cache-Control", "no-store")
	x.SetHeader("X-Accel-Buffering", "no") // for nginx, which would hold events back
	x.Stream(http.StatusOK, eventStreamType, func(ctx context.Context, w io.Writer) error {
		defer release()
		begin := []byte(streamBegin)
		for {
			if err := writeEvents(w, begin, events); err != nil {
				return err
			}
			begin, events = nil, nil
			if !more {
				if ended, err := d.awaitEvents(ctx, serving, grant, from, w); ended || err != nil {
					return err
				}
			}
			if serving.Err() != nil || !d.stillGood(grant) {
				return nil // the client learns why when it connects again
			}
			if events, more, err = from.read(ctx, eventsAtOnce); err != nil {
				return streamEnd(err)
			}
		}
	})
	return nil
}

// writeEvents writes events in one piece.
func writeEvents(w io.Writer, begin []byte, events []sentEvent) error {
	piece := begin
	for _, event := range events {
		piece = append(piece, "id: "+event.id+"\nevent: "+event.name+"\ndata: "...)
		piece = append(append(piece, event.data...), "\n\n"...)
	}
	if len(piece) == 0 {
		return nil
	}
	_, err := w.Write(piece)
	return err
}

// awaitEvents waits for the next event, and sends a comment now and then. It reports whether the
// stream is at its end.
func (d *Door) awaitEvents(
	ctx, serving context.Context, grant *auth.Grant, from eventStream, w io.Writer,
) (ended bool, err error) {
	for {
		waiting, stop := d.silence(ctx)
		unhook := context.AfterFunc(serving, stop)
		err := from.await(waiting)
		due := waiting.Err() != nil
		unhook()
		stop()
		switch {
		case serving.Err() != nil:
			return true, nil
		case ctx.Err() != nil:
			return true, ctx.Err()
		case !due:
			return err != nil, streamEnd(err)
		case !d.stillGood(grant):
			return true, nil
		}
		if _, err := io.WriteString(w, heartbeat); err != nil {
			return true, err
		}
	}
}

// stillGood reports whether a grant would be given again: a stream may outlive its token.
func (d *Door) stillGood(grant *auth.Grant) bool {
	return d.recheck(grant) == nil && (grant.Expires.IsZero() || time.Now().Before(grant.Expires))
}

// streamEnd turns an error that a client is told when it connects again into the end of a stream.
func streamEnd(err error) error {
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, refs.ErrTrimmed) || errors.Is(err, refs.ErrFeedGone) {
		return nil
	}
	return err
}
