package githttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// streamBytes is the buffer between an answer's lines and its connection.
const streamBytes = 128 << 10

var streamBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, streamBytes) }}

// advertise answers info/refs: the capabilities in version 2, the refs too in versions 0 and 1.
func (s *session) advertise() error {
	contentType := "application/x-" + s.service + "-advertisement"
	if s.version == 2 {
		s.x.Operation(exchange.Capabilities)
		return s.answer(contentType, func(_ context.Context, out *pktline.Writer) error {
			if err := s.preamble(out); err != nil {
				return err
			}
			return s.capabilities(out)
		})
	}
	s.x.Operation(exchange.LsRefs)
	if s.creation != nil {
		return s.advertiseNothing(contentType)
	}
	refs, err := s.repo.Advertise(s.x.Context(), s.space)
	if errors.Is(err, engine.ErrRepositoryNotFound) && s.service == receivePack { // it was recalled
		if s.creation, err = s.Door.creation(s.x, s.path, s.grant); err == nil {
			return s.advertiseNothing(contentType)
		}
	}
	if err != nil {
		return err
	}
	return s.answer(contentType, func(ctx context.Context, out *pktline.Writer) error {
		defer refs.Close()
		if err := s.preamble(out); err != nil {
			return err
		}
		return s.legacyRefs(ctx, out, refs)
	})
}

// answer streams the lines that write writes as the answer.
func (s *session) answer(contentType string, write func(context.Context, *pktline.Writer) error) error {
	s.x.Stream(http.StatusOK, contentType, func(ctx context.Context, w io.Writer) error {
		buffer := streamBuffers.Get().(*bufio.Writer)
		buffer.Reset(w)
		defer func() {
			buffer.Reset(nil) // w ends with the answer
			streamBuffers.Put(buffer)
		}()
		if err := write(ctx, pktline.NewWriter(buffer)); err != nil {
			return err
		}
		return buffer.Flush()
	})
	return nil
}

// preamble names the service, as gitprotocol-http(5), "Smart Server Response".
func (s *session) preamble(out *pktline.Writer) error {
	if err := out.Printf("# service=%s\n", s.service); err != nil {
		return err
	}
	return out.Flush()
}

// capabilities is the advertisement of protocol version 2.
func (s *session) capabilities(out *pktline.Writer) error {
	for _, line := range []string{
		"version 2",
		"agent=" + s.agent,
		"ls-refs=unborn",
		"fetch=shallow wait-for-done filter ref-in-want sideband-all",
		"server-option",
		"object-format=sha1",
		"object-info",
	} {
		if err := out.Printf("%s\n", line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// legacyRefs is the advertisement of versions 0 and 1: gitprotocol-pack(5), "Reference Discovery".
func (s *session) legacyRefs(ctx context.Context, out *pktline.Writer, refs *engine.Advertisement) error {
	if s.version == 1 {
		if err := out.Printf("version 1\n"); err != nil {
			return err
		}
	}
	first := true
	line := func(id object.ID, name string) error {
		if !first {
			return out.Printf("%s %s\n", id, name)
		}
		first = false
		return out.Printf("%s %s\x00%s\n", id, name, s.legacyCapabilities(refs))
	}
	if head := refs.HeadID(); !head.IsZero() && s.service == uploadPack {
		if err := line(head, "HEAD"); err != nil {
			return err
		}
	}
	for ref, err := range refs.All(ctx, "") {
		if err != nil {
			return err
		}
		if err := line(ref.ID, ref.Name); err != nil {
			return err
		}
		if !ref.Peeled.IsZero() && s.service == uploadPack {
			if err := line(ref.Peeled, ref.Name+"^{}"); err != nil {
				return err
			}
		}
	}
	if first {
		if err := line(object.ZeroID, "capabilities^{}"); err != nil {
			return err
		}
	}
	return out.Flush()
}

// pushCapabilities are the capabilities of git-receive-pack.
func (s *session) pushCapabilities() string {
	return "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options " +
		"object-format=sha1 agent=" + s.agent
}

func (s *session) legacyCapabilities(refs *engine.Advertisement) string {
	if s.service == receivePack {
		return s.pushCapabilities()
	}
	var b strings.Builder
	b.WriteString("multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not deepen-relative " +
		"no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want allow-reachable-sha1-in-want no-done")
	if !refs.HeadID().IsZero() {
		fmt.Fprintf(&b, " symref=HEAD:%s", refs.HeadName())
	}
	b.WriteString(" filter object-format=sha1 agent=" + s.agent)
	return b.String()
}
