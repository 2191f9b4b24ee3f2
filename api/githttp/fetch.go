package githttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// fetch answers gitprotocol-v2(5), "fetch".
func (s *session) fetch(request commandRequest) error {
	ask, err := s.parseFetch(request.arguments)
	if err != nil {
		return err
	}
	const contentType = "application/x-git-upload-pack-result"
	if len(ask.Wants) == 0 && len(ask.WantRefs) == 0 {
		s.x.Respond(http.StatusOK, contentType, nil)
		return nil
	}
	fetch, err := s.repo.Fetch(s.x.Context(), ask.FetchRequest)
	if err != nil {
		return s.refuseFetch(err)
	}
	s.x.Stream(http.StatusOK, contentType, func(ctx context.Context, w io.Writer) error {
		defer fetch.Close()
		out := newMuxer(w, largeBand, ask.sidebandAll)
		return ask.answer(ctx, s, fetch, out)
	})
	return nil
}

// fetchAsk is a fetch with what concerns its answer's form only.
type fetchAsk struct {
	engine.FetchRequest
	done, waitForDone, sidebandAll, noProgress bool
}

// answer sends the sections of gitprotocol-v2(5), "output = ", each only when it is due.
func (a *fetchAsk) answer(ctx context.Context, s *session, fetch *engine.Fetch, out *muxer) error {
	if len(a.Haves) > 0 && !a.done {
		ready, err := fetch.Ready(ctx)
		if err != nil {
			return out.fail(s, err)
		}
		ready = ready && !a.waitForDone
		if err := acknowledge(out, fetch.Common(), ready); err != nil {
			return err
		}
		if !ready {
			return out.end()
		}
		if err := out.delim(); err != nil {
			return err
		}
	}
	if a.Deepens() || len(a.Shallow) > 0 {
		shallow, unshallow, err := fetch.Boundary(ctx)
		if err != nil {
			return out.fail(s, err)
		}
		if err := out.line("shallow-info"); err != nil {
			return err
		}
		if err := out.boundary(shallow, unshallow); err != nil {
			return err
		}
		if err := out.delim(); err != nil {
			return err
		}
	}
	if len(a.WantRefs) > 0 {
		if err := out.line("wanted-refs"); err != nil {
			return err
		}
		for _, ref := range fetch.WantedRefs() {
			if err := out.line(ref.ID.String() + " " + ref.Name); err != nil {
				return err
			}
		}
		if err := out.delim(); err != nil {
			return err
		}
	}
	if err := out.line("packfile"); err != nil {
		return err
	}
	return sendPack(ctx, s, fetch, out, !a.noProgress)
}

// acknowledge is the acknowledgments section without its end.
func acknowledge(out *muxer, common []object.ID, ready bool) error {
	if err := out.line("acknowledgments"); err != nil {
		return err
	}
	if len(common) == 0 {
		if err := out.line("NAK"); err != nil {
			return err
		}
	}
	for _, id := range common {
		if err := out.line("ACK " + id.String()); err != nil {
			return err
		}
	}
	if !ready {
		return nil
	}
	return out.line("ready")
}

// sendPack plans and sends the pack over the side band, and the flush that ends it.
func sendPack(ctx context.Context, s *session, fetch *engine.Fetch, out *muxer, progress bool) error {
	if err := out.flush(); err != nil {
		return err
	}
	stop := out.keepAlive(ctx)
	defer stop()
	tell := func(string) {}
	if progress {
		tell = out.progress
	}
	release, err := s.x.Slot(ctx)
	if err != nil {
		return out.fail(s, err)
	}
	err = fetch.Plan(ctx, tell)
	release()
	if err != nil {
		return out.fail(s, err)
	}
	if err := fetch.Send(ctx, out.packWriter(), tell); err != nil {
		return out.fail(s, err)
	}
	return out.end()
}

// refuseFetch tells an error within the protocol when git can show it, as upload-pack does, and else leaves it to HTTP.
func (s *session) refuseFetch(err error) error {
	if !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrInvalid) {
		return err
	}
	return s.answer("application/x-git-upload-pack-result", func(_ context.Context, out *pktline.Writer) error {
		return out.Printf("ERR upload-pack: %s\n", err)
	})
}

