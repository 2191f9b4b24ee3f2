package githttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// Bounds of push options: rules.md 30.
const (
	optionCountMax = 64
	optionBytesMax = 1024
)

// receive answers git-receive-pack: gitprotocol-pack(5), "Pushing Data To a Server".
//
// The commands and the whole pack are read before the answer begins; resolving deltas, checking and moving the refs happen
// while it streams, with progress and keep-alive packets.
func (s *session) receive() error {
	body, err := s.body(s.packBytesMax + commandLinesMax)
	if err != nil {
		return err
	}
	in := pktline.NewReader(body)
	ask, err := readPush(in)
	if err != nil {
		return err
	}
	const contentType = "application/x-git-receive-pack-result"
	if len(ask.Commands) == 0 {
		// A lone flush is git's probe before a large push.
		if err := readToEnd(in.Rest()); err != nil {
			return err
		}
		s.x.Respond(http.StatusOK, contentType, nil)
		return nil
	}
	ask.Namespace, ask.Import = s.space, s.imports
	if ask.bringsPack() {
		s.x.BodyFlows()
		ask.Pack = in.Rest()
	} else if err := readToEnd(in.Rest()); err != nil {
		return err
	}
	push, err := s.repo.Receive(s.x.Context(), s.actor(), ask.PushRequest)
	if err != nil {
		return err
	}
	s.x.Stream(http.StatusOK, contentType, func(ctx context.Context, w io.Writer) error {
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
		RequestID: s.x.RequestID(),
		Recheck:   func() error { return s.recheck(s.grant) },
	}
}

// pushAsk is a push with what concerns its answer's form only.
type pushAsk struct {
	engine.PushRequest
	report  bool
	quiet   bool
	options bool
	bandMax int
}

// bringsPack tells whether a pack follows the commands: it does unless all of them delete.
func (a *pushAsk) bringsPack() bool {
	for _, command := range a.Commands {
		if !command.New.IsZero() {
			return true
		}
	}
	return false
}

// readPush reads the commands and the push options.
func readPush(in *pktline.Reader) (*pushAsk, error) {
	a := &pushAsk{}
	for {
		kind, line, err := in.Read()
		if err != nil {
			return nil, requestError(err)
		}
		if kind == pktline.Flush {
			break
		}
		if kind != pktline.Data {
			return nil, malformed("unexpected packet among the commands")
		}
		if err := a.commandLine(line); err != nil {
			return nil, err
		}
	}
	if a.options && len(a.Commands) > 0 {
		if err := a.readOptions(in); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// commandLine takes "shallow ID" or "OLD NEW NAME", the first with the client's capabilities behind a NUL.
func (a *pushAsk) commandLine(line []byte) error {
	text, capabilities, hasCapabilities := bytes.Cut(line, []byte{0})
	words := string(bytes.TrimSuffix(text, []byte("\n")))
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
		return malformed("expected old id, new id and ref, got %q", words)
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
			a.bandMax = largeBand
		}
		if format, ok := strings.CutPrefix(capability, "object-format="); ok && format != "sha1" {
			return malformed("object-format %q is not served, this repository is sha1", format)
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
		option := strings.TrimSuffix(string(line), "\n")
		if len(option) > optionBytesMax || len(a.Options) >= optionCountMax {
			return malformed("more push options than %d of %d bytes", optionCountMax, optionBytesMax)
		}
		a.Options = append(a.Options, option)
	}
}

// readToEnd makes sure that the body is over: nothing commits before its true end has been seen.
func readToEnd(body io.Reader) error {
	var one [1]byte
	_, err := io.ReadFull(body, one[:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return requestError(err)
	}
	return malformed("something follows the commands")
}

// answer finishes the push and reports on it.
func (a *pushAsk) answer(ctx context.Context, s *session, push *engine.Push, out *muxer) error {
	stop := out.keepAlive(ctx)
	defer stop()
	tell := func(string) {}
	if !a.quiet {
		tell = out.progress
	}
	release, err := s.x.Slot(ctx)
	if err != nil {
		return out.fail(s, err)
	}
	result, err := push.Finish(ctx, tell)
	release()
	if err != nil {
		return out.fail(s, err)
	}
	stop()
	if a.report {
		if _, err := out.packWriter().Write(reportOf(result)); err != nil {
			return err
		}
	}
	if a.bandMax == noBand {
		return out.flush()
	}
	return out.end()
}

// reportOf is the report-status of a push, as pkt-lines.
func reportOf(result *engine.PushResult) []byte {
	var report bytes.Buffer
	out := pktline.NewWriter(&report)
	unpack := "ok"
	if result.Unpack != nil {
		unpack = oneLine(result.Unpack)
	}
	lines := []string{"unpack " + unpack}
	for _, command := range result.Commands {
		if command.Err != nil {
			lines = append(lines, fmt.Sprintf("ng %s %s", command.Name, oneLine(command.Err)))
			continue
		}
		lines = append(lines, "ok "+command.Name)
	}
	for _, line := range lines {
		_ = out.Printf("%s\n", line) // a bytes.Buffer takes everything
	}
	_ = out.Flush()
	return report.Bytes()
}

// oneLine is err in the one line that a report has for it.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
