package githttp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine"
	"packhorse/pack"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// tellFailures reports to the server the failures that only the report to the client contains.
func (s *session) tellFailures(result *engine.PushResult) {
	if result.Unpack != nil {
		s.x.Refused(result.Unpack)
		return // the commands failed with it
	}
	for _, command := range result.Commands {
		if command.Err != nil {
			s.x.Failed(command.Err)
		}
	}
}

// reportOf is the report-status of a push, as pkt-lines: gitprotocol-pack(5), "Report Status".
// remark receives further text for the terminal.
func (a *pushAsk) reportOf(result *engine.PushResult, remark func(string)) []byte {
	var report bytes.Buffer
	out := pktline.NewWriter(&report)
	unpack := "ok"
	if result.Unpack != nil {
		unpack = oneLine(unpackReason(result.Unpack))
		if isRefused(result.Unpack) {
			remark("error: " + unpack + "\n")
			if tooLarge, ok := errors.AsType[*pack.LimitError](result.Unpack); ok && tooLarge.Limit == "object size" {
				remark(findObject)
			}
		}
	}
	lines := []string{"unpack " + unpack}
	for i, command := range result.Commands {
		if command.Absent {
			remark("warning: deleting a non-existent ref\n")
		}
		if command.Err == nil {
			lines = append(lines, "ok "+command.Name)
			continue
		}
		reason, why := a.refusal(a.Commands[i], command.Err)
		lines = append(lines, "ng "+command.Name+" "+oneLine(reason))
		if why != "" {
			remark("error: " + oneLine(why) + "\n")
		}
	}
	if name := result.Dangling; name != "" {
		remark(fmt.Sprintf("warning: HEAD names the branch %s, which does not exist: a clone checks out nothing\n", name))
		remark("hint: push that branch, or choose another default branch:\n")
		remark("hint:   PATCH /api/v1/repo {\"default_branch\": \"...\"}\n")
	}
	for _, line := range lines {
		_ = out.String(line[:min(len(line), pktline.PayloadMax-1)] + "\n") // a bytes.Buffer takes everything
	}
	_ = out.Flush()
	return report.Bytes()
}

// findObject explains how to find an object that is too large: its name is not known where its size
// is checked.
const findObject = `hint: find it with: git rev-list --objects HEAD |
hint:   git cat-file --batch-check="%(objectsize) %(objectname) %(rest)" | sort -n | tail
`

// refusal returns, in git's words, why a command was refused: a short reason, and further text.
func (a *pushAsk) refusal(command engine.Command, err error) (reason, why string) {
	const failed = "failed to update ref"
	name := command.Name
	var (
		refused  engine.RefusalError
		stale    *refs.StaleError
		conflict *refs.NameConflictError
		wrong    *refs.NameError
		branch   *engine.BranchTypeError
	)
	switch {
	case errors.As(err, &refused):
		if refused == engine.RefusedDefault {
			why = "refusing to delete the current branch: " + name
		}
		return string(refused), why
	case errors.As(err, &stale) && stale.Expected.IsZero():
		return failed, fmt.Sprintf("cannot lock ref '%s': reference already exists", name)
	case errors.As(err, &stale) && stale.Actual.IsZero():
		return failed, fmt.Sprintf("cannot lock ref '%s': reference is missing but expected %s", name, stale.Expected)
	case errors.As(err, &stale):
		return failed, fmt.Sprintf("cannot lock ref '%s': is at %s but expected %s", name, stale.Actual, stale.Expected)
	case errors.As(err, &conflict):
		existing := strings.TrimSuffix(strings.TrimPrefix(conflict.Existing, a.Namespace.Prefix()), "/")
		return failed, fmt.Sprintf("cannot lock ref '%s': '%s' exists; cannot create '%s'", name, existing, name)
	case errors.As(err, &branch):
		return failed, fmt.Sprintf("cannot update ref '%s': trying to write non-commit object %s to branch '%s'", name,
			branch.ID, name)
	case errors.As(err, &wrong) && isHidden(name) && command.New.IsZero():
		return "deny deleting a hidden ref", ""
	case errors.As(err, &wrong) && isHidden(name):
		return "deny updating a hidden ref", ""
	case errors.As(err, &wrong):
		return "funny refname", fmt.Sprintf("refusing to create funny ref '%s' remotely: it %s", name, wrong.Reason)
	default:
		return reasonOf(err), ""
	}
}

// isHidden reports whether refs of such names are invisible to all clients.
func isHidden(name string) bool {
	return strings.HasPrefix(name, "refs/namespaces/") || strings.HasPrefix(name, "refs/replace/")
}

// oneLine reduces text to the one line that a report has for it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
