package githttp

import (
	"context"
	"fmt"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// infoAsk is an object-info request.
type infoAsk struct {
	size bool
	ids  []object.ID
}

func (a *infoAsk) argument(text string) error {
	id, isID := strings.CutPrefix(text, "oid ")
	switch {
	case text == "size":
		a.size = true
		return nil
	case isID:
		return appendID(&a.ids, "oid", id)
	default:
		return malformed("object-info: unexpected line: %.200q", text)
	}
}

// objectInfo answers gitprotocol-v2(5), "object-info". The lines have no line ends, as git's have
// none.
func (s *session) objectInfo(in *pktline.Reader, arguments bool) error {
	s.x.Operation(exchange.ObjectInfo)
	ask := &infoAsk{}
	if err := readArguments(in, arguments, ask.argument); err != nil {
		return err
	}
	view, err := s.repo.Objects(s.x.Context())
	if err != nil {
		return err
	}
	return s.answer("application/x-git-upload-pack-result", func(ctx context.Context, out *pktline.Writer) error {
		defer view.Close()
		if ask.size && len(ask.ids) > 0 {
			if err := out.String("size"); err != nil {
				return err
			}
		}
		for _, id := range ask.ids {
			line := id.String()
			if ask.size {
				info, err := view.Stat(ctx, id)
				switch {
				case engine.IsUnknownObject(err):
					line += " "
				case err != nil:
					return err
				default:
					line = fmt.Sprintf("%s %d", line, info.Size)
				}
			}
			if err := out.String(line); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}
