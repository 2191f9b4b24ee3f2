package githttp

import (
	"context"
	"errors"
	"io"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// legacyFetch answers git-upload-pack in protocol versions 0 and 1: gitprotocol-pack(5), "Packfile
// Negotiation", with the stateless form of gitprotocol-http(5): one round of negotiation is one
// request, which repeats all earlier ones.
func (s *session) legacyFetch() error {
	body, err := s.body(fetchRequestMax)
	if err != nil {
		return err
	}
	in := pktline.NewReader(body)
	ask := &legacyAsk{FetchRequest: engine.FetchRequest{Namespace: s.space}}
	if err := ask.readWants(in); err != nil {
		return err
	}
	if len(ask.Wants) == 0 {
		s.respondEmpty()
		return nil
	}
	if err := ask.readHaves(in); err != nil {
		return err
	}
	return s.streamFetch(ask.FetchRequest, func(ctx context.Context, fetch *engine.Fetch, w io.Writer) error {
		return ask.answer(ctx, s, fetch, newMuxer(w, ask.bandMax, false))
	})
}

// acknowledgment is the mode in which a client wants commits in common acknowledged.
type acknowledgment uint8

const (
	ackSingle acknowledgment = iota
	ackMulti
	ackDetailed
)

// legacyAsk is a fetch request of versions 0 and 1.
type legacyAsk struct {
	engine.FetchRequest
	ack        acknowledgment
	noDone     bool
	noProgress bool
	bandMax    int
	// flushed says that the haves end in a flush, done that they end in "done"; a client that asks
	// only for its new shallow boundary sends neither.
	flushed, done bool
}

// readWants reads the upload-request, up to its flush.
func (a *legacyAsk) readWants(in *pktline.Reader) error {
	for first := true; ; first = false {
		kind, line, err := in.Read()
		if first && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return requestError(err)
		}
		if kind == pktline.Flush {
			return nil
		}
		if kind != pktline.Data {
			return malformed("unexpected %s packet among the wants", kind)
		}
		text := trimLine(line)
		name, value, _ := strings.Cut(text, " ")
		if name == "want" {
			var capabilities string
			value, capabilities, _ = strings.Cut(value, " ")
			a.capabilities(capabilities)
		}
		known, err := parseNegotiation(&a.FetchRequest, name, value)
		if err != nil {
			return err
		}
		if !known || name == "have" || name == "want-ref" {
			return malformed("protocol error, expected to get object ID, not %.200q", text)
		}
	}
}

func (a *legacyAsk) capabilities(list string) {
	for capability := range strings.FieldsSeq(list) {
		switch capability {
		case "multi_ack":
			a.ack = max(a.ack, ackMulti)
		case "multi_ack_detailed":
			a.ack = ackDetailed
		case "no-done":
			a.noDone = true
		case "no-progress":
			a.noProgress = true
		case "thin-pack":
			a.Thin = true
		case "ofs-delta":
			a.OFSDelta = true
		case "include-tag":
			a.IncludeTag = true
		case "deepen-relative":
			a.Relative = true
		case "side-band":
			a.bandMax = max(a.bandMax, pktline.SidebandSmall)
		case "side-band-64k":
			a.bandMax = pktline.SidebandLarge
		}
	}
}

// readHaves reads the upload-haves up to the end of the round. As in git, the rest is ignored.
func (a *legacyAsk) readHaves(in *pktline.Reader) error {
	for {
		kind, line, err := in.Read()
		if errors.Is(err, io.EOF) && len(a.Haves) == 0 {
			return nil
		}
		if err != nil {
			return requestError(err)
		}
		if kind == pktline.Flush {
			a.flushed = true
			return drain(in.Rest())
		}
		text := trimLine(line)
		if text == "done" {
			a.done = true
			return drain(in.Rest())
		}
		value, isHave := strings.CutPrefix(text, "have ")
		if kind != pktline.Data || !isHave {
			return malformed("expected SHA1 list, got %.200q", text)
		}
		if err := appendID(&a.Haves, "have", value); err != nil {
			return err
		}
	}
}

// answer sends the boundary, the acknowledgments, and the pack when negotiation is over.
func (a *legacyAsk) answer(ctx context.Context, s *session, fetch *engine.Fetch, out *muxer) error {
	if a.Deepens() {
		shallow, unshallow, err := fetch.Boundary(ctx)
		if err != nil {
			return out.fail(err)
		}
		out.boundary(shallow, unshallow)
		if err := out.endSection(); err != nil {
			return err
		}
	}
	if !a.flushed && !a.done {
		s.x.Operation(exchange.Negotiation)
		return out.flush()
	}
	over, err := a.acknowledge(ctx, fetch, out)
	if err != nil {
		return out.fail(err)
	}
	if !over {
		s.x.Operation(exchange.Negotiation)
		return out.flush()
	}
	return s.sendPack(ctx, fetch, out, !a.noProgress)
}

// acknowledge answers the haves one by one, as each acknowledgment mode requires, and reports
// whether the pack follows.
func (a *legacyAsk) acknowledge(ctx context.Context, fetch *engine.Fetch, out *muxer) (over bool, err error) {
	known := make(map[object.ID]bool, len(fetch.Common()))
	for _, id := range fetch.Common() {
		known[id] = true
	}
	readyAfter, canBeReady := 0, false
	if a.ack != ackSingle {
		if readyAfter, canBeReady, err = fetch.ReadyAfter(ctx); err != nil {
			return false, err
		}
	}
	var last object.ID
	var common, other int
	sentReady := false
	for _, id := range a.Haves {
		if known[id] {
			last = id
			common++
			a.acknowledgeOne(out, id, common == 1, "common")
			continue
		}
		other++
		if canBeReady && common >= readyAfter {
			a.acknowledgeOne(out, id, false, "ready")
			sentReady = a.ack == ackDetailed
		}
	}
	if a.done {
		switch {
		case common == 0:
			out.line("NAK")
		case a.ack != ackSingle:
			out.line("ACK " + last.String())
		}
		return true, nil
	}
	if a.ack == ackDetailed && canBeReady && other == 0 {
		out.line("ACK " + last.String() + " ready")
		sentReady = true
	}
	if common == 0 || a.ack != ackSingle {
		out.line("NAK")
	}
	if a.noDone && sentReady {
		out.line("ACK " + last.String())
		return true, nil
	}
	return false, nil
}

func (a *legacyAsk) acknowledgeOne(out *muxer, id object.ID, first bool, status string) {
	switch {
	case a.ack == ackDetailed:
		out.line("ACK " + id.String() + " " + status)
	case a.ack == ackMulti:
		out.line("ACK " + id.String() + " continue")
	case first:
		out.line("ACK " + id.String())
	}
}
