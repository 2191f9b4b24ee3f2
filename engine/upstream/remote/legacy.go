package remote

import (
	"strings"

	"packhorse/pack/pktline"
)

// bodyLegacy is the request of gitprotocol-pack(5), "Packfile Negotiation", whose first line
// carries the capabilities.
func (n *negotiation) bodyLegacy() []byte {
	var caps []string
	for _, name := range append([]string{"multi_ack_detailed", "no-done", "side-band-64k"}, n.options()...) {
		if n.ad.caps.has(name) {
			caps = append(caps, name)
		}
	}
	if n.ad.caps.has("object-format") {
		caps = append(caps, "object-format=sha1")
	}
	if n.ad.caps.has("agent") {
		caps = append(caps, "agent="+n.remote.agent())
	}
	wants := n.request.Wants
	body := pktline.AppendLine(nil, []byte("want "+wants[0].String()+" "+strings.Join(caps, " ")+"\n"))
	body = appendIDs(body, "want", wants[1:])
	body = append(body, "0000"...)
	body = appendIDs(body, "have", n.common)
	body = appendIDs(body, "have", n.round)
	if n.done {
		return pktline.AppendLine(body, []byte("done\n"))
	}
	return append(body, "0000"...)
}

// readLegacy reads the acknowledgments. A round that is not the last ends with NAK; behind it comes
// the pack at once when the far side is ready and knows no-done. The last round ends with NAK or an
// ACK without a word behind it, and then the pack comes.
func (n *negotiation) readLegacy(a *answer, lines *pktline.Reader) (packFollows bool, err error) {
	for count := 0; ; count++ {
		kind, text, err := a.next(lines)
		words := strings.Fields(text)
		switch {
		case err != nil:
			return false, err
		case kind != pktline.Data || len(words) == 0:
			return false, a.fail(ErrProtocol, "a %s packet among the acknowledgments", kind)
		case count > len(n.sent)+acksExtra:
			return false, a.fail(ErrLimit, "more acknowledgments than there were haves")
		case words[0] == "shallow", words[0] == "unshallow":
			return false, a.fail(ErrProtocol, textShallow)
		case text == "NAK" && n.done:
			return true, nil
		case text == "NAK" && (!n.ready || !n.ad.caps.has("no-done")):
			return false, nil
		case text == "NAK":
		case words[0] != "ACK" || len(words) < 2 || len(words) > 3:
			return false, a.fail(ErrProtocol, "no acknowledgment: %.60q", text)
		case len(words) == 2 && !n.done && !n.ready:
			return false, a.fail(ErrProtocol, "a last acknowledgment in the midst of the negotiation")
		default:
			if err := n.acknowledge(a, words[1]); err != nil {
				return false, err
			}
			if len(words) == 2 {
				return true, nil
			}
			n.ready = n.ready || words[2] == "ready"
		}
	}
}
