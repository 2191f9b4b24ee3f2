package remote

import (
	"context"
	"fmt"
	"strings"

	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// negotiation determines the common commits in rounds. HTTP servers keep no state, so each round
// repeats everything: the wants, the known common commits, and some more haves.
type negotiation struct {
	remote  *Remote
	ad      *Advertisement
	request FetchRequest

	round  []object.ID             // haves that are new in this round
	common []object.ID             // haves that the far side has, too
	sent   map[object.ID]haveState // all haves so far
	window int                     // number of haves that the next round may add
	inVain int                     // haves since the last one that was common
	ready  bool                    // the far side knows enough
	done   bool                    // this round is the last
}

type haveState uint8

const (
	haveSent haveState = iota + 1
	haveCommon
)

// The windows of git's stateless negotiation: it begins small, and doubles up to what fits a
// request. After inVainMax haves in a row that the far side does not know, following one that it
// does, more of them are of no use.
const (
	windowFirst = 16
	windowMax   = 16 << 10
	inVainMax   = 256
)

func newNegotiation(r *Remote, ad *Advertisement, q FetchRequest) *negotiation {
	n := &negotiation{remote: r, ad: ad, request: q, window: windowFirst, sent: make(map[object.ID]haveState)}
	if ad.Version < 2 && !ad.caps.has("multi_ack_detailed") {
		n.request.Haves = nil // which is right with every server, and all that is right with those of 2009
	}
	return n
}

// advance prepares the next round.
func (n *negotiation) advance(ctx context.Context) error {
	n.round = n.round[:0]
	most := min(n.window, n.remote.Limits.withDefaults().Haves-len(n.sent))
	if n.ready || n.request.Haves == nil || most <= 0 || len(n.common) > 0 && n.inVain >= inVainMax {
		n.done = true
		return nil
	}
	ids, err := n.request.Haves.Next(ctx, most)
	if err != nil {
		return fmt.Errorf("remote: fetch: walk local commits: %w", err)
	}
	for _, id := range ids[:min(len(ids), most)] {
		if n.sent[id] == 0 {
			n.sent[id] = haveSent
			n.round = append(n.round, id)
		}
	}
	n.inVain += len(n.round)
	n.window = min(2*n.window, windowMax)
	n.done = len(n.round) == 0
	return nil
}

// acknowledge handles an ACK. The far side may only acknowledge commits that were sent to it.
func (n *negotiation) acknowledge(a *answer, digits string) error {
	id, err := object.ParseID(digits)
	if err != nil || n.sent[id] == 0 {
		return a.fail(ErrProtocol, "an acknowledgment of what was not told: %.60q", digits)
	}
	if n.sent[id] == haveSent {
		n.sent[id] = haveCommon
		n.common = append(n.common, id)
		n.inVain = 0
		n.request.Haves.Common(id)
	}
	return nil
}

// body returns the request of the round.
func (n *negotiation) body() []byte {
	if n.ad.Version == 2 {
		return n.bodyV2()
	}
	return n.bodyLegacy()
}

// read reads the answer up to the pack, and reports whether there is one.
func (n *negotiation) read(a *answer, lines *pktline.Reader) (packFollows bool, err error) {
	if n.ad.Version == 2 {
		return n.readV2(a, lines)
	}
	return n.readLegacy(a, lines)
}

// sideband reports whether the pack comes with progress and errors beside it.
func (n *negotiation) sideband() bool { return n.ad.Version == 2 || n.ad.caps.has("side-band-64k") }

// options are the features that the pack may use; the legacy protocol has them as capabilities,
// version 2 as arguments.
func (n *negotiation) options() []string {
	options := []string{"ofs-delta"}
	if n.request.Haves != nil {
		options = append(options, "thin-pack")
	}
	if n.request.IncludeTags {
		options = append(options, "include-tag")
	}
	if n.request.Progress == nil {
		options = append(options, "no-progress")
	}
	return options
}

func appendIDs(body []byte, verb string, ids []object.ID) []byte {
	for _, id := range ids {
		body = pktline.AppendLine(body, []byte(verb+" "+id.String()+"\n"))
	}
	return body
}

// bodyV2 is the command fetch of gitprotocol-v2(5).
func (n *negotiation) bodyV2() []byte {
	body := n.remote.command(n.ad, "fetch")
	for _, option := range n.options() {
		body = pktline.AppendLine(body, []byte(option+"\n"))
	}
	body = appendIDs(body, "want", n.request.Wants)
	body = appendIDs(body, "have", n.common)
	body = appendIDs(body, "have", n.round)
	if n.done {
		body = pktline.AppendLine(body, []byte("done\n"))
	}
	return append(body, "0000"...)
}

// readV2 reads the sections before the pack.
func (n *negotiation) readV2(a *answer, lines *pktline.Reader) (bool, error) {
	kind, text, err := a.next(lines)
	if err == nil && kind == pktline.Data && text == "acknowledgments" {
		more, ackErr := n.readAcks(a, lines)
		if ackErr != nil || !more {
			return false, ackErr
		}
		kind, text, err = a.next(lines)
	}
	switch {
	case err != nil:
		return false, err
	case kind == pktline.Data && text == "packfile":
		return true, nil
	case kind == pktline.Data && text == "shallow-info":
		return false, a.fail(ErrProtocol, textShallow)
	}
	return false, a.fail(ErrProtocol, "a section that was not asked for: %s %.60q", kind, text)
}

// readAcks reads the section of that name, and reports whether another section follows.
func (n *negotiation) readAcks(a *answer, lines *pktline.Reader) (more bool, err error) {
	for count := 0; ; count++ {
		kind, text, err := a.next(lines)
		switch digits, isAck := strings.CutPrefix(text, "ACK "); {
		case err != nil:
			return false, err
		case kind == pktline.Delim && n.ready:
			return true, nil
		case kind == pktline.Flush && !n.ready:
			return false, nil
		case kind != pktline.Data:
			return false, a.fail(ErrProtocol, "the acknowledgments end with a %s packet", kind)
		case count > len(n.sent)+acksExtra:
			return false, a.fail(ErrLimit, "more acknowledgments than there were haves")
		case text == "ready":
			n.ready = true
		case isAck:
			if err := n.acknowledge(a, digits); err != nil {
				return false, err
			}
		case text != "NAK":
			return false, a.fail(ErrProtocol, "no acknowledgment: %.60q", text)
		}
	}
}

// acksExtra bounds the lines beside one for each have.
const acksExtra = 16
