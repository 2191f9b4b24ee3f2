package githttp

import (
	"context"
	"fmt"
	"strings"

	"packhorse/pack/pktline"
	"packhorse/refs"
)

// prefixCountMax is git's own bound: beyond it the prefixes are ignored and every ref is told.
const prefixCountMax = 65536

// lsRefs answers gitprotocol-v2(5), "ls-refs".
func (s *session) lsRefs(request commandRequest) error {
	var peel, symrefs, unborn bool
	var prefixes []string
	for _, argument := range request.arguments {
		switch {
		case argument == "peel":
			peel = true
		case argument == "symrefs":
			symrefs = true
		case argument == "unborn":
			unborn = true
		case strings.HasPrefix(argument, "ref-prefix "):
			prefixes = append(prefixes, strings.TrimPrefix(argument, "ref-prefix "))
		default:
			return malformed("ls-refs: unexpected argument %q", argument)
		}
	}
	if len(prefixes) > prefixCountMax {
		prefixes = nil
	}
	shown, err := s.repo.Advertise(s.x.Context(), s.space)
	if err != nil {
		return err
	}
	return s.answer("application/x-git-upload-pack-result", func(ctx context.Context, out *pktline.Writer) error {
		defer shown.Close()
		if matches(prefixes, "HEAD") {
			head := ""
			switch id := shown.HeadID(); {
			case !id.IsZero():
				head = id.String() + " HEAD"
			case unborn:
				head = "unborn HEAD"
			}
			if head != "" {
				if symrefs {
					head += " symref-target:" + shown.HeadName()
				}
				if err := out.Printf("%s\n", head); err != nil {
					return err
				}
			}
		}
		line := make([]byte, 0, 256)
		for ref, err := range shown.Matching(ctx, prefixes) {
			if err != nil {
				return err
			}
			line = appendRef(line[:0], ref, peel)
			if err := out.Data(line); err != nil {
				return fmt.Errorf("tell ref %s: %w", ref.Name, err)
			}
		}
		return out.Flush()
	})
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
