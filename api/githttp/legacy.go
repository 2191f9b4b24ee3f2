package githttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// legacyFetch answers git-upload-pack in protocol versions 0 and 1: gitprotocol-pack(5), "Packfile Negotiation", with the
// stateless habits of gitprotocol-http(5).
func (s *session) legacyFetch() error {
	body, err := s.body(fetchRequestMax)
	if err != nil {
		return err
	}
	in := pktline.NewReader(body)
	ask, err := readLegacyWants(in, s)
	if err != nil {
		return err
	}
	const contentType = "application/x-git-upload-pack-result"
	if len(ask.Wants) == 0 {
		s.x.Respond(http.StatusOK, contentType, nil)
		return nil
	}
	if err := ask.readHaves(in); err != nil {
		return err
	}
	fetch, err := s.repo.Fetch(s.x.Context(), ask.FetchRequest)
	if err != nil {
		return s.refuseFetch(err)
	}
	s.x.Stream(http.StatusOK, contentType, func(ctx context.Context, w io.Writer) error {
		defer fetch.Close()
		return ask.answer(ctx, s, fetch, newMuxer(w, ask.bandMax, false))
	})
	return nil
}

// acknowledgment is how a client wants to hear of commits in common.
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
	// rounds holds the haves as they came, a nil id for each flush between them.
	rounds []object.ID
	done   bool
}

// readLegacyWants reads the upload-request, up to its flush.
func readLegacyWants(in *pktline.Reader, s *session) (*legacyAsk, error) {
	a := &legacyAsk{FetchRequest: engine.FetchRequest{Namespace: s.space}}
	for {
		kind, line, err := in.Read()
		if errors.Is(err, io.EOF) && len(a.Wants) == 0 {
			return a, nil
		}
		if err != nil {
			return nil, requestError(err)
		}
		if kind == pktline.Flush {
			return a, nil
		}
		if kind != pktline.Data {
			return nil, malformed("unexpected packet among the wants")
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		if name == "want" && len(a.Wants) == 0 {
			var capabilities string
			value, capabilities, _ = strings.Cut(value, " ")
			a.capabilities(capabilities)
		}
		known, err := parseNegotiation(&a.FetchRequest, name, value)
		if err != nil {
			return nil, err
		}
		if !known || name == "have" || name == "want-ref" {
			return nil, malformed("expected a want, got %q", line)
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
			a.bandMax = max(a.bandMax, smallBand)
		case "side-band-64k":
			a.bandMax = largeBand
		}
	}
}

// readHaves reads the upload-haves to the end of the body. A client that only asks for its new shallow boundary sends none.
func (a *legacyAsk) readHaves(in *pktline.Reader) error {
	for {
		kind, line, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return requestError(err)
		}
		if kind == pktline.Flush {
			a.rounds = append(a.rounds, object.ZeroID)
			continue
		}
		text := strings.TrimSuffix(string(line), "\n")
		if text == "done" {
			a.done = true
			return readEnd(in)
		}
		value, isHave := strings.CutPrefix(text, "have ")
		if kind != pktline.Data || !isHave {
			return malformed("expected a have, got %q", text)
		}
		if err := appendID(&a.Haves, "have", value); err != nil {
			return err
		}
		a.rounds = append(a.rounds, a.Haves[len(a.Haves)-1])
	}
}

// answer sends the boundary, the acknowledgments, and the pack when negotiation is over.
func (a *legacyAsk) answer(ctx context.Context, s *session, fetch *engine.Fetch, out *muxer) error {
	if a.Deepens() {
		shallow, unshallow, err := fetch.Boundary(ctx)
		if err != nil {
			return out.fail(s, err)
		}
		if err := out.boundary(shallow, unshallow); err != nil {
			return err
		}
		if err := out.flushPacket(); err != nil {
			return err
		}
	}
	over, err := a.acknowledge(ctx, fetch, out)
	if err != nil || !over {
		return errors.Join(err, out.flush())
	}
	if err := sendPack(ctx, s, fetch, out, !a.noProgress); err != nil {
		return err
	}
	return nil
}

// acknowledge answers the haves one by one, as each acknowledgment mode wants it, and tells whether the pack follows.
func (a *legacyAsk) acknowledge(ctx context.Context, fetch *engine.Fetch, out *muxer) (over bool, err error) {
	ready, err := fetch.Ready(ctx)
	if err != nil {
		return false, err
	}
	common := make(map[object.ID]bool, len(fetch.Common()))
	for _, id := range fetch.Common() {
		common[id] = true
	}
	var last object.ID
	gotCommon, gotOther, sentReady := false, false, false
	for _, have := range a.rounds {
		switch {
		case have.IsZero():
			if a.ack == ackDetailed && gotCommon && !gotOther && ready {
				sentReady = true
				if err := out.line("ACK " + last.String() + " ready"); err != nil {
					return false, err
				}
			}
			if last.IsZero() || a.ack != ackSingle {
				if err := out.line("NAK"); err != nil {
					return false, err
				}
			}
			if a.noDone && sentReady {
				return true, out.line("ACK " + last.String())
			}
			gotCommon, gotOther = false, false
		case common[have]:
			first := last.IsZero()
			last, gotCommon = have, true
			if err := a.acknowledgeOne(out, have, first, "common"); err != nil {
				return false, err
			}
		default:
			gotOther = true
			if a.ack == ackSingle || !ready {
				continue
			}
			sentReady = a.ack == ackDetailed
			if err := a.acknowledgeOne(out, have, false, "ready"); err != nil {
				return false, err
			}
		}
	}
	if !a.done {
		return false, nil
	}
	if last.IsZero() {
		return true, out.line("NAK")
	}
	if a.ack != ackSingle {
		return true, out.line("ACK " + last.String())
	}
	return true, nil
}

func (a *legacyAsk) acknowledgeOne(out *muxer, id object.ID, first bool, status string) error {
	switch {
	case a.ack == ackDetailed:
		return out.line("ACK " + id.String() + " " + status)
	case a.ack == ackMulti:
		return out.line("ACK " + id.String() + " continue")
	case first:
		return out.line("ACK " + id.String())
	}
	return nil
}
