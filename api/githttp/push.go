package githttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// Bounds of push options: docs/invariants.md 30.
const (
	optionCountMax = 64
	optionBytesMax = 1024
)

const receivePackResult = "application/x-git-receive-pack-result"

// receive answers git-receive-pack: gitprotocol-pack(5), "Pushing Data To a Server".
//
// The commands and the whole pack are read before the answer begins; resolving deltas, checking and
// moving the refs happen while it streams, with progress and keep-alive packets.
func (s *session) receive() error {
	body, err := s.body(s.packBytesMax + commandLinesMax)
	if err != nil {
		return err
	}
	in := pktline.NewReader(body)
	ask := &pushAsk{release: func() {}}
	streams := false
	defer func() {
		if !streams {
			ask.release()
		}
	}()
	if err := ask.read(in, s); err != nil {
		return s.refusePush(ask, err)
	}
	if len(ask.Commands) == 0 {
		s.respondEmpty()
		return readToEnd(in.Rest())
	}
	s.x.Operation(exchange.Push)
	ask.Namespace, ask.Import = s.space, s.imports
	if ask.bringsPack() {
		s.x.BodyFlows()
		ask.Pack = in.Rest()
	} else if err := readToEnd(in.Rest()); err != nil {
		return err
	}
	push, err := s.begin(ask)
	if err != nil {
		return s.refusePush(ask, err)
	}
	streams = true
	s.x.Stream(http.StatusOK, receivePackResult, func(ctx context.Context, w io.Writer) error {
		defer ask.release()
		defer push.Close()
		return ask.answer(ctx, s, push, newMuxer(w, ask.bandMax, false))
	})
	return nil
}

func (s *session) actor() engine.Actor {
	return engine.Actor{
		Org:       s.grant.Org,
		Subject:   s.grant.Subject,
		Policy:    s.grant.Policy,
		Paths:     s.grant.Paths,
		RequestID: s.x.RequestID(),
		Recheck:   func() error { return s.recheck(s.grant) },
	}
}

// pushAsk is a push request with the options for the form of its answer.
type pushAsk struct {
	engine.PushRequest
	report  bool
	quiet   bool
	options bool
	bandMax int

	lineBytes int64  // of the commands and shallow lines read so far
	release   func() // releases the memory that they were admitted for
}

// bringsPack reports whether a pack follows the commands: it does unless all of them delete.
func (a *pushAsk) bringsPack() bool {
	for _, command := range a.Commands {
		if !command.New.IsZero() {
			return true
		}
	}
	return false
}

// Memory of the lines before a pack. The cost of the route covers lines up to the usual size;
// longer lists are admitted separately.
const (
	commandBytesUsual = 256 << 10
	// commandBytesMax is the average size of the longest commands: two IDs, the longest refname, and
	// the framing.
	commandBytesMax = 1024 + 256
)

// read reads the commands and the push options. It checks limits while it reads, and keeps nothing
// beyond them.
func (a *pushAsk) read(in *pktline.Reader, s *session) error {
	for {
		kind, line, err := in.Read()
		if err != nil {
			return requestError(err)
		}
		if kind == pktline.Flush {
			break
		}
		if kind != pktline.Data {
			return malformed("unexpected %s packet among the commands", kind)
		}
		if err := a.admit(len(line), s); err != nil {
			return err
		}
		if err := a.commandLine(line); err != nil {
			return err
		}
	}
	if a.options && len(a.Commands) > 0 {
		return a.readOptions(in)
	}
	return nil
}

// admit makes sure that one more line of size bytes may be kept.
func (a *pushAsk) admit(size int, s *session) error {
	if err := s.host.CheckCommands(len(a.Commands) + 1); err != nil {
		return err
	}
	before := a.lineBytes
	a.lineBytes += int64(size)
	bytesMax := max(commandBytesUsual, int64(s.host.CommandCountMax())*commandBytesMax)
	switch {
	case a.lineBytes > bytesMax:
		return &engine.LimitError{Limit: "bytes of the ref updates in one push", Max: bytesMax}
	case a.lineBytes <= commandBytesUsual || before > commandBytesUsual:
		return nil
	}
	release, err := s.x.Reserve(s.x.Context(), bytesMax)
	if err == nil {
		a.release = release
	}
	return err
}

// commandLine takes "shallow ID" or "OLD NEW NAME", the first with the client's capabilities behind
// a NUL.
func (a *pushAsk) commandLine(line []byte) error {
	text, capabilities, hasCapabilities := bytes.Cut(line, []byte{0})
	words := trimLine(text)
	if id, ok := strings.CutPrefix(words, "shallow "); ok {
		return appendID(&a.Shallow, "shallow", id)
	}
	if strings.HasPrefix(words, "push-cert") {
		return malformed("signed pushes are not served")
	}
	oldHex, rest, ok1 := strings.Cut(words, " ")
	newHex, name, ok2 := strings.Cut(rest, " ")
	oldID, err1 := object.ParseID(oldHex)
	newID, err2 := object.ParseID(newHex)
	if err := errors.Join(err1, err2); err != nil || !ok1 || !ok2 || name == "" {
		return malformed("protocol error: expected old/new/ref, got %.200q", words)
	}
	if len(a.Commands) == 0 && hasCapabilities {
		if err := a.capabilities(string(capabilities)); err != nil {
			return err
		}
	}
	a.Commands = append(a.Commands, engine.Command{Name: name, Old: oldID, New: newID})
	return nil
}

func (a *pushAsk) capabilities(list string) error {
	for capability := range strings.FieldsSeq(list) {
		switch capability {
		case "report-status", "report-status-v2":
			a.report = true
		case "atomic":
			a.Atomic = true
		case "quiet":
			a.quiet = true
		case "push-options":
			a.options = true
		case "side-band-64k":
			a.bandMax = pktline.SidebandLarge
		}
		if format, ok := strings.CutPrefix(capability, "object-format="); ok {
			if err := checkFormat(format); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *pushAsk) readOptions(in *pktline.Reader) error {
	for {
		kind, line, err := in.Read()
		if err != nil {
			return requestError(err)
		}
		if kind == pktline.Flush {
			return nil
		}
		option := trimLine(line)
		if len(option) > optionBytesMax || len(a.Options) >= optionCountMax {
			return malformed("more push options than %d of %d bytes", optionCountMax, optionBytesMax)
		}
		a.Options = append(a.Options, option)
	}
}

// answer finishes the push and reports on it.
func (a *pushAsk) answer(ctx context.Context, s *session, push *engine.Push, out *muxer) error {
	if err := out.beginPack(); err != nil {
		return err
	}
	stop := out.keepAlive(ctx, s.keepAlive)
	result, err := a.finish(ctx, s, push, out)
	stop()
	if err != nil && a.report && isRefused(err) {
		result, err = a.refused(err), nil
	}
	if err != nil {
		return out.fail(err)
	}
	s.tellFailures(result)
	return a.tellResult(result, out)
}

// tellResult ends the answer with the result of the push.
func (a *pushAsk) tellResult(result *engine.PushResult, out *muxer) error {
	if a.report {
		if _, err := out.Write(a.reportOf(result, out.tell)); err != nil {
			return err
		}
	}
	return out.end()
}

func (a *pushAsk) finish(ctx context.Context, s *session, push *engine.Push, out *muxer) (*engine.PushResult, error) {
	var tell func(string)
	if !a.quiet {
		tell = out.tell
	}
	release, err := s.x.Slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return push.Finish(ctx, tell)
}
