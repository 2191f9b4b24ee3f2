package githttp

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// prefixCountMax is the limit of git: from that number on the prefixes are ignored and every ref is
// listed.
const prefixCountMax = 65536

// lsRefsAsk is an ls-refs request.
type lsRefsAsk struct {
	peel, symrefs, unborn bool
	prefixes              []string
}

func (a *lsRefsAsk) argument(text string) error {
	prefix, isPrefix := strings.CutPrefix(text, "ref-prefix ")
	switch {
	case isPrefix:
		if len(a.prefixes) < prefixCountMax {
			a.prefixes = append(a.prefixes, prefix)
		}
	case text == "peel":
		a.peel = true
	case text == "symrefs":
		a.symrefs = true
	case text == "unborn":
		a.unborn = true
	default:
		return malformed("ls-refs: unexpected line: %.200q", text)
	}
	return nil
}

// lsRefs answers gitprotocol-v2(5), "ls-refs".
func (s *session) lsRefs(in *pktline.Reader, arguments bool) error {
	s.x.Operation(exchange.LsRefs)
	ask := &lsRefsAsk{}
	if err := readArguments(in, arguments, ask.argument); err != nil {
		return err
	}
	if len(ask.prefixes) == prefixCountMax {
		ask.prefixes = nil
	}
	shown, err := s.repo.Advertise(s.x.Context(), s.space)
	if err != nil {
		return err
	}
	key, ok := ask.key(s, shown)
	if !ok {
		return s.answer(fetchResult, func(ctx context.Context, out *pktline.Writer) error {
			defer shown.Close()
			return ask.tell(ctx, out, shown)
		})
	}
	defer shown.Close()
	answer := s.listings.get(key, shown.Version())
	if answer == nil {
		var text bytes.Buffer
		if err := ask.tell(s.x.Context(), pktline.NewWriter(&text), shown); err != nil {
			return err
		}
		answer = text.Bytes()
		if len(answer) <= listingBytesMax {
			s.listings.put(key, shown.Version(), answer)
		}
	}
	s.x.Respond(http.StatusOK, fetchResult, answer)
	return nil
}

// refBytes is the approximate size of a line of a listing.
const refBytes = 80

// key returns the cache key of the answer, false when it is too large to be held in memory.
func (a *lsRefsAsk) key(s *session, shown *engine.Advertisement) (listingKey, bool) {
	if shown.Count() > listingBytesMax/refBytes {
		return listingKey{}, false
	}
	var prefixes strings.Builder
	for _, prefix := range a.prefixes {
		fmt.Fprintf(&prefixes, "%d %s", len(prefix), prefix)
		if prefixes.Len() > listingAskMax {
			return listingKey{}, false
		}
	}
	return listingKey{
		repo: s.repo.Item().ID, space: s.space, moment: s.repo.MomentSequence(), head: shown.HeadName(),
		peel: a.peel, symrefs: a.symrefs, unborn: a.unborn, prefixes: prefixes.String(),
	}, true
}

// tell writes the whole answer.
func (a *lsRefsAsk) tell(ctx context.Context, out *pktline.Writer, shown *engine.Advertisement) error {
	if err := a.tellHead(out, shown); err != nil {
		return err
	}
	line := make([]byte, 0, 256)
	for ref, err := range shown.Matching(ctx, a.prefixes) {
		if err != nil {
			return err
		}
		line = appendRef(line[:0], ref, a.peel)
		if err := out.Data(line); err != nil {
			return fmt.Errorf("tell ref %s: %w", ref.Name, err)
		}
	}
	return out.Flush()
}

// tellHead lists HEAD. An unborn HEAD is listed only if the client asked for that and for the
// symref target.
func (a *lsRefsAsk) tellHead(out *pktline.Writer, shown *engine.Advertisement) error {
	if !matches(a.prefixes, "HEAD") {
		return nil
	}
	line := "unborn HEAD"
	if id := shown.HeadID(); !id.IsZero() {
		line = id.String() + " HEAD"
	} else if !a.unborn || !a.symrefs {
		return nil
	}
	if a.symrefs {
		line += " symref-target:" + shown.HeadName()
	}
	return out.Printf("%s\n", line)
}

func appendRef(line []byte, ref refs.Ref, peel bool) []byte {
	line = ref.ID.AppendHex(line)
	line = append(line, ' ')
	line = append(line, ref.Name...)
	if peel && !ref.Peeled.IsZero() {
		line = append(line, " peeled:"...)
		line = ref.Peeled.AppendHex(line)
	}
	return append(line, '\n')
}

func matches(prefixes []string, name string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return len(prefixes) == 0
}