func (s *session) parseFetch(arguments []string) (*fetchAsk, error) {
	a := &fetchAsk{FetchRequest: engine.FetchRequest{Namespace: s.space}}
	for _, argument := range arguments {
		name, value, hasValue := strings.Cut(argument, " ")
		known, err := a.flag(name, hasValue)
		if !known && err == nil {
			known, err = parseNegotiation(&a.FetchRequest, name, value)
		}
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, malformed("fetch: unexpected argument %q", argument)
		}
	}
	return a, nil
}

func (a *fetchAsk) flag(name string, hasValue bool) (known bool, err error) {
	flags := map[string]*bool{
		"thin-pack":       &a.Thin,
		"no-progress":     &a.noProgress,
		"include-tag":     &a.IncludeTag,
		"ofs-delta":       &a.OFSDelta,
		"deepen-relative": &a.Relative,
		"done":            &a.done,
		"wait-for-done":   &a.waitForDone,
		"sideband-all":    &a.sidebandAll,
	}
	flag := flags[name]
	if flag == nil {
		return false, nil
	}
	if hasValue {
		return true, malformed("fetch: %s takes no value", name)
	}
	*flag = true
	return true, nil
}

// parseNegotiation takes the arguments that every protocol version words alike.
func parseNegotiation(q *engine.FetchRequest, name, value string) (known bool, err error) {
	switch name {
	case "want":
		return true, appendID(&q.Wants, name, value)
	case "have":
		return true, appendID(&q.Haves, name, value)
	case "shallow":
		return true, appendID(&q.Shallow, name, value)
	case "want-ref":
		q.WantRefs = append(q.WantRefs, value)
	case "filter":
		if q.Filter != "" {
			return true, malformed("a second filter")
		}
		q.Filter = value
	case "deepen":
		depth, err := strconv.Atoi(value)
		if err != nil || depth <= 0 {
			return true, malformed("invalid deepen: %q", value)
		}
		q.Depth = depth
	case "deepen-since":
		since, err := strconv.ParseInt(value, 10, 64)
		if err != nil || since <= 0 {
			return true, malformed("invalid deepen-since: %q", value)
		}
		q.Since = since
	case "deepen-not":
		q.Not = append(q.Not, value)
	default:
		return false, nil
	}
	return true, nil
}

func appendID(ids *[]object.ID, name, value string) error {
	id, err := object.ParseID(value)
	if err != nil {
		return malformed("%s: expected an object id, got %q", name, value)
	}
	if len(*ids) >= negotiationCountMax {
		return &engine.LimitError{Limit: name + " lines", Max: negotiationCountMax}
	}
	*ids = append(*ids, id)
	return nil
}

// negotiationCountMax bounds wants, haves and shallow lines of one request, each.
const negotiationCountMax = 100_000

// objectInfo answers gitprotocol-v2(5), "object-info".
func (s *session) objectInfo(request commandRequest) error {
	size := false
	var ids []object.ID
	for _, argument := range request.arguments {
		name, value, _ := strings.Cut(argument, " ")
		switch name {
		case "size":
			size = true
		case "oid":
			if err := appendID(&ids, name, value); err != nil {
				return err
			}
		default:
			return malformed("object-info: unexpected argument %q", argument)
		}
	}
	view, err := s.repo.Objects(s.x.Context())
	if err != nil {
		return err
	}
	s.x.Stream(http.StatusOK, "application/x-git-upload-pack-result", func(ctx context.Context, w io.Writer) error {
		defer view.Close()
		buffer := bufio.NewWriterSize(w, streamBytes)
		out := pktline.NewWriter(buffer)
		if !size {
			if err := out.Flush(); err != nil {
				return err
			}
			return buffer.Flush()
		}
		if err := out.Printf("size"); err != nil {
			return err
		}
		for _, id := range ids {
			info, err := view.Stat(ctx, id)
			switch {
			case engine.IsUnknownObject(err):
				err = out.Printf("%s ", id)
			case err == nil:
				err = out.Printf("%s %d", id, info.Size)
			}
			if err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		return buffer.Flush()
	})
	return nil
}
