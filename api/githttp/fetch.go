package githttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

const fetchResult = "application/x-git-upload-pack-result"

// fetch answers gitprotocol-v2(5), "fetch".
func (s *session) fetch(in *pktline.Reader, arguments bool) error {
	ask := &fetchAsk{FetchRequest: engine.FetchRequest{Namespace: s.space}}
	if err := readArguments(in, arguments, ask.argument); err != nil {
		return err
	}
	if len(ask.Wants) == 0 && len(ask.WantRefs) == 0 && !ask.waitForDone {
		s.respondEmpty()
		return nil
	}
	return s.streamFetch(ask.FetchRequest, func(ctx context.Context, fetch *engine.Fetch, w io.Writer) error {
		return ask.answer(ctx, s, fetch, newMuxer(w, pktline.SidebandLarge, ask.sidebandAll))
	})
}

// streamFetch begins a fetch and streams its output with answer.
func (s *session) streamFetch(
	request engine.FetchRequest, answer func(context.Context, *engine.Fetch, io.Writer) error,
) error {
	if len(request.Haves) == 0 && len(request.Shallow) == 0 {
		s.x.Operation(exchange.Clone)
	} else {
		s.x.Operation(exchange.Fetch)
	}
	fetch, err := s.repo.Fetch(s.x.Context(), request)
	if errors.Is(err, engine.ErrRepositoryNotFound) {
		return err
	}
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrInvalid) {
		return s.answer(fetchResult, func(_ context.Context, out *pktline.Writer) error {
			return out.Printf("ERR %s\n", err)
		})
	}
	if err != nil {
		return err
	}
	s.x.Stream(http.StatusOK, fetchResult, func(ctx context.Context, w io.Writer) error {
		defer fetch.Close()
		return answer(ctx, fetch, w)
	})
	return nil
}

// fetchAsk is a fetch request with the options for the form of its answer.
type fetchAsk struct {
	engine.FetchRequest
	done, waitForDone, sidebandAll, noProgress bool
}

// answer sends the sections of gitprotocol-v2(5), "output = ", each only when it is due.
func (a *fetchAsk) answer(ctx context.Context, s *session, fetch *engine.Fetch, out *muxer) error {
	if len(a.Haves) > 0 && !a.done {
		over, err := a.acknowledge(ctx, fetch, out)
		if err != nil {
			return out.fail(err)
		}
		if !over {
			s.x.Operation(exchange.Negotiation)
			return out.end()
		}
	}
	if a.Deepens() || len(a.Shallow) > 0 {
		shallow, unshallow, err := fetch.Boundary(ctx)
		if err != nil {
			return out.fail(err)
		}
		out.line("shallow-info")
		out.boundary(shallow, unshallow)
		out.delim()
	}
	if len(a.WantRefs) > 0 {
		out.line("wanted-refs")
		for _, ref := range fetch.WantedRefs() {
			out.line(ref.ID.String() + " " + ref.Name)
		}
		out.delim()
	}
	out.line("packfile")
	return s.sendPack(ctx, fetch, out, !a.noProgress)
}

// acknowledge sends the acknowledgments, and reports whether more sections follow.
func (a *fetchAsk) acknowledge(ctx context.Context, fetch *engine.Fetch, out *muxer) (over bool, err error) {
	if !a.waitForDone {
		if over, err = fetch.Ready(ctx); err != nil {
			return false, err
		}
	}
	out.line("acknowledgments")
	if len(fetch.Common()) == 0 {
		out.line("NAK")
	}
	for _, id := range fetch.Common() {
		out.line("ACK " + id.String())
	}
	if over {
		out.line("ready")
		out.delim()
	}
	return over, nil
}

// sendPack plans and sends the pack, and ends the answer.
func (s *session) sendPack(ctx context.Context, fetch *engine.Fetch, out *muxer, progress bool) error {
	if err := out.beginPack(); err != nil {
		return err
	}
	stop := out.keepAlive(ctx, s.keepAlive)
	options := engine.SendOptions{Slot: s.x.Slot}
	if progress {
		options.Progress = out.tell
	}
	err := fetch.Send(ctx, out, options)
	stop()
	if err != nil {
		return out.fail(err)
	}
	return out.end()
}

func (a *fetchAsk) argument(text string) error {
	name, value, hasValue := strings.Cut(text, " ")
	if flag := a.flag(name); flag != nil && !hasValue {
		*flag = true
		return nil
	}
	known, err := parseNegotiation(&a.FetchRequest, name, value)
	if err == nil && !known {
		err = malformed("unexpected line: %.200q", text)
	}
	return err
}

func (a *fetchAsk) flag(name string) *bool {
	switch name {
	case "thin-pack":
		return &a.Thin
	case "no-progress":
		return &a.noProgress
	case "include-tag":
		return &a.IncludeTag
	case "ofs-delta":
		return &a.OFSDelta
	case "deepen-relative":
		return &a.Relative
	case "done":
		return &a.done
	case "wait-for-done":
		return &a.waitForDone
	case "sideband-all":
		return &a.sidebandAll
	default:
		return nil
	}
}

// parseNegotiation parses the arguments that are the same in all protocol versions.
func parseNegotiation(q *engine.FetchRequest, name, value string) (known bool, err error) {
	switch name {
	case "want":
		return true, appendID(&q.Wants, name, value)
	case "have":
		return true, appendID(&q.Haves, name, value)
	case "shallow":
		return true, appendID(&q.Shallow, name, value)
	case "want-ref":
		return true, appendName(&q.WantRefs, name, value)
	case "deepen-not":
		return true, appendName(&q.Not, name, value)
	case "filter":
		if q.Filter != "" || value == "" {
			return true, malformed("expected one filter-spec, got %.200q", value)
		}
		q.Filter = value
	case "deepen":
		depth, err := strconv.ParseInt(value, 0, 32)
		if err != nil || depth <= 0 {
			return true, malformed("Invalid deepen: %.200q", value)
		}
		q.Depth = int(depth)
	case "deepen-since":
		since, err := strconv.ParseInt(value, 0, 64)
		if err != nil || since <= 0 {
			return true, malformed("Invalid deepen-since: %.200q", value)
		}
		q.Since = since
	default:
		return false, nil
	}
	return true, nil
}

func appendID(ids *[]object.ID, name, value string) error {
	id, err := object.ParseID(value)
	if err != nil {
		return malformed("protocol error, expected to get object ID, not %.200q", value)
	}
	if len(*ids) >= negotiationCountMax {
		return &engine.LimitError{Limit: name + " lines", Max: negotiationCountMax}
	}
	*ids = append(*ids, id)
	return nil
}

func appendName(names *[]string, name, value string) error {
	if len(*names) >= negotiationCountMax {
		return &engine.LimitError{Limit: name + " lines", Max: negotiationCountMax}
	}
	*names = append(*names, value)
	return nil
}

// negotiationCountMax bounds the lines of each kind in one request.
const negotiationCountMax = 100_000
