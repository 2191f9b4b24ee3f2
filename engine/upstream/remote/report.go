package remote

import (
	"strings"

	"packhorse/pack/pktline"
)

// report collects the results of commands.
type report struct {
	commands []Command
	reasons  map[string]string // by name; of those that are known to have been done or refused
}

func newReport(commands []Command) *report {
	return &report{commands: commands, reasons: make(map[string]string, len(commands))}
}

// sendable returns the commands that the far side can understand, and whether a pack goes with
// them.
func (r *report) sendable(caps capabilities) (commands []Command, withPack bool) {
	for _, c := range r.commands {
		if c.New.IsZero() && !caps.has("delete-refs") {
			r.reasons[c.Name] = "the far side does not delete refs"
			continue
		}
		withPack = withPack || !c.New.IsZero()
		commands = append(commands, c)
	}
	return commands, withPack
}

// bytesMax bounds the report of these commands, in bytes.
func (r *report) bytesMax() int64 {
	most := int64(64 << 10)
	for _, c := range r.commands {
		most += 4*int64(len(c.Name)) + 4<<10
	}
	return most
}

// read reads a report-status, or its second version, whose option lines are about refs that the far
// side has renamed.
func (r *report) read(a *answer, lines *pktline.Reader) error {
	kind, text, err := a.next(lines)
	if err != nil {
		return err
	}
	unpacked, ok := strings.CutPrefix(text, "unpack ")
	if kind != pktline.Data || !ok {
		return a.fail(ErrProtocol, "the report begins with %.60q", text)
	}
	known := make(map[string]bool, len(r.commands))
	for _, c := range r.commands {
		known[c.Name] = true
	}
	for {
		kind, text, err := a.next(lines)
		if err != nil {
			return err
		}
		if kind == pktline.Flush {
			break
		}
		word, rest, _ := strings.Cut(text, " ")
		switch name, reason, _ := strings.Cut(rest, " "); {
		case kind == pktline.Data && word == "ok" && known[rest]:
			r.reasons[rest] = ""
		case kind == pktline.Data && word == "ng" && known[name]:
			if reason = a.hide.clean(reason); reason == "" {
				reason = "refused without a reason"
			}
			r.reasons[name] = reason
		case kind == pktline.Data && word == "option":
		default:
			return a.fail(ErrProtocol, "a line of the report about nothing that was asked: %.100q", text)
		}
	}
	if unpacked != "ok" {
		return a.fail(ErrRejected, "the pack was rejected: %s", unpacked)
	}
	return nil
}

// results returns what became of the commands, in their order.
func (r *report) results() []Result {
	results := make([]Result, 0, len(r.commands))
	for _, c := range r.commands {
		reason, told := r.reasons[c.Name]
		if !told {
			reason = "the far side did not report on it"
		}
		results = append(results, Result{Name: c.Name, Reason: reason})
	}
	return results
}
