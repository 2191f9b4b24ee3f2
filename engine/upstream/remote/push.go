package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"packhorse/odb/rescue"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// Command changes one ref of the far side, when it is as we think it is.
type Command struct {
	Name string    // full
	Old  object.ID // zero to create
	New  object.ID // zero to delete
}

// Result is what became of a command.
type Result struct {
	Name   string
	Reason string // why the far side has refused it; "" when it was done
}

// PushRequest holds the updates to push.
type PushRequest struct {
	Commands []Command
	// Pack writes a pack of the objects that the far side lacks; offset deltas are welcome, thin
	// packs are not. It is called at most once, in a goroutine of its own that has ended when Push
	// returns, and not at all when refs are only deleted.
	Pack func(w io.Writer) error
	// Progress receives messages of the far side, such as those of hooks; or nil.
	Progress io.Writer
}

// Push sends a pack and changes refs, each for itself: some may be refused while others succeed.
// When the far side has reported, there is a result for each command, in their order. An error
// means that it has not reported, and that the outcome is unknown.
//
// Errors: those of package [remote]; [ErrRejected] when the far side rejects the pack; those of
// Pack.
func (r *Remote) Push(ctx context.Context, q PushRequest) ([]Result, error) {
	ad, err := r.discover(ctx, "push", receivePack, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"report-status", "ofs-delta"} {
		if !ad.caps.has(name) {
			return nil, &Error{Kind: ErrProtocol, Op: "push", Text: "the far side does not know " + name}
		}
	}
	report := newReport(q.Commands)
	commands, withPack := report.sendable(ad.caps)
	if len(commands) == 0 {
		return report.results(), nil
	}
	p := &pushing{remote: r, ad: ad, request: q, report: report}
	if err := p.run(ctx, r.commands(ad, commands), withPack); err != nil {
		return nil, err
	}
	return report.results(), nil
}

// commands returns the part of the request before the pack.
func (r *Remote) commands(ad *Advertisement, commands []Command) []byte {
	var caps []string
	for _, name := range []string{"report-status-v2", "report-status", "side-band-64k"} {
		if ad.caps.has(name) && (name != "report-status" || !ad.caps.has("report-status-v2")) {
			caps = append(caps, name)
		}
	}
	if ad.caps.has("object-format") {
		caps = append(caps, "object-format=sha1")
	}
	if ad.caps.has("agent") {
		caps = append(caps, "agent="+r.agent())
	}
	var body []byte
	for i, c := range commands {
		line := c.Old.String() + " " + c.New.String() + " " + c.Name
		if i == 0 {
			line += "\x00" + " " + strings.Join(caps, " ")
		}
		body = pktline.AppendLine(body, []byte(line))
	}
	return append(body, "0000"...)
}

// pushing is a push under way.
type pushing struct {
	remote  *Remote
	ad      *Advertisement
	request PushRequest
	report  *report
}

// packHeld is the size up to which a pack is buffered to learn its length: not every server accepts
// a body of unknown length.
const packHeld = 1 << 20

// run sends the request and reads the report.
func (p *pushing) run(ctx context.Context, body []byte, withPack bool) error {
	q := request{op: "push", base: p.ad.base, service: receivePack, body: body, long: true}
	if !withPack {
		return p.exchange(ctx, q)
	}
	src := startPack(p.request.Pack)
	return src.end(p.send(ctx, q, src))
}

// send sends the request with the pack from src.
func (p *pushing) send(ctx context.Context, q request, src *packSource) error {
	held := make([]byte, packHeld)
	n, err := io.ReadFull(src, held)
	q.body = append(q.body, held[:n]...)
	switch {
	case err == nil:
		q.stream = src
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	return p.exchange(ctx, q)
}

func (p *pushing) exchange(ctx context.Context, q request) error {
	a, err := p.remote.send(ctx, q)
	if err != nil {
		return err
	}
	if err := p.read(a); err != nil {
		_ = a.close() // the error is known already
		return err
	}
	return a.finish()
}

// read reads the answer: the report, inside the side-band or alone.
func (p *pushing) read(a *answer) error {
	limits := p.remote.Limits.withDefaults()
	a.unlimited()
	most := p.report.bytesMax()
	if !p.ad.caps.has("side-band-64k") {
		a.limit(most, "report")
		return p.report.read(a, pktline.NewReader(a))
	}
	inner := newBands(a, pktline.NewReader(a), most, limits.ProgressBytes, p.request.Progress)
	if err := p.report.read(a, pktline.NewReader(inner)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, inner) // hooks may speak after the report; an error may follow, too
	return err
}

// packSource runs the writer of a pack beside its reader.
type packSource struct {
	*io.PipeReader
	ended  chan struct{}
	failed error // of the writer; valid when ended is closed
}

var (
	// errUnread ends the writer of a pack whose reader has gone.
	errUnread = errors.New("remote: the pack is not read any more")
	// errHalf ends the reader of a pack whose writer has failed, and replaces its error: an io.EOF
	// would make half a pack look whole.
	errHalf = errors.New("remote: failed to write the pack")
)

func startPack(write func(io.Writer) error) *packSource {
	r, w := io.Pipe()
	src := &packSource{PipeReader: r, ended: make(chan struct{})}
	rescue.Beside(func() error { // Close waits for it
		defer close(src.ended)
		if src.failed = rescue.Do(func() error { return write(w) }); src.failed != nil {
			return w.CloseWithError(errHalf) // always nil
		}
		return w.Close() // always nil
	})
	return src
}

// Close makes the writer end, and waits until it has.
func (s *packSource) Close() error {
	_ = s.CloseWithError(errUnread) // always nil
	<-s.ended
	return nil
}

// end closes the source after a push that ended with err, and returns the first error: that of the
// pack, or of the far side.
func (s *packSource) end(err error) error {
	_ = s.Close() // always nil
	if s.failed != nil && !errors.Is(s.failed, errUnread) {
		return fmt.Errorf("remote: push: write the pack: %w", s.failed)
	}
	return err
}
