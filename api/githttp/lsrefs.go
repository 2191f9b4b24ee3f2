package githttp

import (
	"context"
	"fmt"
	"strings"

	"packhorse/engine"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// prefixCountMax is git's own bound: from there on the prefixes are ignored and every ref is told.
const prefixCountMax = 65536

// lsRefsAsk is what a client wants to hear of the refs.
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
	return s.answer("application/x-git-upload-pack-result", func(ctx context.Context, out *pktline.Writer) error {
		defer shown.Close()
		if err := ask.tellHead(out, shown); err != nil {
			return err
		}
		line := make([]byte, 0, 256)
		for ref, err := range shown.Matching(ctx, ask.prefixes) {
			if err != nil {
				return err
			}
			line = appendRef(line[:0], ref, ask.peel)
			if err := out.Data(line); err != nil {
				return fmt.Errorf("tell ref %s: %w", ref.Name, err)
			}
		}
		return out.Flush()
	})
}

// tellHead tells what HEAD is, while its branch is unborn only to a client that asked for that and for the branch's name.
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
